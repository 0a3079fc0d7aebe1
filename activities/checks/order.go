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

// versionOrder passes once the other service has at least the version that is asked about (D22):
// version(other) ≥ version(this). Where the other's version is not known, this one waits.
type versionOrder struct{ sources Sources }

func (c versionOrder) Evaluate(ctx context.Context, a Asked) (entities.CheckReading, error) {
	return c.sources.onOther(ctx, a, func(o other) (entities.CheckReading, error) {
		there, mine := order.Named(o.present()), a.version()
		c, how, ok := order.CompareVersions(there, mine)
		switch {
		case mine == "":
			return unevaluated("no version is asked about")
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

// staticOrder passes once the other service has no release of this incarnation or an earlier one that
// is still to enter the channel or on its way (D22). Incarnations of two applications say nothing of each other: there it is
// when releases were made that counts.
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
			return o.delayed("%s (incarnation %d) is not yet through %s, and goes before incarnation %d", first.Version, first.Incarnation, otherOf(a), mine)
		}
		return pass("nothing of incarnation %d or before is open of %s", mine, otherOf(a))
	})
}

// byTime passes once the other service has no release open that was made before the one asked about, or, of a repair, at all.
func (c staticOrder) byTime(ctx context.Context, a Asked, o other) (entities.CheckReading, error) {
	mine, err := c.sources.asked(ctx, a)
	if err != nil {
		return entities.CheckReading{}, err
	}
	for _, r := range slices.Backward(o.status.Releases) { // oldest first
		if p := o.phase(r); r.Aspect == "" && (p == maestro.Pending || p == maestro.InProgress) && (mine.At.IsZero() || !r.At.After(mine.At)) {
			return o.delayed("%s is not yet through %s, and was released before", r.Version, otherOf(a))
		}
	}
	return pass("nothing that was released before is open of %s", otherOf(a))
}

// incarnation is that of the release asked about, or of what is repaired.
func (p Sources) incarnation(ctx context.Context, a Asked) (int64, error) {
	r, err := p.asked(ctx, a)
	return r.Incarnation, err
}

// asked is the release asked about, or that of what is repaired; of none that is known, the incarnation that the service goes by.
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
