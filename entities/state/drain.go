package state

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file has instances leave a runtime that is drained, and come back.

// DrainOf is the pause by which a runtime is drained, or nil.
func (s *State) DrainOf(runtime string) *entities.Pause {
	for n := range s.Pauses {
		if p := &s.Pauses[n]; p.Drain != nil && p.Scope == entities.ScopeRuntime+runtime {
			return p
		}
	}
	return nil
}

// PausedBeside is the pause by which people hold an instance whose runtime is drained.
func (s *State) PausedBeside(id entities.InstanceID) (entities.Pause, bool) {
	runtime, _ := s.Runtime(id)
	return s.nearest(func(p entities.Pause) int {
		if p.Drain != nil {
			return 0
		}
		return nearness(p, id.Channel, runtime)
	})
}

// Staying is how many instances of a channel stay where others leave runtimes that are drained, and of how many that still run;
// 0 of 0: none leaves.
func (s *State) Staying(channel string) (stay, of int) {
	for _, i := range s.In(channel) {
		if i.Delivery.Target == nil || i.Down {
			continue
		}
		of++
		if s.DrainOf(i.Runtime) == nil {
			stay++
		}
	}
	if stay == of {
		return 0, 0
	}
	return stay, of
}

// away marks instances whose runtimes are drained: what they miss from now on comes when they are back.
func (s *State) away(c Change) {
	for _, id := range c.Instances {
		i := s.Instance(id)
		i.Runtime, _ = s.Runtime(id)
		i.Drained = true
	}
}

// Missed is the newest target that succeeded in the channel while the runtime of an instance was drained, and that nobody took back; nil:
// the one that it has. What is in progress comes to it afterwards, and a pin and what waits to lead back say themselves what comes.
func (s *State) Missed(i *Instance) *entities.Target {
	if _, pinned := s.PinOf(i.ID.Channel); pinned || s.returning(i.ID.Channel) != nil {
		return nil
	}
	r := s.missed(i)
	if r == nil {
		return nil
	}
	newest := r.Target(i.ID)
	if t := i.Delivery.Target; t != nil && t.Payload == newest.Payload {
		return nil
	}
	return &newest
}

// missed is the release that succeeded in the channel meanwhile, or nil.
func (s *State) missed(i *Instance) *Release {
	for _, r := range slices.Backward(s.Releases) {
		p := r.in(i.ID.Channel)
		switch {
		case p == nil || p.CalledOff:
		case i.IsAt(r) && p.Phase != maestro.RolledBack:
			return nil
		case p.Phase == maestro.Succeeded && !r.Offloaded() && r.Concerns(i.ID):
			return r
		}
	}
	return nil
}

// onlyReported: the target of an instance was never applied, and passes no gate by coming back.
func (s *State) onlyReported(i *Instance) bool { return i.Delivery.Reported }

// backToGood has an instance come back at what was good there last: what was only reported is to enter first.
func (s *State) backToGood(i *Instance, now time.Time) {
	if good := i.Delivery.LastGood; good != nil {
		s.returnTo(i, *good, now)
	}
}

// back has instances come back: at what they missed, or at their targets, which are applied again where they were removed.
func (s *State) back(c Change, now time.Time) {
	missed := map[entities.InstanceID]entities.Target{}
	for _, m := range c.Moves {
		missed[m.Instance] = m.Target
	}
	for _, id := range c.Instances {
		i := s.Instance(id)
		gone := i.Removed || i.Down
		i.Drained, i.Removed, i.Down = false, false, false
		d := &i.Delivery
		t, moves := missed[id]
		switch {
		case moves:
			s.returnTo(i, t, now)
		case gone && d.Target != nil && s.onlyReported(i):
			s.backToGood(i, now)
			if s.onlyReported(i) {
				continue
			}
		case gone && d.Target != nil:
			rollback, before, cancelled, cut := d.Rollback, d.BeforePin, d.Cancelled, d.Cut
			s.returnTo(i, *d.Target, now)
			d.Rollback, d.BeforePin, d.Cancelled, d.Cut = rollback, before, cancelled, cut
		default:
			if !d.Apply.First.IsZero() && !d.Converged {
				d.Apply.First, d.StoppedAt = now, time.Time{}
			}
			continue
		}
		d.ComesBack = true
		s.Record(now, id.Channel, s.Shown(id)+" comes back at "+i.present())
		s.noteChange(Change{Channel: c.Channel, Cause: c.Cause, Moves: []Move{{Instance: id, Target: *d.Target}}}, entities.EventTarget, "target "+i.present()+" again", now)
	}
}
