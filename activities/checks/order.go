package checks

import (
	"context"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/solver"
)

// versionOrder passes once the other service has at least the version that is asked about (D22):
// version(other) ≥ version(this). Where the other's version is not known, this one waits.
type versionOrder struct{ places Places }

func (c versionOrder) Judge(ctx context.Context, a Asked) (entities.CheckReading, error) {
	return c.places.onOther(ctx, a, func(o other) (entities.CheckReading, error) {
		there, mine := solver.Named(o.present()), a.version()
		switch {
		case mine == "":
			return unjudged("no version is asked about")
		case there == "" || o.channel.Status == string(entities.StatusUnknown):
			return o.delayed("the version of %s is not known yet; expected at least %s", otherOf(a), mine)
		case solver.CompareVersions(there, mine) < 0:
			return o.delayed("%s has %s; expected at least %s", otherOf(a), there, mine)
		}
		return pass("%s has %s, which is at least %s", otherOf(a), there, mine)
	})
}

// staticOrder passes once the other service has no release of this incarnation or an earlier one that
// is still to enter the channel or on its way (D22).
type staticOrder struct{ places Places }

func (c staticOrder) Judge(ctx context.Context, a Asked) (entities.CheckReading, error) {
	return c.places.onOther(ctx, a, func(o other) (entities.CheckReading, error) {
		mine, err := c.places.incarnation(ctx, a)
		if err != nil {
			return entities.CheckReading{}, err
		}
		var open []solver.Open
		for _, r := range slices.Backward(o.status.Releases) { // oldest first
			if p := o.phase(r); p == maestro.Pending || p == maestro.InProgress {
				open = append(open, solver.Open{Version: r.Version, Incarnation: r.Incarnation})
			}
		}
		if first, ahead := solver.Ahead(mine, open); ahead {
			return o.delayed("%s (incarnation %d) is not yet through %s, and goes before incarnation %d", first.Version, first.Incarnation, otherOf(a), mine)
		}
		return pass("nothing of incarnation %d or before is open of %s", mine, otherOf(a))
	})
}

// incarnation is that of the release asked about, or of what is repaired.
func (p Places) incarnation(ctx context.Context, a Asked) (int64, error) {
	status, err := p.Services.Status(ctx, a.Definition.Application, a.Definition.Service)
	if err != nil {
		return 0, fmt.Errorf("service %s: %w", a.Definition.Service, err)
	}
	for _, is := range []func(protocol.ReleaseStatus) bool{
		func(r protocol.ReleaseStatus) bool { return r.ID == a.Look.Release },
		func(r protocol.ReleaseStatus) bool { return r.Version == a.Look.FullVersion },
	} {
		if n := slices.IndexFunc(status.Releases, is); n >= 0 {
			return status.Releases[n].Incarnation, nil
		}
	}
	return status.Incarnation, nil
}
