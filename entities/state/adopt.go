package state

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// RecordInterruption records that all work in progress was lost: the state was saved while work ran, and that work was abandoned. The work
// starts again. Work with external effects starts at next at the earliest, because the lost run may take that long to end.
func (s *State) RecordInterruption(now, next time.Time) {
	for _, id := range entities.SortedIDs(s.Instances) {
		i := s.Instances[id]
		if a := &i.Delivery.Apply; a.Running {
			a.Running, a.Ended, a.NotBefore = false, now, next
			i.Observed.Fresh = false
		}
		i.interruptRemovals(next)
		i.Observed.Requested = true // much may have happened
		if o := &i.Observed; o.Query != nil && o.Query.Running {
			o.Query = nil
		}
	}
	for _, name := range entities.SortedKeys(s.Channels) {
		if c := s.Channels[name]; c.Preflight != nil && c.Preflight.Running {
			c.Preflight = nil
		}
	}
	for _, r := range s.Releases {
		for _, key := range entities.SortedKeys(r.Extensions) {
			if e := r.Extensions[key]; e.Running {
				e.Running, e.Next = false, next
			}
		}
	}
}

// interruptRemovals does the same for the objects that it left on other runtimes. If the instance returned there, its next apply waits.
func (i *Instance) interruptRemovals(next time.Time) {
	if i.PreviousPlacementOn(i.Runtime) != nil {
		i.dropPlacement(i.Runtime)
		i.Delivery.Apply.NotBefore = next
	}
	for n := range i.PreviousPlacements {
		if a := &i.PreviousPlacements[n].Apply; a.Running {
			a.Running, a.NotBefore = false, next
		}
	}
}
