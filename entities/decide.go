package entities

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// Mode restricts what a decision may start.
type Mode struct {
	// Drain: start no new work; what is running is left to end (before continue-as-new).
	Drain bool
}

// Decide is the convergence decision (DESIGN section 4): what each instance should be at, whether
// it may move now, and what it is doing. It edits nothing; Commit carries its changes into the
// state. One pass looks at each channel once; a change may make another possible, so Settle
// repeats until nothing changes.
func Decide(s *State, now time.Time, mode Mode) *Decision {
	both := new(struct { // one allocation: this runs for every service at every event
		d Decision
		v view // one for all channels: nothing keeps it
	})
	d, v := &both.d, &both.v
	if s.Spec == nil {
		return d
	}
	d.Channels = make([]ChannelDecision, 0, len(s.Spec.Channels))
	turns, declared := turnsOf(s), 0
	for i := range s.Spec.Channels {
		c := &s.Spec.Channels[i]
		inst := s.Instances[c.Name]
		if inst == nil {
			inst = &Instance{Channel: c.Name}
		} else {
			declared++
		}
		*v = view{s: s, d: d, spec: c, inst: inst, now: now, mode: mode, runtime: s.Spec.Runtimes[c.Runtime]}
		if turns != nil {
			v.turn = turns[i]
		} else {
			v.turn = maestro.Turn{Holder: maestro.None, Newest: maestro.None, Next: maestro.None}
		}
		v.decide()
	}
	if declared < len(s.Instances) {
		d.orphans(s, now, mode)
	}
	return d
}

// turnsOf asks maestro, unless every release is over and there is no turn to take.
func turnsOf(s *State) []maestro.Turn {
	open := false
	for _, r := range s.Releases {
		if !r.Over() {
			open = true
			break
		}
	}
	if !open {
		return nil
	}
	channels := make([]maestro.Channel, len(s.Spec.Channels))
	for i, c := range s.Spec.Channels {
		channels[i].Name = c.Name
		for _, cond := range c.Conditions {
			channels[i].After = append(channels[i].After, cond.Channels...)
			for range cond.Channels {
				channels[i].By = append(channels[i].By, cond.ID)
			}
		}
		if inst := s.Instances[c.Name]; inst != nil && inst.wayBackFailed() {
			channels[i].Held = func(n int) bool { return s.Releases[n].At.Before(inst.Rollback.Failed) }
		} else if c := &s.Spec.Channels[i]; len(c.Checks)+len(c.Extensions)+len(c.Conditions) > 0 {
			channels[i].Held = func(n int) bool { return s.Releases[n].blocked(c) }
		}
	}
	return maestro.Arrange(s.Releases, channels)
}

// orphans lists instances whose channel is no longer declared.
func (d *Decision) orphans(s *State, now time.Time, mode Mode) {
	orphaned := false
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for name := range s.Instances {
		orphaned = orphaned || !s.declared(name)
	}
	if !orphaned {
		return // as nearly always: no need to sort
	}
	for _, name := range SortedKeys(s.Instances) {
		if !s.declared(name) {
			d.orphan(s, name, now, mode)
		}
	}
}

// view is one channel at the moment of deciding.
type view struct {
	s       *State
	d       *Decision
	spec    *ChannelSpec
	runtime RuntimeSpec
	inst    *Instance
	turn    maestro.Turn
	now     time.Time
	mode    Mode
	out     ChannelDecision
	facts   Facts
	changed bool     // this pass changes the channel: what follows is for the next pass
	told    []string // how far the post-deployment window is, for people
}

func (v *view) decide() {
	v.out.Channel = v.spec.Name
	pause, paused := v.s.PauseOf(v.spec.Name)
	v.facts.Paused = paused
	v.skipOvertaken()
	v.deadlineClock()
	v.moveToPin()
	v.judgeTarget()
	v.admitNext()
	v.act()
	v.stopAsking()
	v.returnLease()
	v.conclude(pause)
	v.d.wakeBy(v.out.Due)
	v.d.Channels = append(v.d.Channels, v.out)
}

func (v *view) change(c Change) {
	c.Channel = v.spec.Name
	v.d.Changes = append(v.d.Changes, c)
	v.changed = true
}

