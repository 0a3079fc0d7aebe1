package decide

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// startApply starts an apply if the instance needs one and nothing holds it. Promotion gates do not hold the retries of a started target. A
// pause does, and so do a lease and an approval if the runtime requires them (C10). A repair waits for the checks that are declared for
// repairs; a rollback waits only for a lease.
func (v *view) startApply(i *instance) {
	if !v.mayApply(i) {
		return
	}
	target := i.Delivery.Target
	has, cause := i.work()
	timeout, last := v.applyTimeout(i)
	if !has || timeout <= 0 || v.repairHeld(i) || v.mustDelayApply(i) || v.awaitsApplyApproval(i) || !v.acquireLease(i, *target) {
		return
	}
	i.startsApply = true
	v.d.Applies = append(v.d.Applies, state.ApplyOp{
		Instance: i.ID, Target: *target, Attempt: attempt(&i.Delivery), Timeout: timeout, Last: last, Cause: cause,
	})
}

// mayApply reports whether an apply is possible at all.
func (v *view) mayApply(i *instance) bool {
	d := &i.Delivery
	return !v.changed && !v.yielding && (!i.paused || i.rollbackWhilePaused) && !i.notApplied && !v.mode.blocks(i.RollingBack()) && d.Target != nil && !d.Apply.Running && (d.Failure == "" || v.maintained(i)) && !i.applyCancelled() && !i.waitsForAnswer() &&
		i.PreviousPlacementOn(i.Runtime) == nil // otherwise its objects are still being removed
}

// applyTimeout is the timeout of an apply that starts now. It is not positive after the progress deadline: then the instance only waits
// for a last reading, and holds no lease. last reports whether the deadline has passed when the apply times out.
func (v *view) applyTimeout(i *instance) (timeout time.Duration, last bool) {
	d := &i.Delivery
	timeout, first, remaining := i.runtime.Timing.ApplyTimeout, d.Apply.FirstStarted, v.spec.ProgressDeadline
	switch {
	case d.Converged, d.Failure != "":
		return timeout, false
	case first.IsZero():
	case !d.StoppedAt.IsZero(): // the clock is stopped since then
		remaining = first.Add(remaining).Sub(d.StoppedAt)
	default:
		remaining = first.Add(remaining).Sub(v.now)
	}
	return min(timeout, remaining), remaining <= timeout
}

// mustDelayApply delays an apply: for the grace period after a successful one that is not visible yet, for the backoff after a failed one,
// and, for repairs, if drift is only observed.
func (v *view) mustDelayApply(i *instance) bool {
	d := &i.Delivery
	if d.Converged && (!v.spec.Repairs() || !i.Observed.Fresh) {
		return true
	}
	until := d.Apply.NotBefore
	if !d.Converged && d.Failure == "" && d.Apply.OK {
		until = d.Apply.Ended.Add(i.runtime.Timing.GracePeriod)
	}
	if v.now.Before(until) {
		v.due(until)
		return true
	}
	return false
}

// repairHeld reports whether a repair waits for checks.
func (v *view) repairHeld(i *instance) bool {
	if repair := i.Delivery.Converged || i.Delivery.Failure != "" && !i.RollbackFailed(); !repair || !v.spec.Repairs() {
		return false
	}
	// Requested: another instance of the channel requested the checks already.
	held, requested := false, v.out.NeededChecks != nil && len(v.out.NeededChecks.Repairs) > 0
	for n := range v.spec.Checks {
		c := &v.spec.Checks[n]
		if !c.Repairs {
			continue
		}
		if !requested {
			v.neededChecks().Repairs = append(v.neededChecks().Repairs, c.ID)
		}
		if j := v.judgeCheck(c, nil); j.Verdict != entities.Pass {
			if !requested {
				v.reason(ReasonProgress, "not repaired yet: "+j.ID+entities.Because(j.Reason))
			}
			held = true
		}
	}
	return held
}

// acquireLease reports whether leases allow an apply of the target to start. Without a lease it requests one.
func (v *view) acquireLease(i *instance, t entities.Target) bool {
	name, runtime := v.s.TargetRuntime(i.ID, t)
	if runtime.MaxApplies <= 0 {
		return true
	}
	l := i.Delivery.Lease
	if l != nil && (l.Used || l.Version != t.FullVersion || l.Runtime != name) {
		return false // of another apply: it is returned first
	}
	i.needsLease = true
	if l != nil && !l.GrantedAt.IsZero() {
		return true
	}
	v.requestLease(i, t)
	j := Judgement{Kind: KindLease, ID: string(KindLease), Verdict: entities.Wait, Reason: v.prefixInstance(i, fmt.Sprintf(
		"waits for a lease on %s (at most %d concurrent applies)", name, runtime.MaxApplies))}
	if l != nil {
		j.Since = l.RequestedAt
	}
	switch {
	case !v.mayExplain():
	case v.out.Next != nil:
		v.out.Gates = append(v.out.Gates, j)
	default:
		v.reason(ReasonProgress, j.Reason)
	}
	return false
}

