package decide

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// entityKind is a row of the table of the kinds of instance, by the kind of its runtime.
type entityKind struct {
	runtime entities.RuntimeKind // "" is every kind without a row
	entity  func(*state.Instance) entities.Entity
}

var standard = newTables(gates[:], []entityKind{{"", func(i *state.Instance) entities.Entity { return serviceInstance{i} }}})

func (t *tables) entity(kind entities.RuntimeKind, i *state.Instance) entities.Entity {
	row := &t.entities[0]
	for n := range t.entities {
		if t.entities[n].runtime == kind {
			row = &t.entities[n]
		}
	}
	return row.entity(i)
}

// serviceInstance is a service in a channel (A3). Its state is that of its objects, and its apply sends the rendered payload to the
// runtime.
type serviceInstance struct{ *state.Instance }

// Fetch rolls the objects up: stable if there is at least one and all are stable (C5). While readings fail the state is unknown, but the
// last good objects are kept for display. A reading from before the end of the last apply does not show the effect of that apply.
func (i serviceInstance) Fetch(target *entities.Target) entities.Current {
	c := entities.FetchObjects(i.Observed.Reading.Objects, target)
	c.Known = i.Observed.Digest != "" && i.Observed.Reading.Err == nil
	switch {
	case !c.Known:
		c.Stable, c.AsDeclared = false, false
		if len(i.Observed.Reading.Objects) == 0 {
			c.Reason = ""
		}
	case c.Stable && !i.Observed.Fresh:
		c.Stable, c.AsDeclared, c.Reason = false, false, "not observed since the last apply"
	}
	return c
}

// HasWork implements Entity. There is work if the target is not the current version, or the current version is not stable, or it drifted
// (A3). An unknown state is no reason to act, but a target that was never applied is. A converged instance that is as declared has no
// work, even if it is unhealthy: an apply would change nothing (H8).
func (i serviceInstance) HasWork(target *entities.Target, current entities.Current) (bool, string) {
	d := &i.Delivery
	switch {
	case target == nil:
		return false, ""
	case d.Failure != "":
		return i.maintenance(current)
	case d.Restarting && !d.Apply.OK:
		return true, "restart of " + target.FullVersion
	case d.Reapply && !d.Converged && !d.Apply.OK:
		return true, "return to " + target.FullVersion
	case current.Stable:
		return false, ""
	case !d.Converged && !d.Apply.OK:
		return true, "move to " + target.FullVersion
	case !current.Known, d.Converged && current.AsDeclared:
		return false, ""
	}
	return true, current.Reason
}
