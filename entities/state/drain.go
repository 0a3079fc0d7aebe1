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

// PauseBesidesDrain is the pause that holds an instance in addition to the drain of its runtime.
func (s *State) PauseBesidesDrain(id entities.InstanceID) (entities.Pause, bool) {
	runtime, _ := s.Runtime(id)
	return s.nearestPause(func(p entities.Pause) int {
		if p.Drain != nil {
			return 0
		}
		return nearness(p, id.Channel, runtime)
	})
}

// RemainingInstances counts the instances of a channel that stay while others leave drained runtimes, and all that still run; 0 of 0: none
// leaves.
func (s *State) RemainingInstances(channel string) (remaining, total int) {
	for _, i := range s.InstancesIn(channel) {
		if i.Delivery.Target == nil || i.TakenDown {
			continue
		}
		total++
		if s.DrainOf(i.Runtime) == nil {
			remaining++
		}
	}
	if remaining == total {
		return 0, 0
	}
	return remaining, total
}

// markDrained marks instances whose runtimes are drained. A release that they miss from now on reaches them when they return.
func (s *State) markDrained(c Change) {
	for _, id := range c.Instances {
		i := s.Instance(id)
		i.Runtime, _ = s.Runtime(id)
		i.Drained = true
	}
}

// MissedTarget is the newest target that succeeded in the channel while the runtime of an instance was drained and that no person rolled
// back; nil: the target that it has. A release in progress reaches the instance later. A pin, or a waiting rollback, determines its target
// itself.
func (s *State) MissedTarget(i *Instance) *entities.Target {
	if _, pinned := s.PinOf(i.ID.Channel); pinned || s.pendingReturn(i.ID.Channel) != nil {
		return nil
	}
	r := s.missedRelease(i)
	if r == nil {
		return nil
	}
	newest := r.Target(i.ID)
	if t := i.Delivery.Target; t != nil && t.Payload == newest.Payload {
		return nil
	}
	return &newest
}

// missedRelease is the release that succeeded in the channel during the drain, or nil.
func (s *State) missedRelease(i *Instance) *Release {
	for _, r := range slices.Backward(s.Releases) {
		p := r.phaseState(i.ID.Channel)
		switch {
		case p == nil || p.Revoked:
		case i.IsAt(r) && p.Phase != maestro.RolledBack:
			return nil
		case p.Phase == maestro.Succeeded && !r.Offloaded() && r.HasPayload(i.ID):
			return r
		}
	}
	return nil
}

// neverApplied reports whether the target of an instance was never applied. Its gates stay required when the instance returns.
func (s *State) neverApplied(i *Instance) bool { return i.Delivery.ReportedOnly }

// restoreLastGood restores an instance at its last good target. A reported target must enter first.
func (s *State) restoreLastGood(i *Instance, now time.Time) {
	if good := i.Delivery.LastGood; good != nil {
		s.restoreTarget(i, *good, now)
	}
}

// restoreDrained restores instances: at the target that they missed, or at their own, which is applied again if it was removed.
func (s *State) restoreDrained(c Change, now time.Time) {
	missed := map[entities.InstanceID]entities.Target{}
	for _, m := range c.Moves {
		missed[m.Instance] = m.Target
	}
	for _, id := range c.Instances {
		i := s.Instance(id)
		removed := i.RemovalStarted || i.TakenDown
		i.Drained, i.RemovalStarted, i.TakenDown = false, false, false
		d := &i.Delivery
		t, hasMissed := missed[id]
		switch {
		case hasMissed:
			s.restoreTarget(i, t, now)
		case removed && d.Target != nil && s.neverApplied(i):
			s.restoreLastGood(i, now)
			if s.neverApplied(i) {
				continue
			}
		case removed && d.Target != nil:
			rollback, before, cancelled, channelRemoved := d.Rollback, d.BeforePin, d.Cancelled, d.ChannelRemoved
			s.restoreTarget(i, *d.Target, now)
			d.Rollback, d.BeforePin, d.Cancelled, d.ChannelRemoved = rollback, before, cancelled, channelRemoved
		default:
			if !d.Apply.FirstStarted.IsZero() && !d.Converged {
				d.Apply.FirstStarted, d.StoppedAt = now, time.Time{}
			}
			continue
		}
		d.ReappliedAfterDrain = true
		s.AppendJournal(now, id.Channel, s.DisplayName(id)+" is restored at "+i.currentVersion())
		s.recordChange(Change{Channel: c.Channel, Cause: c.Cause, Moves: []Move{{Instance: id, Target: *d.Target}}}, entities.EventTarget, "target "+i.currentVersion()+" again", now)
	}
}
