package state

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file removes instances from a drained runtime, and restores them.

// DrainOf is the pause by which a runtime is drained, or nil.
func (s *State) DrainOf(runtime string) *entities.Pause {
	for n := range s.Pauses {
		if p := &s.Pauses[n]; p.Drain != nil && p.Scope == entities.ScopeRuntime+runtime {
			return p
		}
	}
	return nil
}

// PausedBeside is the pause that holds an instance in addition to the drain of its runtime.
func (s *State) PausedBeside(id entities.InstanceID) (entities.Pause, bool) {
	runtime, _ := s.Runtime(id)
	return s.nearest(func(p entities.Pause) int {
		if p.Drain != nil {
			return 0
		}
		return nearness(p, id.Channel, runtime)
	})
}

// Staying counts the instances of a channel that stay while others leave drained runtimes, and all that still run; 0 of 0: none leaves.
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

// away marks instances whose runtimes are drained. A release that they miss from now on reaches them when they are back.
func (s *State) away(c Change) {
	for _, id := range c.Instances {
		i := s.Instance(id)
		i.Runtime, _ = s.Runtime(id)
		i.Drained = true
	}
}

// Missed is the newest target that succeeded in the channel while the runtime of an instance was drained and that no person took back;
// nil: the target that it has. A release in progress reaches the instance later. A pin, or a waiting rollback, determines its target
// itself.
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

// missed is the release that succeeded in the channel during the drain, or nil.
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

// onlyReported reports whether the target of an instance was never applied. Its gates stay required when the instance comes back.
func (s *State) onlyReported(i *Instance) bool { return i.Delivery.Reported }

// backToGood restores an instance at its last good target. A reported target must enter first.
func (s *State) backToGood(i *Instance, now time.Time) {
	if good := i.Delivery.LastGood; good != nil {
		s.returnTo(i, *good, now)
	}
}

// back restores instances: at the target that they missed, or at their own, which is applied again if it was removed.
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
		s.Record(now, id.Channel, s.Shown(id)+" is restored at "+i.present())
		s.noteChange(Change{Channel: c.Channel, Cause: c.Cause, Moves: []Move{{Instance: id, Target: *d.Target}}}, entities.EventTarget, "target "+i.present()+" again", now)
	}
}