func (v *view) due(t time.Time) {
	if v.out.Due.IsZero() || t.Before(v.out.Due) {
		v.out.Due = t
	}
}

func (v *view) reason(format string, args ...any) {
	v.out.Reasons = append(v.out.Reasons, fmt.Sprintf(format, args...))
}

func (v *view) release(index int) *Release {
	if index == maestro.None {
		return nil
	}
	return v.s.Releases[index]
}

// skipOvertaken ends pending releases that are older than what entered here.
func (v *view) skipOvertaken() {
	for _, i := range v.turn.Skips {
		v.change(Change{
			Kind: ChangeSkip, Release: v.s.Releases[i].ID,
			Cause: v.release(v.turn.Newest).FullVersion + " entered instead",
		})
	}
	v.changed = false // a skip is of another release: it does not hold this pass
}

// deadlineClock stops the progress deadline while paused (A23).
func (v *view) deadlineClock() {
	moving := v.inst.Target != nil && !v.inst.Converged && !v.inst.Progress.First.IsZero()
	switch {
	case v.standsStill() && moving && v.inst.PausedAt.IsZero():
		v.d.Changes = append(v.d.Changes, Change{Kind: ChangeFreeze, Channel: v.spec.Name})
	case !v.standsStill() && !v.inst.PausedAt.IsZero():
		v.d.Changes = append(v.d.Changes, Change{Kind: ChangeThaw, Channel: v.spec.Name})
		v.changed = true // the clock is wrong until then
	}
}

// judgeTarget sees whether the present target is reached or has failed.
func (v *view) judgeTarget() {
	v.out.Current = ServiceInstance{v.inst}.Fetch(v.inst.Target)
	if v.inst.Target == nil {
		return
	}
	holder := v.release(v.turn.Holder)
	broken := v.deploymentBroken(holder)
	switch {
	case v.inst.Progress.Running || v.changed:
	case v.inst.Failure != "" && holder != nil:
		v.change(Change{Kind: ChangeFail, Release: holder.ID, Cause: v.inst.Failure})
	case v.inst.Failure != "":
		v.judgeFailed()
	case !v.inst.Converged:
		v.judgeMoving(holder, broken)
	case v.out.Current.Stable && v.inst.Progress.Attempts > 0:
		v.judgeRepair()
	}
}

// judgeRepair forgets repairs once the instance has stayed as it should be for as long as they may
// be apart. Until then the next one waits longer than the last: where somebody else keeps changing
// things back, neither side storms the runtime.
func (v *view) judgeRepair() {
	calm := v.inst.Progress.Ended.Add(v.runtime.Timing.RetryMax)
	if v.now.Before(calm) {
		v.due(calm)
		return
	}
	v.change(Change{Kind: ChangeRepaired, Target: v.inst.Target})
}

// judgeProgress fails a target whose objects say so, or that is not stable by its deadline.
func (v *view) judgeProgress(release string) {
	if v.inst.Progress.OK && v.inst.Fresh && v.out.Current.Known && v.out.Current.Failed != "" {
		v.change(Change{Kind: ChangeFail, Release: release, Cause: v.out.Current.Failed})
		return
	}
	if v.inst.Progress.First.IsZero() || v.standsStill() {
		return
	}
	deadline := v.inst.Progress.First.Add(v.spec.ProgressDeadline)
	if v.now.Before(deadline) {
		v.due(deadline)
		return
	}
	if v.lastLook(deadline) {
		return
	}
	why := v.out.Current.Reason
	switch e := v.inst.Reading.Err; {
	case v.inst.Progress.Err != "":
		why = v.inst.Progress.Err
	case e != nil:
		why = e.Message
	case why == "":
		why = "no reading yet"
	}
	v.change(Change{
		Kind: ChangeFail, Release: release,
		Cause: fmt.Sprintf("not stable within %s: %s", v.spec.ProgressDeadline, why),
	})
}

