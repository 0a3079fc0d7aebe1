package decide

import (
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file evaluates whether the current targets of a channel are reached or have failed.

// judged is the evaluation of the targets of a channel.
type judged struct {
	holder    *state.Release // in progress here, or nil
	converged []*instance
	unstable  []*instance // no longer stable in the post-deployment window
	ready     []*instance // stable at the release in progress; the window has not passed yet
}

func (v *view) judgeTargets() {
	j := judged{holder: v.release(v.turn.Holder)}
	broken := v.deploymentBroken(j.holder)
	for n := range v.insts {
		if i := &v.insts[n]; !v.changed && i.Delivery.Target != nil && !i.Delivery.Apply.Running {
			v.judgeTarget(&j, i, broken)
		}
	}
	if v.changed {
		return
	}
	switch {
	case len(j.unstable) > 0:
		v.change(state.Change{Kind: state.ChangeUnstable, Release: j.id(), Instances: ids(j.unstable), Cause: v.of(j.unstable[0], j.unstable[0].current.Reason)})
		return
	case len(j.ready) > 0 && v.placed(j.holder, j.ready):
		v.soak(j.holder, j.ready)
	case len(j.converged) > 0:
		v.converge(j.holder, j.converged, v.rolls(j.holder) && v.spec.Soaks())
	case j.holder != nil && v.allThere(j.holder):
		v.arrive(j.holder)
	}
	if !v.changed {
		v.takeBack()
	}
}

// id of the release in progress, or "".
func (j *judged) id() string {
	if j.holder == nil {
		return ""
	}
	return j.holder.ID
}

// of is the release that the result of an instance is attributed to: the one in progress. An instance that it has not reached yet,
// because it goes in steps or a pause holds the instance, may fail at its previous target.
func (j *judged) of(i *instance) *state.Release {
	if j.holder != nil && !i.broughtBy(j.holder) {
		return nil
	}
	return j.holder
}

func (v *view) judgeTarget(j *judged, i *instance, broken string) {
	d := &i.Delivery
	of := j.of(i)
	switch {
	case d.Failure != "" && of != nil:
		v.change(state.Change{Kind: state.ChangeFail, Release: of.ID, Instances: []entities.InstanceID{i.ID}, Cause: v.of(i, d.Failure), Failure: d.Failure})
	case d.Failure != "", d.Reported: // a reported target must enter again first
	case !d.Converged:
		v.judgeMoving(j, i, broken)
	default:
		v.judgeArrived(j, i, broken)
	}
}

// judgeArrived evaluates a converged instance: drift is repaired, and it may still fail while a release is in progress.
func (v *view) judgeArrived(j *judged, i *instance, broken string) {
	switch {
	case broken != "" && v.rolls(j.holder): // between two steps
		v.failAll(j.holder, broken)
	case i.current.Stable && i.Delivery.Apply.Attempts > 0:
		v.judgeRepair(i)
	case i.current.Failed == "" && v.fellOver(j.holder, i), v.fellOver(v.aside(), i):
		j.unstable = append(j.unstable, i)
	case v.fleet() && j.holder != nil && i.broughtBy(j.holder) && i.Observed.Fresh && i.current.Known && i.current.Failed != "":
		v.fail(j.holder, i, i.current.Failed) // it had converged, but the release has not succeeded yet
	}
}

// judgeMoving evaluates a target that has not converged: its objects become stable, the post-deployment window passes, or something
// fails.
func (v *view) judgeMoving(j *judged, i *instance, broken string) {
	stable := i.current.Stable && (!i.Delivery.Reapply || i.Delivery.Apply.OK || v.reports())
	switch {
	case broken != "":
		v.failAll(j.holder, broken)
	case stable && j.holder != nil && v.spec.Soaks() && !v.rolls(j.holder):
		j.ready = append(j.ready, i)
	case stable:
		j.converged = append(j.converged, i)
	case !v.soaks(j, i):
		v.judgeProgress(j.of(i), i)
	case !i.current.Known: // the window continues; it does not end before the state is known
		v.soaking = append(v.soaking, "soaking")
	case i.Observed.Fresh && i.current.Failed != "":
		v.fail(j.of(i), i, i.current.Failed)
	default:
		j.unstable = append(j.unstable, i)
	}
}

// soaks reports whether an instance is in the post-deployment window of its channel and the release in the window concerns it.
func (v *view) soaks(j *judged, i *instance) bool {
	return !v.remembered().StableSince.IsZero() && (j.holder == nil || j.of(i) != nil)
}

// converge records which instances have converged. With the last of them the release has succeeded in the channel, unless all must soak
// together then.
func (v *view) converge(r *state.Release, insts []*instance, toSoak bool) {
	c := state.Change{Kind: state.ChangeConverged, Instances: ids(insts), Target: insts[0].Delivery.Target}
	if c.Partial = toSoak || !v.placed(r, insts); !c.Partial && r != nil {
		c.Release, c.Cause = r.ID, v.evidence(r)
	}
	v.change(c)
}

// mostEvidence bounds, in bytes, the stored text of comparisons with a release.
const mostEvidence = 2000

// evidence is the result of comparisons with a control group for a release that succeeds. It stays readable as long as the audit trail
// (D26).
func (v *view) evidence(r *state.Release) string {
	var say []string
	for n := range v.spec.Checks {
		c := &v.spec.Checks[n]
		if c.Kind != entities.CheckCompare {
			continue
		}
		if st := v.remembered().Reading(v.s.Evaluation(v.spec, c, r)); st != nil && r.Bypassed(v.spec.Name, c.ID) == nil {
			say = append(say, c.ID+" "+string(st.Verdict)+entities.Because(st.Reason))
		}
	}
	return entities.Clip(strings.Join(say, "; "), mostEvidence)
}

// allThere reports whether a release in progress has nothing left to do: the instances that were still in progress are not declared any
// more, or their configuration was reverted.
func (v *view) allThere(r *state.Release) bool {
	for n := range v.insts {
		i := &v.insts[n]
		d := &i.Delivery
		if v.rolls(r) && i.IsAt(r) && !i.current.Stable {
			return false
		}
		if d.Apply.Running || i.comes(r) || r.Concerns(i.ID) && !v.follows(i, r) {
			return false
		}
	}
	return true
}

// arrive completes a release that is in all instances of the channel that it concerns.
func (v *view) arrive(r *state.Release) {
	var at []*instance
	for n := range v.insts {
		if i := &v.insts[n]; i.IsAt(r) && i.Delivery.Rollback == nil { // an instance that went back has arrived as a rollback
			at = append(at, i)
		}
	}
	switch {
	case len(at) == 0 && v.goesAway(r): // it has run nowhere here: it continues when the instances are back
	case len(at) == 0:
		v.change(state.Change{Kind: state.ChangeUnchanged, Release: r.ID, Cause: "its changes are no longer declared here"})
	case v.spec.Soaks():
		v.soak(r, at)
	default:
		v.converge(r, at, false)
	}
}

// placed reports whether all instances of the channel have converged or are among the given ones, each where the release in progress, if
// any, wants it.
func (v *view) placed(r *state.Release, insts []*instance) bool {
	now := map[entities.InstanceID]bool{}
	for _, i := range insts {
		now[i.ID] = true
	}
	for n := range v.insts {
		i := &v.insts[n]
		switch {
		case r != nil && r.Concerns(i.ID) && !v.follows(i, r):
			return false
		case i.comes(r) && !now[i.ID]:
			return false
		}
	}
	return true
}

// comes reports whether a target is still to arrive. A cancelled, failed or only reported target is not: a release in progress that has
// nothing for the instance does not wait for it.
func (i *instance) comes(r *state.Release) bool {
	d := &i.Delivery
	held := d.Cancelled != "" || d.Failure != "" || d.Reported
	return d.Target != nil && !d.Converged && !(held && r != nil && !r.Concerns(i.ID))
}

// fail ends the attempts at a target permanently. The release is nil if none is in progress for the target.
func (v *view) fail(r *state.Release, i *instance, cause string) {
	c := state.Change{Kind: state.ChangeFail, Instances: []entities.InstanceID{i.ID}, Cause: v.of(i, cause), Failure: cause}
	if r != nil {
		c.Release = r.ID
	}
	v.change(c)
}

// failAll fails the release in progress in every instance that is at it.
func (v *view) failAll(r *state.Release, cause string) {
	c := state.Change{Kind: state.ChangeFail, Release: r.ID, Cause: cause}
	for n := range v.insts {
		if i := &v.insts[n]; !v.fleet() || i.IsAt(r) {
			c.Instances = append(c.Instances, i.ID)
		}
	}
	v.change(c)
}

// judgeRepair resets the repair attempts once the instance has stayed stable for the maximum backoff. Until then each repair waits longer
// than the one before: if another tool keeps reverting changes, neither side floods the runtime.
func (v *view) judgeRepair(i *instance) {
	calm := i.Delivery.Apply.Ended.Add(i.runtime.Timing.RetryMax)
	if v.now.Before(calm) {
		v.due(calm)
		return
	}
	v.note(state.Change{Kind: state.ChangeRepaired, Instances: []entities.InstanceID{i.ID}, Target: i.Delivery.Target})
	v.changed = v.changed || !v.fleet()
}

// judgeProgress fails a target whose objects report a failure, or that is not stable by its deadline.
func (v *view) judgeProgress(r *state.Release, i *instance) {
	a := &i.Delivery.Apply
	if a.OK && i.Observed.Fresh && i.current.Known && i.current.Failed != "" {
		v.fail(r, i, i.current.Failed)
		return
	}
	if a.First.IsZero() || i.standsStill() || i.stopped() {
		return
	}
	deadline := a.First.Add(v.spec.ProgressDeadline)
	if v.now.Before(deadline) {
		v.due(deadline)
		return
	}
	e := i.Observed.Reading.Err
	if v.lastReading(i, deadline) || e != nil && e.Throttled {
		return
	}
	why := i.current.Reason
	switch {
	case a.Err != "":
		why = a.Err
	case e != nil:
		why = e.Message
	case why == "":
		why = "no reading yet"
	}
	v.fail(r, i, fmt.Sprintf("not stable within %s: %s", v.spec.ProgressDeadline, why))
}

// lastReading reports whether a last reading is outstanding: nothing was read since the deadline passed (the engine may have been
// stopped), so a reading comes first. A reading that hangs does not delay the deadline further.
func (v *view) lastReading(i *instance, deadline time.Time) bool {
	if !i.runtime.Observable || !i.Observed.At.Before(deadline) {
		return false
	}
	asked := i.Delivery.Apply.Overdue
	if asked.IsZero() {
		v.note(state.Change{Kind: state.ChangeRead, Instances: []entities.InstanceID{i.ID}, Cause: "the progress deadline has passed"})
		v.changed = v.changed || !v.fleet()
		return true
	}
	until := asked.Add(2*i.runtime.Timing.FetchTimeout + time.Minute)
	if v.now.Before(until) {
		v.due(until)
		return true
	}
	return false
}

// takeBack decides what follows from targets that failed permanently here: a rollback to the last good ones, unless rollback is disabled,
// there are none, or a pin or a pause holds them (A22). It evaluates the state, not the event: a rollback that a pause held follows when
// the pause ends. A rollback that fails is FAILED_ROLLBACK, and nothing follows automatically.
func (v *view) takeBack() {
	for n := range v.insts {
		d := &v.insts[n].Delivery
		if d.Failure != "" && d.Rollback != nil && d.Rollback.Failed.IsZero() && !d.Apply.Running {
			v.fail(nil, &v.insts[n], d.Failure)
			return
		}
	}
	if v.pin != nil || v.spec.NoRollback || v.reports() || v.mode.holds(true) {
		return
	}
	if v.giveWay() {
		return
	}
	for n := range v.insts {
		i := &v.insts[n]
		r, why := v.failedHere(i)
		if r != nil && r != v.aside() && v.rollBack(r, why, false) { // the release that passes it is rolled back first
			return
		}
	}
}

// failedHere is the release that an instance is to be rolled back from, and why; or nil.
func (v *view) failedHere(i *instance) (*state.Release, string) {
	d := &i.Delivery
	if d.Target == nil || d.Rollback != nil || d.Restarting || d.ComesBack || i.paused {
		return nil, "" // a failed restart, or a failed return after a drain, is no evidence against the version
	}
	if d.Failure != "" && !d.Apply.Running {
		r := v.s.Brought(i.Instance)
		if v.fleet() && r != nil && r.Phases[v.spec.Name].Phase == maestro.Failed {
			return r, r.Phases[v.spec.Name].Reason // it names the instance, if the failure is of one
		}
		return r, v.of(i, d.Failure)
	}
	if !v.fleet() || v.turn.Holder != maestro.None {
		return nil, ""
	}
	return v.takenElsewhere(i)
}

// takenElsewhere is the release of an instance, and why it was rolled back elsewhere in the channel while a pause held this one; or nil.
// If a person rolls back through the gates, the others do not follow.
func (v *view) takenElsewhere(i *instance) (*state.Release, string) {
	r := v.s.Brought(i.Instance)
	if r == nil || r.Phases[v.spec.Name].Phase != maestro.RolledBack {
		return nil, ""
	}
	p := r.Phases[v.spec.Name]
	if p.CalledOff && v.s.Spec.AskGates {
		return nil, ""
	}
	return r, p.Reason
}

// rollBack rolls a release back in all instances where it is the target and a good version precedes it. again: it enters again later.
func (v *view) rollBack(r *state.Release, cause string, again bool) bool {
	c := state.Change{Kind: state.ChangeRollback, Release: r.ID, Cause: cause, Again: again}
	for n := range v.insts {
		i := &v.insts[n]
		if i.paused || i.Delivery.Rollback != nil || !i.IsAt(r) {
			continue
		}
		if back, _ := v.s.ReturnsTo(i.Instance); back != nil {
			c.Moves = append(c.Moves, state.Move{Instance: i.ID, Target: *back})
		}
	}
	if len(c.Moves) == 0 {
		return false
	}
	v.change(c)
	return true
}

// moveToPin moves instances to the version that their channel is pinned to, or back after unpin. A pause holds both.
func (v *view) moveToPin() {
	if v.changed {
		return
	}
	c := state.Change{Kind: state.ChangePin, Cause: "unpinned"}
	if v.pin != nil {
		c.Cause = v.pin.Text()
	}
	for n := range v.insts {
		i := &v.insts[n]
		to := v.pinMoves(i)
		if to != nil {
			if why := v.s.Barred(i.Instance, *to); why != "" {
				v.after = append(v.after, v.of(i, why+"; "+v.s.PassFloor(i.Instance)))
				continue
			}
		}
		if to != nil {
			c.Moves = append(c.Moves, state.Move{Instance: i.ID, Target: *to})
		}
	}
	if len(c.Moves) == 0 {
		return
	}
	if holder := v.release(v.turn.Holder); v.pin != nil && holder != nil {
		c.Release = holder.ID
	}
	v.change(c)
}

// pinMoves is the target that the pin, or its end, sets for an instance; nil: it stays.
func (v *view) pinMoves(i *instance) *entities.Target {
	d := &i.Delivery
	switch {
	case d.Target == nil || i.paused:
	case v.pin != nil:
		if t := v.pin.Target(i.ID); t != nil && !d.Target.Same(*t) {
			return t
		}
	case d.BeforePin != nil:
		return &d.BeforePin.Target
	}
	return nil
}

// of prefixes a cause with its instance, if there are several.
func (v *view) of(i *instance, cause string) string {
	if v.fleet() && cause != "" {
		return i.ID.Name + ": " + cause
	}
	return cause
}

func ids(insts []*instance) []entities.InstanceID {
	out := make([]entities.InstanceID, len(insts))
	for n, i := range insts {
		out[n] = i.ID
	}
	return out
}
