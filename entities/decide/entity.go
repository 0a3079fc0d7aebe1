package decide

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// entityKind is a row of the table of what an instance can be: by the kind of its runtime.
type entityKind struct {
	runtime entities.RuntimeKind // "" is every kind that has no row
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

// serviceInstance is a service in a channel (A3): its state is that of its objects, and its apply
// hands the rendered payload to the runtime.
type serviceInstance struct{ *state.Instance }

// Fetch rolls the objects up: stable when there is at least one and every one is (C5). While readings
// fail nothing is known, though the last good objects are kept to be shown; and a reading from before
// the last apply ended does not show what that did.
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

// HasWork implements Entity: the target is not what is there, or what is there is not stable, or
// it drifted (A3). An unknown state is no reason to act by itself, but a target that was never
// applied is. What had converged and is as declared has none, however it is: an apply would change nothing (H8).
func (i serviceInstance) HasWork(target *entities.Target, current entities.Current) (bool, string) {
	d := &i.Delivery
	switch {
	case target == nil:
		return false, ""
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
