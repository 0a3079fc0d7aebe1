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

func (c versionOrder) Evaluate(ctx context.Context, a Asked) (entities.CheckReading, error) {
	return c.sources.onOther(ctx, a, func(o other) (entities.CheckReading, error) {
		there, mine := order.Named(o.present()), a.version()
		c, how, ok := order.CompareVersions(there, mine)
		switch {
		case mine == "":
			return unevaluated("there is no version to compare")
		case there == "" || o.channel.Status == string(entities.StatusUnknown):
			return o.delayed("the version of %s is not known yet; expected at least %s", otherOf(a), mine)
		case !ok:
			return unevaluated("%s has %s, which cannot be compared with %s; expected two numbers, semantic versions or time stamps of one form", otherOf(a), there, mine)
		case c < 0:
			return o.delayed("%s has %s; expected at least %s (%s)", otherOf(a), there, mine, how)
		}
		return pass("%s has %s, which is at least %s (%s)", otherOf(a), there, mine, how)
	})
}

// staticOrder passes once the other service has no release of this or an earlier incarnation that is pending or in progress in the channel (D22).
// Incarnations of two applications are not comparable; there the creation times of the releases decide.
type staticOrder struct{ sources Sources }

func (c staticOrder) Evaluate(ctx context.Context, a Asked) (entities.CheckReading, error) {
	return c.sources.onOther(ctx, a, func(o other) (entities.CheckReading, error) {
		if otherOf(a).elsewhere() {
			return c.byTime(ctx, a, o)
		}
		mine, err := c.sources.incarnation(ctx, a)
		if err != nil {
			return entities.CheckReading{}, err
		}
		var open []order.Open
		for _, r := range slices.Backward(o.status.Releases) { // oldest first
			if p := o.phase(r); r.Aspect == "" && (p == maestro.Pending || p == maestro.InProgress) {
				open = append(open, order.Open{Version: r.Version, Incarnation: r.Incarnation})
			}
		}
		if first, ahead := order.Ahead(mine, open); ahead {
			return o.delayed("%s (incarnation %d) is still open for %s, and goes before incarnation %d", first.Version, first.Incarnation, otherOf(a), mine)
		}
		return pass("no release up to incarnation %d is open for %s", mine, otherOf(a))
	})
}

// byTime passes once the other service has no open release that was created before the one under evaluation. For a repair it passes once
// there is no open release at all.
func (c staticOrder) byTime(ctx context.Context, a Asked, o other) (entities.CheckReading, error) {
	mine, err := c.sources.asked(ctx, a)
	if err != nil {
		return entities.CheckReading{}, err
	}
	for _, r := range slices.Backward(o.status.Releases) { // oldest first
		if p := o.phase(r); r.Aspect == "" && (p == maestro.Pending || p == maestro.InProgress) && (mine.At.IsZero() || !r.At.After(mine.At)) {
			return o.delayed("%s is still open for %s, and was released earlier", r.Version, otherOf(a))
		}
	}
	return pass("no earlier release is open for %s", otherOf(a))
}

// incarnation returns that of the release under evaluation, or of the version under repair.
func (p Sources) incarnation(ctx context.Context, a Asked) (int64, error) {
	r, err := p.asked(ctx, a)
	return r.Incarnation, err
}

// asked returns the release under evaluation, or the release of the version under repair. Without a known release it returns the current
// incarnation of the service.
func (p Sources) asked(ctx context.Context, a Asked) (protocol.ReleaseStatus, error) {
	status, err := p.Services.Status(ctx, a.Definition.Application, a.Definition.Service)
	if err != nil {
		return protocol.ReleaseStatus{}, fmt.Errorf("service %s: %w", a.Definition.Service, err)
	}
	for _, is := range []func(protocol.ReleaseStatus) bool{
		func(r protocol.ReleaseStatus) bool { return r.ID == a.Evaluation.Release },
		func(r protocol.ReleaseStatus) bool { return r.Version == a.Evaluation.FullVersion },
	} {
		if n := slices.IndexFunc(status.Releases, is); n >= 0 {
			return status.Releases[n], nil
		}
	}
	return protocol.ReleaseStatus{Incarnation: status.Incarnation}, nil
}
