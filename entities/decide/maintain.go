package decide

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file maintains what a failure left behind. The judgement about the version stays: FAILED ends by a person or another release. But
// objects of it that are gone or were edited are put back, with a backoff. A failed rollback continues in the same way, and has succeeded once
// its target is stable: that version was good before.

// maintained reports whether the failed target of an instance is maintained.
func (v *view) maintained(i *instance) bool {
	return i.Delivery.Failure != "" && v.spec.Repairs()
}

// work is the work at the target of an instance, and why. On a runtime that cannot be observed nothing shows what a failed release lacks, so it
// is left to a person. A failed rollback is applied until that succeeds: the success is the state.
func (i *instance) work() (bool, string) {
	d := &i.Delivery
	if d.Failure != "" && !i.runtime.Observable {
		return i.RollbackFailed() && !d.Apply.OK, "return to " + d.Target.FullVersion
	}
	return i.HasWork(d.Target, i.current)
}

// isPuttingBack reports whether an apply runs that only maintains a failed target. It ends for a newer one.
func (i *instance) isPuttingBack() bool {
	return i.Delivery.Failure != "" && i.Delivery.Apply.Running && i.Delivery.Apply.PutBacks > 0
}

// maintenance is the work at a failed target, and why. An unknown state is no reason to act.
func (i serviceInstance) maintenance(current entities.Current) (bool, string) {
	d := &i.Delivery
	switch {
	case !current.Known || !i.Observed.Fresh || current.Stable && !d.Reapply:
		return false, ""
	case i.RollbackFailed() && d.Reapply && !d.Apply.OK:
		return true, "return to " + d.Target.FullVersion
	case i.RollbackFailed():
		return !current.Stable && !current.AsDeclared, current.Reason
	case d.Applied && slices.ContainsFunc(i.Observed.Reading.Objects, i.isDamaged):
		return true, current.Reason
	}
	return i.nothingLeft() && (d.Applied || d.LastGood != nil), "nothing is running"
}

// isDamaged reports whether an object of the target is gone or drifted. One that is at another version was never reached.
func (i serviceInstance) isDamaged(o entities.Object) bool {
	return !o.Orphaned && (len(o.Versions) == 0 || slices.ContainsFunc(o.Versions, func(v entities.ObjectVersion) bool {
		return v.Drifted && v.Version == i.Delivery.Target.FullVersion
	}))
}

// nothingLeft reports whether no declared object exists.
func (i serviceInstance) nothingLeft() bool {
	return !slices.ContainsFunc(i.Observed.Reading.Objects, func(o entities.Object) bool { return !o.Orphaned && len(o.Versions) > 0 })
}

// judgeMaintained records that a failed rollback is stable after all, and resets the backoff of the maintenance once there was nothing to put
// back for its maximum.
func (v *view) judgeMaintained(j *targetResults, i *instance) {
	d := &i.Delivery
	has, _ := i.work()
	switch {
	case i.RollbackFailed() && i.current.Stable && !has && v.maintained(i):
		j.converged = append(j.converged, i)
	case d.Apply.PutBacks > 0 && i.current.Known && !has:
		v.judgeRepair(i)
	}
}

// attempt is the number of the apply that starts now. A failed target is never at its first attempt: that is for a person, who retries it.
func attempt(d *state.Delivery) int {
	if n := d.Apply.Attempts + d.Apply.PutBacks + 1; d.Failure == "" || n > 1 {
		return n
	}
	return 2
}

// explainMaintenance describes what is applied again at a failed target, and what prevents that.
func (v *view) explainMaintenance(i *instance) {
	d := &i.Delivery
	has, cause := i.work()
	if cause += "; "; d.Reapply && !d.Apply.OK { // the failure was explained
		cause = ""
	}
	switch a := &d.Apply; {
	case a.Running && a.PutBacks > 0:
		v.instanceReason(i, ReasonProgress, "applying %s again", d.Target.FullVersion)
	case !has: // and while an apply runs
	case !v.maintained(i):
		v.instanceReason(i, ReasonProgress, "%snot applied again: drift is only observed here", cause)
	case a.PutBacks > 0 && a.Err != "":
		v.instanceReason(i, ReasonFailure, "%sapplied again %s: %s", cause, entities.Times(a.PutBacks), a.Err)
	default:
		v.instanceReason(i, ReasonProgress, "%sit is applied again", cause)
	}
}