// lastLook: nobody looked since the deadline passed (the engine may have been away), so someone
// looks first. A look that hangs does not hold the deadline up.
func (v *view) lastLook(deadline time.Time) bool {
	if !v.runtime.Looks || !v.inst.LookedAt.Before(deadline) {
		return false
	}
	asked := v.inst.Progress.Overdue
	if asked.IsZero() {
		v.change(Change{Kind: ChangeLook, Cause: "the progress deadline has passed"})
		return true
	}
	until := asked.Add(2*v.runtime.Timing.FetchTimeout + time.Minute)
	if v.now.Before(until) {
		v.due(until)
		return true
	}
	return false
}

// conclude reads the status off the facts and writes down the reasons.
func (v *view) conclude(pause Pause) {
	f := &v.facts
	f.Failed = v.inst.Failure != ""
	if b := v.inst.Rollback; b != nil {
		f.RollbackFailed = !b.Failed.IsZero()
		f.RolledBack = v.inst.Converged
		f.RollingBack = !f.RollbackFailed && !f.RolledBack
	}
	f.Unknown = v.unknown()
	f.Converging = v.inst.Target != nil && !v.inst.Converged && v.inst.ApplyAsked.IsZero()
	f.Degraded = v.inst.Converged && v.out.Current.Known && !v.out.Current.Stable
	for _, j := range v.out.Gates {
		f.Blocked = f.Blocked || j.Verdict == Fail
		f.Waits = f.Waits || j.Verdict != Pass
	}
	v.out.Status = StatusOf(*f)
	v.explain(pause)
}

// unknown: nothing is known of what runs here, though it could be.
func (v *view) unknown() bool {
	if !v.runtime.looksAt(v.inst) {
		return false
	}
	return v.inst.Reading.Err != nil || v.inst.Known == ""
}

// explain gives the reasons of every status but CONVERGED.
func (v *view) explain(pause Pause) {
	switch v.out.Status {
	case StatusPaused:
		v.reason("paused by %s%s", pause.By, because(pause.Reason))
	case StatusFailedRollback, StatusRollingBack, StatusRolledBack:
		v.explainRollback()
	case StatusFailed:
		v.reason("%s failed: %s", v.inst.Target.FullVersion, v.inst.Failure)
		if p, pinned := v.s.PinOf(v.spec.Name); pinned {
			v.reason("%s", p.text())
		}
		if v.out.Current.Stable {
			v.reason("its objects are stable now; retry accepts it")
		}
	case StatusUnknown:
		if e := v.inst.Reading.Err; e != nil {
			v.reason("%s: %s", e.Code, e.Message)
		} else {
			v.reason("no reading yet")
		}
		v.explainApply()
	case StatusConverging, StatusDegraded:
		v.explainMoving()
	case StatusBlocked, StatusPreconditions, StatusManualApproval:
		for _, j := range v.out.Gates {
			if j.Verdict != Pass && !j.Later() {
				v.reason("%s", j.line())
			}
		}
	}
	if v.out.Status == StatusPaused && v.inst.Failure != "" {
		v.reason("%s failed: %s", v.inst.Target.FullVersion, v.inst.Failure)
	}
}

func (v *view) explainApply() {
	a := v.inst.Progress
	switch {
	case a.Running && a.Attempts > 0:
		v.reason("applying %s, attempt %d", v.inst.Target.FullVersion, a.Attempts+1)
	case a.Running:
		v.reason("applying %s", v.inst.Target.FullVersion)
	case a.Err != "" && a.Attempts == 0:
		v.reason("the apply cannot begin: %s", a.Err)
	case a.Err != "":
		v.reason("apply failed %s: %s", times(a.Attempts), a.Err)
	}
}

func (v *view) explainMoving() {
	if len(v.told) > 0 {
		v.out.Reasons = append(v.out.Reasons, v.told...)
		return
	}
	a := v.inst.Progress
	v.explainApply()
	if v.out.Current.Reason != "" && (!a.Running || a.OK) {
		v.reason("%s", v.out.Current.Reason)
	}
	if len(v.out.Reasons) == 0 {
		v.reason("%s is to be applied", v.inst.Target.FullVersion)
	}
	if v.out.Status == StatusDegraded && v.spec.Drift == DriftObserve {
		v.reason("not repaired: drift is only observed here")
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
