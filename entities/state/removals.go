package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
)

// This file lists the objects that would be removed, before a removal.

// Removal is one instance that a deletion concerns, or objects that an instance left on another runtime.
type Removal struct {
	ID         entities.InstanceID
	Runtime    string
	Spec       entities.RuntimeSpec // of the runtime
	Target     entities.Target      // the current target
	KeepReason string               // why it is kept; empty: it is removed
}

// RemovalsOf are the removals of a channel, or of the whole service if none is named, in order.
func (s *State) RemovalsOf(channel string) []Removal {
	var all []Removal
	for _, i := range s.lastChannelFirst() {
		if channel != "" && i.ID.Channel != channel {
			continue
		}
		for _, l := range i.PreviousPlacements {
			keepReason := ""
			if channel != "" {
				keepReason = "left behind when " + s.DisplayName(i.ID) + " moved to " + i.Runtime + "; it stays"
			}
			all = append(all, s.placementRemoval(i, &l, keepReason))
		}
		all = append(all, s.instanceRemoval(i, "")...)
	}
	return all
}

// UndeclaredRemovals are the removals of undeclared instances whose removal was declared.
func (s *State) UndeclaredRemovals() []Removal {
	var all []Removal
	for _, i := range s.lastChannelFirst() {
		if s.Declared(i.ID) || !s.WillRemove(i) {
			continue
		}
		for _, l := range i.PreviousPlacements {
			all = append(all, s.placementRemoval(i, &l, ""))
		}
		all = append(all, s.instanceRemoval(i, "")...)
	}
	return all
}

// instanceRemoval is the removal of the current target of an instance.
func (s *State) instanceRemoval(i *Instance, keepReason string) []Removal {
	t := i.Delivery.Target
	if t == nil || s.IsRemoved(i.ID) || i.TakenDown {
		return nil
	}
	runtime, rt := s.Runtime(i.ID)
	return []Removal{s.withKeepReason(Removal{ID: i.ID, Runtime: runtime, Spec: rt, Target: *t, KeepReason: keepReason})}
}

// placementRemoval is the removal of the objects that an instance left on another runtime.
func (s *State) placementRemoval(i *Instance, l *PreviousPlacement, keepReason string) Removal {
	return s.withKeepReason(Removal{ID: i.ID, Runtime: l.Runtime, Spec: *s.RuntimeNamed(l.Runtime), Target: l.Target, KeepReason: keepReason})
}

// withKeepReason adds why the objects are kept, if that is known without a query.
func (s *State) withKeepReason(r Removal) Removal {
	switch {
	case r.KeepReason != "":
	case s.IsReportOnly(r.ID.Channel):
		r.KeepReason = "its channel is report-only: Converge does not remove its objects"
	case !r.Spec.CanRemove:
		r.KeepReason = fmt.Sprintf("runtime %s cannot remove objects: they are left in place", r.Runtime)
	}
	return r
}

// lastChannelFirst are all instances, those of the last channel first.
func (s *State) lastChannelFirst() []*Instance {
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
