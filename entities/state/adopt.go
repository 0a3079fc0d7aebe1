package state

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// Interrupted records that all work in progress was lost: the state was saved while work ran, and that work was abandoned. The work
// starts again. Work with external effects starts at next at the earliest, because the lost run may take that long to end.
func (s *State) Interrupted(now, next time.Time) {
	for _, id := range entities.SortedIDs(s.Instances) {
		i := s.Instances[id]
		if a := &i.Delivery.Apply; a.Running {
			a.Running, a.Ended, a.Next = false, now, next
			i.Observed.Fresh = false
		}
		i.interruptedLeft(next)
		i.Observed.Requested = true // much may have happened
		if o := &i.Observed; o.Asked != nil && o.Asked.Running {
			o.Asked = nil
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

// interruptedLeft does the same for the objects that it left on other runtimes. If the instance came back there, its next apply waits.
func (i *Instance) interruptedLeft(next time.Time) {
	if i.LeftOn(i.Runtime) != nil {
		i.forgetLeft(i.Runtime)
		i.Delivery.Apply.Next = next
	}
	for n := range i.Left {
		if a := &i.Left[n].Apply; a.Running {
			a.Running, a.Next = false, next
		}
	}
}

// HoldBack pauses a service that Converge must not continue without a person.
func (s *State) HoldBack(reason string, now time.Time) {
	effect, err := s.Pause("", entities.Who{Name: "converge"}, reason, now)
	if err == nil {
		effect()
	}
}
