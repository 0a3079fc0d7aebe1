package checks

import (
	"context"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/order"
	"github.com/converge-engine/converge/entities/protocol"
)

// versionOrder passes once the other service has at least the version under evaluation (D22): version(other) ≥ version(this). If the
// version of the other service is unknown, it waits.
type versionOrder struct{ sources Sources }

func (c versionOrder) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	return c.sources.evaluateOther(ctx, a, func(o other) (entities.CheckReading, error) {
		otherVersion, own := order.BaseVersion(o.reachedVersion()), a.version()
		c, comparison, ok := order.CompareVersions(otherVersion, own)
		switch {
		case own == "":
			return unevaluated("there is no version to compare")
		case otherVersion == "" || o.channel.Status == string(entities.StatusUnknown):
			return o.waitOrFail("the version of %s is not known yet; expected at least %s", dependencyNode(a), own)
		case !ok:
			return unevaluated("%s has %s, which cannot be compared with %s; expected two numbers, semantic versions or time stamps of one form", dependencyNode(a), otherVersion, own)
		case c < 0:
			return o.waitOrFail("%s has %s; expected at least %s (%s)", dependencyNode(a), otherVersion, own, comparison)
		}
		return pass("%s has %s, which is at least %s (%s)", dependencyNode(a), otherVersion, own, comparison)
	})
}

// staticOrder passes once the other service has no release of this or an earlier incarnation that is pending or in progress in the channel
// (D22). Incarnations of two applications are not comparable; there the creation times of the releases decide.
type staticOrder struct{ sources Sources }

func (c staticOrder) Evaluate(ctx context.Context, a Request) (entities.CheckReading, error) {
	return c.sources.evaluateOther(ctx, a, func(o other) (entities.CheckReading, error) {
		if dependencyNode(a).isExternal() {
			return c.byTime(ctx, a, o)
		}
		own, err := c.sources.incarnation(ctx, a)
		if err != nil {
			return entities.CheckReading{}, err
		}
		var open []order.OpenRelease
		for _, r := range slices.Backward(o.status.Releases) { // oldest first
			if p := o.phase(r); r.Aspect == "" && (p == maestro.Pending || p == maestro.InProgress) {
				open = append(open, order.OpenRelease{Version: r.Version, Incarnation: r.Incarnation})
			}
		}
		if first, ahead := order.Ahead(own, open); ahead {
			return o.waitOrFail("%s (incarnation %d) is still open for %s, and goes before incarnation %d", first.Version, first.Incarnation, dependencyNode(a), own)
		}
		return pass("no release up to incarnation %d is open for %s", own, dependencyNode(a))
	})
}

// byTime passes once the other service has no open release that was created before the one under evaluation. For a repair it passes once
// there is no open release at all.
func (c staticOrder) byTime(ctx context.Context, a Request, o other) (entities.CheckReading, error) {
	own, err := c.sources.release(ctx, a)
	if err != nil {
		return entities.CheckReading{}, err
	}
	for _, r := range slices.Backward(o.status.Releases) { // oldest first
		if p := o.phase(r); r.Aspect == "" && (p == maestro.Pending || p == maestro.InProgress) && (own.At.IsZero() || !r.At.After(own.At)) {
			return o.waitOrFail("%s is still open for %s, and was released earlier", r.Version, dependencyNode(a))
		}
	}
	return pass("no earlier release is open for %s", dependencyNode(a))
}

// incarnation returns that of the release under evaluation, or of the version under repair.
func (p Sources) incarnation(ctx context.Context, a Request) (int64, error) {
	r, err := p.release(ctx, a)
	return r.Incarnation, err
}

// release returns the release under evaluation, or the release of the version under repair. Without a known release it returns the current
// incarnation of the service.
func (p Sources) release(ctx context.Context, a Request) (protocol.ReleaseStatus, error) {
	status, err := p.Services.Status(ctx, a.Definition.Application, a.Definition.Service)
	if err != nil {
		return protocol.ReleaseStatus{}, fmt.Errorf("service %s: %w", a.Definition.Service, err)
	}
	for _, matches := range []func(protocol.ReleaseStatus) bool{
		func(r protocol.ReleaseStatus) bool { return r.ID == a.Evaluation.Release },
		func(r protocol.ReleaseStatus) bool { return r.Version == a.Evaluation.FullVersion },
	} {
		if n := slices.IndexFunc(status.Releases, matches); n >= 0 {
			return status.Releases[n], nil
		}
	}
	return protocol.ReleaseStatus{Incarnation: status.Incarnation}, nil
}
