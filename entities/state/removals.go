package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
)

// This file lists the objects that would be taken down, before a removal.

// Removal is one instance that a deletion concerns, or objects that an instance left on another runtime.
type Removal struct {
	ID      entities.InstanceID
	Runtime string
	Spec    entities.RuntimeSpec // of the runtime
	Target  entities.Target      // the current target
	Keeps   string               // why it is kept; empty: it is taken down
}

// RemovalsOf are the removals of a channel, or of the whole service if none is named, in order.
func (s *State) RemovalsOf(channel string) []Removal {
	var all []Removal
	for _, i := range s.lastFirst() {
		if channel != "" && i.ID.Channel != channel {
			continue
		}
		for _, l := range i.Left {
			keeps := ""
			if channel != "" {
				keeps = "left behind when " + s.Shown(i.ID) + " moved to " + i.Runtime + "; it stays"
			}
			all = append(all, s.left(i, &l, keeps))
		}
		all = append(all, s.removal(i, "")...)
	}
	return all
}

// UndeclaredRemovals are the removals of undeclared instances whose removal was declared.
func (s *State) UndeclaredRemovals() []Removal {
	var all []Removal
	for _, i := range s.lastFirst() {
		if s.Declared(i.ID) || !s.Removes(i) {
			continue
		}
		for _, l := range i.Left {
			all = append(all, s.left(i, &l, ""))
		}
		all = append(all, s.removal(i, "")...)
	}
	return all
}

// removal is the removal of the current target of an instance.
func (s *State) removal(i *Instance, keeps string) []Removal {
	t := i.Delivery.Target
	if t == nil || s.IsGone(i.ID) || i.Down {
		return nil
	}
	runtime, rt := s.Runtime(i.ID)
	return []Removal{s.keeping(Removal{ID: i.ID, Runtime: runtime, Spec: rt, Target: *t, Keeps: keeps})}
}

// left is the removal of the objects that an instance left on another runtime.
func (s *State) left(i *Instance, l *Left, keeps string) Removal {
	return s.keeping(Removal{ID: i.ID, Runtime: l.Runtime, Spec: *s.RuntimeNamed(l.Runtime), Target: l.Target, Keeps: keeps})
}

// keeping adds why the objects are kept, if that is known without a query.
func (s *State) keeping(r Removal) Removal {
	switch {
	case r.Keeps != "":
	case s.ReportsOnly(r.ID.Channel):
		r.Keeps = "its channel is report-only: Converge does not remove its objects"
	case !r.Spec.CanRemove:
		r.Keeps = fmt.Sprintf("runtime %s cannot remove objects: they are left in place", r.Runtime)
	}
	return r
}

// lastFirst are all instances, those of the last channel first.
func (s *State) lastFirst() []*Instance {
	var all []*Instance
	for _, id := range entities.SortedIDs(s.Instances) {
		all = append(all, s.Instances[id])
	}
	position := func(i *Instance) int {
		if c := s.Channels[i.ID.Channel]; c != nil {
			return c.Position
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b *Instance) int {
		return cmp.Or(cmp.Compare(position(b), position(a)), b.ID.Compare(a.ID))
	})
	return all
}
