package entities

import "time"

// This file takes in what comes back from outside: how applies ended, and what looks saw.

func (s *State) applyStarted(op ApplyOp, now time.Time) {
	a := &s.Instance(op.Channel).Progress
	a.Running, a.Started = true, now
	if a.First.IsZero() {
		a.First = now
	}
	s.Instance(op.Channel).Fresh = false
	s.applyCleared(op)
}

// ApplyEnded takes in how an apply ended. A failed one is retried with backoff until its attempts
// are spent (D18); a repair is retried for ever, ever more slowly. An answer about a target that
// is not the present one only says that nothing runs any more.
func (s *State) ApplyEnded(channel string, target Target, err string, permanent bool, now time.Time) {
	i := s.Instance(channel)
	i.Progress.Running = false
	i.Progress.Ended = now
	i.Look = true // until someone looks, nobody knows what the apply did
	if !s.declared(channel) {
		i.Progress = ApplyState{Ended: now} // should the channel come back, it is applied again
		return
	}
	if i.Target == nil || !i.Target.Same(target) {
		return
	}
	i.Progress.OK, i.Progress.Err = err == "", err
	t := s.runtime(channel).Timing
	switch {
	case i.Converged: // a repair; without effect it is not repeated at once either
		i.Progress.Attempts++
		i.Progress.Next = now.Add(backoff(t, i.Progress.Attempts))
	case err == "":
		s.takeAsReading(i, now)
	default:
		i.Progress.Attempts++
		if permanent || i.Progress.Attempts >= t.MaxAttempts {
			i.Failure = err
			return
		}
		i.Progress.Next = now.Add(backoff(t, i.Progress.Attempts))
	}
}

// ApplyLost takes in that an apply did not end: its worker went away and nobody took over in time.
// That is no fault of the release, so the progress deadline starts anew with the next attempt; it
// counts as an attempt all the same, or an apply that kills its worker would go on for ever.
func (s *State) ApplyLost(channel string, target Target, reason string, now time.Time) {
	s.ApplyEnded(channel, target, reason, false, now)
	if i := s.Instance(channel); i.Target != nil && i.Target.Same(target) {
		i.Progress.First, i.Progress.Next = time.Time{}, now
	}
}

// ApplyUnready takes in that an apply could not begin, because what it needs could not be read. The
// release is not to blame: it is tried again for as long as it takes, and neither its attempts nor
// its deadline count.
func (s *State) ApplyUnready(channel string, target Target, reason string, now time.Time) {
	i := s.Instance(channel)
	i.Progress.Running, i.Progress.Ended, i.Look = false, now, true
	if i.Target == nil || !i.Target.Same(target) {
		return
	}
	i.Progress.Err, i.Progress.First = reason, time.Time{}
	i.Progress.Next = now.Add(max(s.runtime(channel).Timing.RetryBackoff, unreadyPause))
}

// unreadyPause is the least time between two tries to begin an apply.
const unreadyPause = 15 * time.Second

// takeAsReading: on a runtime that cannot be looked at, the success of an apply is the state (C1).
func (s *State) takeAsReading(i *Instance, now time.Time) {
	if s.runtime(i.Channel).Looks {
		return
	}
	i.look(Reading{At: now, Objects: []Object{{
		Name: s.Service, Type: "applied", Status: ObjectSucceeded,
		Versions: []ObjectVersion{{Version: i.Target.FullVersion, Active: true}},
	}}}, now)
	i.Fresh = true
}

// runtime of a channel; the zero value when the channel is not declared.
func (s *State) runtime(channel string) RuntimeSpec {
	c, declared := s.Spec.Channel(channel)
	if !declared {
		return RuntimeSpec{}
	}
	return s.Spec.Runtimes[c.Runtime]
}

// backoff before the next apply after n failed ones: doubling, bounded.
func backoff(t RuntimeTiming, n int) time.Duration {
	wait := t.RetryBackoff
	for ; n > 1 && wait < t.RetryMax; n-- {
		wait *= 2
	}
	return min(wait, max(t.RetryMax, t.RetryBackoff))
}

// Looked takes in a reading. Fresh: it was taken after the last apply had ended. A reading that
// failed keeps the last good objects (C6). One about a version that is not the target's is stale.
func (s *State) Looked(channel, fullVersion string, r Reading, fresh bool, now time.Time) {
	i := s.Instances[channel]
	if i == nil || i.present() != fullVersion && s.runtime(channel).Mode == FetchExitCode {
		return
	}
	if !fresh && i.Fresh {
		return // a look that began before the last apply ended knows less than what is known
	}
	again := i.Look && !fresh
	i.look(r, now)
	i.Look, i.Fresh = again, fresh && !i.Progress.Running
}

func (i *Instance) present() string {
	if i.Target == nil {
		return ""
	}
	return i.Target.FullVersion
}

func (i *Instance) look(r Reading, now time.Time) {
	i.Look, i.LookedAt = false, now
	i.Known = r.Digest()
	if r.Err == nil {
		i.Reading, i.ErrSince = r, time.Time{}
		return
	}
	if i.Reading.Err == nil {
		i.ErrSince = now
	}
	i.Reading.Err, i.Reading.At = r.Err, r.At
}

// AskAnswered takes in what an exit-code runtime answered about a version.
func (s *State) AskAnswered(channel string, target Target, r Reading) {
	if i := s.Instance(channel); i.Asked != nil && i.Asked.Target.Same(target) {
		i.Asked = &Asked{Target: target, Reading: r}
	}
}

// Rendered takes in what a config release renders to under the version present in a channel.
func (s *State) Rendered(release, channel string, present Target) {
	if r := s.ReleaseByID(release); r != nil {
		if r.Present == nil {
			r.Present = map[string]Target{}
		}
		r.Present[channel] = present
	}
}
