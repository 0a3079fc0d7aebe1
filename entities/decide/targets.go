package decide

import (
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file evaluates whether the current targets of a channel are reached or have failed.

// targetResults is the evaluation of the targets of a channel.
type targetResults struct {
	holder    *state.Release // in progress here, or nil
	converged []*instance
	unstable  []*instance // no longer stable in the post-deployment window
	ready     []*instance // stable at the release in progress; the window has not passed yet
}

func (v *view) judgeTargets() {
	j := targetResults{holder: v.release(v.slot.Holder)}
	checkFailure := v.failedDeploymentCheck(j.holder)
	for n := range v.insts {
		if i := &v.insts[n]; !v.changed && i.Delivery.Target != nil && !i.Delivery.Apply.Running {
			v.judgeTarget(&j, i, checkFailure)
		}
	}
	if v.changed {
		return
	}
	switch {
	case len(j.unstable) > 0:
		v.change(state.Change{Kind: state.ChangeUnstable, Release: j.id(), Instances: ids(j.unstable), Cause: v.prefixInstance(j.unstable[0], j.unstable[0].current.Reason)})
		return
	case len(j.ready) > 0 && v.allPlaced(j.holder, j.ready):
		v.soak(j.holder, j.ready)
	case len(j.converged) > 0:
		v.recordConverged(j.holder, j.converged, v.isRollout(j.holder) && v.spec.HasSoak())
	case j.holder != nil && v.allArrived(j.holder):
		v.completeRelease(j.holder)
	}
	if !v.changed {
		v.decideRollbacks()
	}
}

// id of the release in progress, or "".
func (j *targetResults) id() string {
	if j.holder == nil {
		return ""
	}
	return j.holder.ID
}

// releaseOf is the release that the result of an instance is attributed to: the one in progress. An instance that it has not reached yet,
// because it goes in steps or a pause holds the instance, may fail at its previous target.
func (j *targetResults) releaseOf(i *instance) *state.Release {
	if j.holder != nil && !i.deliveredBy(j.holder) {
		return nil
	}
	return j.holder
}

func (v *view) judgeTarget(j *targetResults, i *instance, checkFailure string) {
	d := &i.Delivery
	of := j.releaseOf(i)
	switch {
	case d.Failure != "" && of != nil:
		v.change(state.Change{Kind: state.ChangeFail, Release: of.ID, Instances: []entities.InstanceID{i.ID}, Cause: v.prefixInstance(i, d.Failure), Failure: d.Failure})
	case d.Failure != "":
		v.judgeMaintained(j, i)
	case d.ReportedOnly: // it must enter again first
	case !d.Converged:
		v.judgeMoving(j, i, checkFailure)
	default:
		v.judgeConverged(j, i, checkFailure)
	}
}

// judgeConverged evaluates a converged instance: drift is repaired, and it may still fail while a release is in progress.
func (v *view) judgeConverged(j *targetResults, i *instance, checkFailure string) {
	switch {
	case checkFailure != "" && v.isRollout(j.holder): // between two steps
		v.failAll(j.holder, checkFailure)
	case i.current.Stable && i.Delivery.Apply.Attempts > 0:
		v.judgeRepair(i)
	case i.current.Failed == "" && v.becameUnhealthy(j.holder, i), v.becameUnhealthy(v.asideRelease(), i):
		j.unstable = append(j.unstable, i)
	case v.fleet() && j.holder != nil && i.deliveredBy(j.holder) && i.Observed.Fresh && i.current.Known && i.current.Failed != "":
		v.fail(j.holder, i, i.current.Failed) // it had converged, but the release has not succeeded yet
	}
}

// judgeMoving evaluates a target that has not converged: its objects become stable, the post-deployment window passes, or something
// fails.
func (v *view) judgeMoving(j *targetResults, i *instance, checkFailure string) {
	stable := i.current.Stable && (!i.Delivery.Reapply || i.Delivery.Apply.OK || v.isReportOnly())
	switch {
	case checkFailure != "":
		v.failAll(j.holder, checkFailure)
	case stable && j.holder != nil && v.spec.HasSoak() && !v.isRollout(j.holder):
		j.ready = append(j.ready, i)
	case stable:
		j.converged = append(j.converged, i)
	case !v.inWindow(j, i):
		v.judgeProgress(j.releaseOf(i), i)
	case !i.current.Known: // the window continues; it does not end before the state is known
		v.soakTexts = append(v.soakTexts, "soaking")
	case i.Observed.Fresh && i.current.Failed != "":
		v.fail(j.releaseOf(i), i, i.current.Failed)
	default:
		j.unstable = append(j.unstable, i)
	}
}

// inWindow reports whether an instance is in the post-deployment window of its channel and the release in the window concerns it.
func (v *view) inWindow(j *targetResults, i *instance) bool {
	return !v.channelState().StableSince.IsZero() && (j.holder == nil || j.releaseOf(i) != nil)
}

// recordConverged records which instances have converged. With the last of them the release has succeeded in the channel, unless all must
// soak together then.
func (v *view) recordConverged(r *state.Release, insts []*instance, toSoak bool) {
	c := state.Change{Kind: state.ChangeConverged, Instances: ids(insts), Target: insts[0].Delivery.Target}
	if c.Partial = toSoak || !v.allPlaced(r, insts); !c.Partial && r != nil {
		c.Release, c.Cause = r.ID, v.evidence(r)
	}
	v.change(c)
}

// maxEvidence bounds, in bytes, the stored text of comparisons with a release.
const maxEvidence = 2000

// evidence is the result of comparisons with a control group for a release that succeeds. It stays readable as long as the audit trail
// (D26).
func (v *view) evidence(r *state.Release) string {
	var texts []string
	for n := range v.spec.Checks {
		c := &v.spec.Checks[n]
		if c.Kind != entities.CheckCompare {
			continue
		}
		if st := v.channelState().LastReading(v.s.Evaluation(v.spec, c, r)); st != nil && r.BypassOf(v.spec.Name, c.ID) == nil {
			texts = append(texts, c.ID+" "+string(st.Verdict)+entities.Because(st.Reason))
		}
	}
	return entities.ClipMessage(strings.Join(texts, "; "), maxEvidence)
}

// allArrived reports whether a release in progress has nothing left to do: the instances that were still in progress are not declared any
// more, or their configuration was reverted.
func (v *view) allArrived(r *state.Release) bool {
	for n := range v.insts {
		i := &v.insts[n]
		d := &i.Delivery
		if v.isRollout(r) && i.IsAt(r) && !i.current.Stable {
			return false
		}
		if d.Apply.Running || i.isPending(r) || r.HasPayload(i.ID) && !v.isSatisfied(i, r) {
			return false
		}
	}
	return true
}

// completeRelease completes a release that is in all instances of the channel that it concerns.
func (v *view) completeRelease(r *state.Release) {
	var at []*instance
	for n := range v.insts {
		if i := &v.insts[n]; i.IsAt(r) && i.Delivery.Rollback == nil { // an instance that went back has arrived as a rollback
			at = append(at, i)
		}
	}
	switch {
	case len(at) == 0 && v.concernsDrained(r): // it has run nowhere here: it continues when the instances are back
	case len(at) == 0:
		v.change(state.Change{Kind: state.ChangeUnchanged, Release: r.ID, Cause: "its changes are no longer declared here"})
	case v.spec.HasSoak():
		v.soak(r, at)
	default:
		v.recordConverged(r, at, false)
	}
}

// allPlaced reports whether all instances of the channel have converged or are among the given ones, each where the release in progress, if
// any, wants it.
func (v *view) allPlaced(r *state.Release, insts []*instance) bool {
	now := map[entities.InstanceID]bool{}
	for _, i := range insts {
		now[i.ID] = true
	}
	for n := range v.insts {
		i := &v.insts[n]
		switch {
		case r != nil && r.HasPayload(i.ID) && !v.isSatisfied(i, r):
			return false
		case i.isPending(r) && !now[i.ID]:
			return false
		}
	}
	return true
}

// isPending reports whether a target is still to arrive. A cancelled, failed or only reported target is not: a release in progress that has
// nothing for the instance does not wait for it.
func (i *instance) isPending(r *state.Release) bool {
	d := &i.Delivery
	held := d.Cancelled != "" || d.Failure != "" || d.ReportedOnly
	return d.Target != nil && !d.Converged && !(held && r != nil && !r.HasPayload(i.ID))
}

// fail ends the attempts at a target permanently. The release is nil if none is in progress for the target.
func (v *view) fail(r *state.Release, i *instance, cause string) {
	c := state.Change{Kind: state.ChangeFail, Instances: []entities.InstanceID{i.ID}, Cause: v.prefixInstance(i, cause), Failure: cause}
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
	stableUntil := i.Delivery.Apply.Ended.Add(i.runtime.Timing.RetryMax)
	if v.now.Before(stableUntil) {
		v.due(stableUntil)
		return
	}
	v.addChange(state.Change{Kind: state.ChangeRepaired, Instances: []entities.InstanceID{i.ID}, Target: i.Delivery.Target})
	v.changed = v.changed || !v.fleet()
}

// judgeProgress fails a target whose objects report a failure, or that is not stable by its deadline.
func (v *view) judgeProgress(r *state.Release, i *instance) {
	a := &i.Delivery.Apply
	if a.OK && i.Observed.Fresh && i.current.Known && i.current.Failed != "" {
		v.fail(r, i, i.current.Failed)
		return
	}
	if a.FirstStarted.IsZero() || i.deadlineSuspended() || i.applyCancelled() {
		return
	}
	deadline := a.FirstStarted.Add(v.spec.ProgressDeadline)
	if v.now.Before(deadline) {
		v.due(deadline)
		return
	}
	if v.awaitsLastReading(i, deadline) {
		return
	}
	why := i.current.Reason
	switch e := i.Observed.Reading.Err; {
	case a.Err != "":
		why = a.Err
	case e != nil:
		why = e.Message
	case why == "":
		why = "no reading yet"
	}
	v.fail(r, i, fmt.Sprintf("not stable within %s: %s", v.spec.ProgressDeadline, why))
}

// decideRollbacks decides what follows from targets that failed permanently here: a rollback to the last good ones, unless rollback is
// disabled, there are none, or a pin or a pause holds them (A22). It evaluates the state, not the event: a rollback that a pause held
// follows when the pause ends. A rollback that fails is FAILED_ROLLBACK, and nothing follows automatically.
func (v *view) decideRollbacks() {
	for n := range v.insts {
		d := &v.insts[n].Delivery
		if d.Failure != "" && d.Rollback != nil && d.Rollback.Failed.IsZero() && !d.Apply.Running {
			v.fail(nil, &v.insts[n], d.Failure)
			return
		}
	}
	if v.pin != nil || v.spec.NoRollback || v.isReportOnly() || v.mode.blocks(true) {
		return
	}
	if v.yieldToNewer() {
		return
	}
	for n := range v.insts {
		i := &v.insts[n]
		r, why := v.failedRelease(i)
		if r != nil && r != v.asideRelease() && v.rollBack(r, why, false) { // the release that passes it is rolled back first
			return
		}
	}
}

// failedRelease is the release that an instance is to be rolled back from, and why; or nil.
func (v *view) failedRelease(i *instance) (*state.Release, string) {
	d := &i.Delivery
	if d.Target == nil || d.Rollback != nil || d.Restarting || d.ReappliedAfterDrain || i.paused {
		return nil, "" // a failed restart, or a failed return after a drain, is no evidence against the version
	}
	if d.Failure != "" && !d.Apply.Running {
		r := v.s.TargetRelease(i.Instance)
		if v.fleet() && r != nil && r.Phases[v.spec.Name].Phase == maestro.Failed {
			return r, r.Phases[v.spec.Name].Reason // it names the instance, if the failure is of one
		}
		return r, v.prefixInstance(i, d.Failure)
	}
	if !v.fleet() || v.slot.Holder != maestro.None {
		return nil, ""
	}
	return v.rolledBackElsewhere(i)
}

// rolledBackElsewhere is the release of an instance, and why it was rolled back elsewhere in the channel while a pause held this one; or
// nil. If a person rolls back through the gates, the others do not follow.
func (v *view) rolledBackElsewhere(i *instance) (*state.Release, string) {
	r := v.s.TargetRelease(i.Instance)
	if r == nil || r.Phases[v.spec.Name].Phase != maestro.RolledBack {
		return nil, ""
	}
	p := r.Phases[v.spec.Name]
	if p.Revoked && v.s.Spec.GatedRollback {
		return nil, ""
	}
	return r, p.Reason
}

// rollBack rolls a release back in all instances where it is the target and a good version precedes it. reenters: it enters again later.
func (v *view) rollBack(r *state.Release, cause string, reenters bool) bool {
	c := state.Change{Kind: state.ChangeRollback, Release: r.ID, Cause: cause, Reenters: reenters}
	for n := range v.insts {
		i := &v.insts[n]
		if i.paused || i.Delivery.Rollback != nil || !i.IsAt(r) {
			continue
		}
		if back, _ := v.s.RollbackTarget(i.Instance); back != nil {
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
		to := v.pinTarget(i)
		if to != nil {
			if why := v.s.Barred(i.Instance, *to); why != "" {
				v.extraReasons = append(v.extraReasons, v.prefixInstance(i, why+"; "+v.s.FloorBypassCommand(i.Instance)))
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
	if holder := v.release(v.slot.Holder); v.pin != nil && holder != nil {
		c.Release = holder.ID
	}
	v.change(c)
}

// pinTarget is the target that the pin, or its end, sets for an instance; nil: it stays.
func (v *view) pinTarget(i *instance) *entities.Target {
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

// prefixInstance prefixes a cause with its instance, if there are several.
func (v *view) prefixInstance(i *instance, cause string) string {
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
