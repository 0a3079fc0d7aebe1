package entities

import "time"

// act starts an apply when the instance needs one and nothing holds it. Promotion gates do not
// hold the retries of a started target; a pause does, and so do a lease and a person's word where
// the runtime asks for them (C10). A repair asks the checks that say so; a way back asks nothing
// but a lease.
func (v *view) act() {
	i := v.inst
	if !v.mayAct() {
		return
	}
	op := workOn(ServiceInstance{i}, i.Target, v.out.Current)
	timeout := v.applyTimeout()
	if op == nil || timeout <= 0 || v.repairHeld() || v.tooEarly() || v.applyUnapproved() || !v.takeLease(op.Target) {
		return
	}
	v.d.Applies = append(v.d.Applies, ApplyOp{
		Channel: v.spec.Name, Target: op.Target,
		Attempt: i.Progress.Attempts + 1, Timeout: timeout, Cause: op.Cause,
	})
}

// applyTimeout is how long an apply may take that begins now. None is left once the progress deadline
// has passed: then it only waits for a last look, and holds nothing meanwhile.
func (v *view) applyTimeout() time.Duration {
	timeout, first := v.runtime.Timing.ApplyTimeout, v.inst.Progress.First
	switch {
	case v.inst.Converged:
		return timeout
	case first.IsZero():
		return min(timeout, v.spec.ProgressDeadline)
	case !v.inst.PausedAt.IsZero(): // the clock stands still since then
		return min(timeout, first.Add(v.spec.ProgressDeadline).Sub(v.inst.PausedAt))
	}
	return min(timeout, first.Add(v.spec.ProgressDeadline).Sub(v.now))
}

// mayAct: nothing forbids an apply from the outset.
func (v *view) mayAct() bool {
	i := v.inst
	return !v.changed && !v.facts.Paused && !v.mode.Drain && i.Target != nil && !i.Progress.Running && i.Failure == ""
}

// tooEarly holds an apply back: for the grace period after a successful one that is not visible
// yet, for the backoff after a failed one, and, for repairs, where drift is only observed.
func (v *view) tooEarly() bool {
	a := v.inst.Progress
	if v.inst.Converged && (v.spec.Drift == DriftObserve || !v.inst.Fresh) {
		return true
	}
	until := a.Next
	if !v.inst.Converged && a.OK {
		until = a.Ended.Add(v.runtime.Timing.GracePeriod)
	}
	if v.now.Before(until) {
		v.due(until)
		return true
	}
	return false
}

// standsStill: the progress deadline does not run, because of a pause, or because the next attempt
// waits for a lease or for a person's word (A23).
func (v *view) standsStill() bool {
	waits := v.inst.Lease != nil && v.inst.Lease.Granted.IsZero() || !v.inst.ApplyAsked.IsZero()
	return v.facts.Paused || waits
}

// applyCleared uses up what was needed to begin an apply.
func (s *State) applyCleared(op ApplyOp) {
	i := s.Instance(op.Channel)
	if i.Lease != nil {
		i.Lease.Used = true
	}
	if i.approves(op.Target.FullVersion) {
		i.ApplyApproved = nil
	}
	i.ApplyAsked = time.Time{}
}

// wayBack: what is being done here is a rollback, which no gate holds.
func (v *view) wayBack() bool { return v.inst.Rollback != nil && !v.inst.Converged }

// wants is what the gates of one channel want now, beyond the work that a decision starts. Channels
// that want nothing have none.
type wants struct {
	lease    bool     // an apply is to start now, or would if it had one
	approval bool     // an apply of the present target waits for a person's word
	checks   []string // ids of checks that are to be judged now
	release  string   // that they are asked about
	repairs  []string // ids of checks asked about a repair
}

func (v *view) wants() *wants {
	if v.out.wants == nil {
		v.out.wants = &wants{}
	}
	return v.out.wants
}