// requestLease requests a lease, and repeats the request while none is granted.
func (v *view) requestLease(i *instance, t entities.Target) {
	l := i.Delivery.Lease
	name, runtime := v.s.TargetRuntime(i.ID, t)
	op := state.LeaseOp{
		Instance: i.ID, Runtime: name, Version: t.FullVersion,
		Rollback: i.RollingBack(), Limit: runtime.MaxApplies, Timeout: runtime.Timing.ApplyTimeout,
	}
	switch {
	case v.mode.blocks(op.Rollback):
		return
	case l == nil:
		v.d.leases++
		// The id is permanent: no two applies in the life of a service share a lease.
		op.ID = fmt.Sprintf("service/%s/%s/%s/%s/%d", v.s.Application, v.s.Service, i.ID, t.FullVersion, v.s.LeaseCount+v.d.leases)
	case v.now.Before(l.NextRequest()):
		v.due(l.NextRequest())
		return
	default:
		op.ID, op.Repeat = l.ID, true
	}
	v.d.Leases = append(v.d.Leases, op)
}

// returnLeases returns the leases of applies that ended or are not needed any more.
func (v *view) returnLeases() {
	for n := range v.insts {
		i := &v.insts[n]
		l := i.Delivery.Lease
		if l == nil || v.changed || i.Delivery.Apply.Running && l.Used || i.needsLease || i.startsApply || v.mode.NoNewWork && !l.Used {
			continue
		}
		v.d.returnLease(i.ID, l)
	}
}

func (d *Decision) returnLease(id entities.InstanceID, l *state.Lease) {
	d.Leases = append(d.Leases, state.LeaseOp{Instance: id, Runtime: l.Runtime, ID: l.ID, Version: l.Version, Return: true})
}

// awaitsApplyApproval reports whether the required apply waits for an approval. A rollback does not.
func (v *view) awaitsApplyApproval(i *instance) bool {
	version := i.Delivery.Target.FullVersion
	d := &i.Delivery
	back := i.RollingBack() && !d.AppliesAgain() // a restart, or a return after a drain, is an apply like any other
	if !i.runtime.ApproveApplies || back || i.ApplyApproved(version) {
		return false
	}
	id := applyApprovalID(v.spec.Name)
	if r := v.release(v.slot.Holder); r != nil && r.BypassOf(v.spec.Name, id) != nil && i.IsAt(r) {
		return false
	}
	i.awaitsApproval, i.facts.WaitsApproval = true, true
	if i.Approval.WaitingSince.IsZero() {
		v.addChange(state.Change{Kind: state.ChangeAwaitApproval, Instances: []entities.InstanceID{i.ID}, Target: i.Delivery.Target, Cause: "every apply here needs an approval"})
	}
	j := Judgement{
		Kind: KindApproval, ID: id, Subject: state.ApplyTopic + v.spec.Name, Verdict: entities.Wait, Code: CodeOpen, Since: i.Approval.WaitingSince,
		Eligible: v.s.EligibleForApplies(v.spec.Name),
		Reason:   v.prefixInstance(i, "an apply of "+version+" waits for a person's approval"),
		Unblock:  fmt.Sprintf("converge approve %s/%s %s %s", v.s.Application, v.s.Title(), version, state.ApplyTopic+v.spec.Name),
	}
	if !v.mayExplain() {
		return true
	}
	v.out.Gates = append(v.out.Gates, j)
	if i.Delivery.Converged {
		v.reason(ReasonProgress, "not repaired yet: "+j.Reason)
	}
	return true
}

// withdrawApprovalRequests withdraws requests for approval of applies that are not needed any more.
func (v *view) withdrawApprovalRequests() {
	for n := range v.insts {
		i := &v.insts[n]
		if v.changed || i.paused || v.mode.NoNewWork || i.awaitsApproval || i.Approval.WaitingSince.IsZero() {
			continue
		}
		v.addChange(state.Change{Kind: state.ChangeAwaitApproval, Instances: []entities.InstanceID{i.ID}, Cause: "no apply waits for approval any more"})
	}
}
