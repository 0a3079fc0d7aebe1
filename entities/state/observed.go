package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file records results of activities: how applies ended, and readings.

func (s *State) applyStarted(op ApplyOp, now time.Time) {
	i := s.Instance(op.Instance)
	a := &i.Delivery.Apply
	a.Running, a.Started, a.EndRequested, a.Terminated, a.RunningVersion = true, now, time.Time{}, false, op.Target.FullVersion
	a.Until = now.Add(op.Timeout)
	if a.FirstStarted.IsZero() {
		a.FirstStarted = now
	}
	switch d := &i.Delivery; {
	case d.Failure != "":
		a.PutBacks++
	case d.Converged:
		a.RepairCause = op.Cause
	}
	i.Observed.Fresh = false
	if i.Delivery.Lease != nil {
		i.Delivery.Lease.Used = true
	}
	a.Approval = i.Approval.For(op.Target.FullVersion)
	i.Approval.remove(func(given *entities.Approval) bool { return given.Version == op.Target.FullVersion })
	i.Approval.WaitingSince = time.Time{}
}

// restoreApplyApproval records that the started apply did not begin, so its approval was not used up.
func (i *Instance) restoreApplyApproval() {
	given := i.Delivery.Apply.Approval
	if i.Delivery.Apply.Approval = nil; given == nil || i.ApplyApproved(given.Version) {
		return
	}
	if i.Approval.Given != nil {
		i.Approval.Others = append(slices.Clone(i.Approval.Others), i.Approval.Given)
	}
	i.Approval.Given = given
}

// ApplyEnded records the result of an apply. A failed one is retried with backoff until all attempts are used (D18). A repair is retried
// without a limit, with growing backoff. A result for a target that is not the current one only means that no apply runs any more.
func (s *State) ApplyEnded(id entities.InstanceID, target entities.Target, err string, permanent bool, now time.Time) {
	i := s.Instance(id)
	d := &i.Delivery
	d.Apply.Running, d.Apply.Ended, d.Apply.NoWorkerSince, d.Apply.Approval = false, now, time.Time{}, nil
	i.Observed.Requested = true // the effect of the apply is unknown until the next reading
	if !s.Declared(id) {
		d.Apply = Apply{Ended: now} // if the instance returns, it is applied again
		return
	}
	if d.Target == nil || !d.Target.Same(target) {
		return
	}
	d.Apply.OK, d.Apply.Err, d.Applied = err == "", err, d.Applied || err == ""
	_, rt := s.Runtime(id)
	switch {
	case d.Failure != "": // the target stays failed, whatever this one put back
		d.Apply.NotBefore = now.Add(backoff(rt.Timing, d.Apply.PutBacks))
		if err == "" {
			s.recordSuccessAsReading(i, now)
		}
	case d.Converged: // a repair; without effect it is not repeated at once either
		d.Apply.Attempts++
		if err == "" {
			s.countRepair(i, now)
		}
		d.Apply.NotBefore = now.Add(backoff(rt.Timing, d.Apply.Attempts))
	case err == "":
		s.recordSuccessAsReading(i, now)
	case d.Cancelled != "" && !permanent: // its end was requested
	default:
		d.Apply.Attempts++
		if permanent || d.Apply.Attempts >= rt.Timing.MaxAttempts {
			i.fail(rt.Timing, err, now)
			return
		}
		d.Apply.NotBefore = now.Add(backoff(rt.Timing, d.Apply.Attempts))
	}
}

// fail records that the current target failed permanently. What it left behind is maintained after a backoff.
func (i *Instance) fail(t entities.RuntimeTiming, why string, now time.Time) {
	i.Delivery.Failure, i.Delivery.Apply.NotBefore = why, now.Add(backoff(t, 1))
}

// ApplyLost records that an apply did not end: its worker was lost and no other took over in time. The release did not cause that, so the
// progress deadline starts again with the next attempt. It still counts as an attempt, or an apply that kills its worker would repeat
// forever. The next attempt starts after wait: until then the worker may not know that the apply has ended.
func (s *State) ApplyLost(id entities.InstanceID, target entities.Target, reason string, now time.Time, wait time.Duration) {
	s.ApplyEnded(id, target, reason, false, now)
	if d := &s.Instance(id).Delivery; d.Target != nil && d.Target.Same(target) {
		d.Apply.FirstStarted, d.Apply.NotBefore = time.Time{}, now.Add(wait)
	}
}

// ApplyBegunAgain records in the journal that workers were lost during an apply which ended, if it was begun more than once (A11).
func (s *State) ApplyBegunAgain(id entities.InstanceID, target entities.Target, begun int, now time.Time) {
	if begun > 1 && s.Declared(id) {
		s.AppendJournal(now, id.Channel, fmt.Sprintf("apply of %s was begun %s: a worker that ran it was lost, stopped, or cut off from the server", target.FullVersion, entities.Times(begun)))
	}
}

// ApplyUnready records that an apply could not begin, because its input could not be read. The release did not cause that: it is retried
// without a limit, and neither its attempts nor its deadline count.
func (s *State) ApplyUnready(id entities.InstanceID, target entities.Target, reason string, now time.Time) {
	i := s.Instance(id)
	d := &i.Delivery
	d.Apply.Running, d.Apply.Ended, d.Apply.NoWorkerSince, i.Observed.Requested = false, now, time.Time{}, true
	if d.Target == nil || !d.Target.Same(target) {
		return
	}
	i.restoreApplyApproval()
	_, rt := s.Runtime(id)
	d.Apply.Err, d.Apply.FirstStarted = reason, time.Time{}
	d.Apply.NotBefore = now.Add(max(rt.Timing.RetryBackoff, unreadyInterval))
}

// NoWorkerForApply records that no worker took an apply. Nothing has started: neither attempts nor the deadline count, and the state of the
// runtime is unknown. If the runtime can be observed, the next apply waits for a reading, which needs a worker; otherwise the apply
// itself waits.
func (s *State) NoWorkerForApply(id entities.InstanceID, target entities.Target, e *entities.ReadingError, now time.Time) {
	i := s.Instance(id)
	d := &i.Delivery
	d.Apply.Running, d.Apply.Ended, i.Observed.Requested = false, now, true
	if d.Target == nil || !d.Target.Same(target) {
		return
	}
	i.restoreApplyApproval()
	d.Apply.Err, d.Apply.FirstStarted, d.Apply.NotBefore = e.Message, time.Time{}, now
	if d.Apply.NoWorkerSince.IsZero() {
		d.Apply.NoWorkerSince = now
	}
	if _, rt := s.Runtime(id); rt.Observable {
		i.setReading(entities.Reading{Err: e, At: now}, now)
		i.Observed.Requested = true
	}
}

// WaitsForWorker reports whether an apply waits for a reading, which proves that a worker is available again.
func (i *Instance) WaitsForWorker() bool {
	e := i.Observed.Reading.Err
	return !i.Delivery.Apply.NoWorkerSince.IsZero() && e != nil && e.Code == entities.CodeNoWorker
}

// ApplyFenced records that an apply was refused: a run that this one does not know claimed a later target for the instance, or applied
// one (F2). That is not an attempt. The current target is not applied until a person confirms it. If by is 0, the installation was moved,
// and a confirmation would not help.
func (s *State) ApplyFenced(id entities.InstanceID, target entities.Target, by int64, why string, now time.Time) {
	if by > 0 {
		why += fmt.Sprintf("; to apply %s anyway: converge retry %s/%s %s --channel %s", target.FullVersion, s.Application, s.Title(), target.FullVersion, id.Channel)
	}
	s.ApplyUnready(id, target, why, now)
	if d := &s.Instance(id).Delivery; d.Target != nil && d.Target.Same(target) {
		d.FencedBy, d.Apply.NotBefore = by, now.Add(fencedInterval)
	}
}

// fencedInterval is the time between two attempts of an apply that is refused.
const fencedInterval = time.Minute

// unreadyInterval is the minimum time between two attempts to begin an apply.
const unreadyInterval = 15 * time.Second

// recordSuccessAsReading: on a runtime that cannot be observed, the success of an apply is the state (C1).
func (s *State) recordSuccessAsReading(i *Instance, now time.Time) {
	if _, rt := s.Runtime(i.ID); rt.Observable {
		return
	}
	i.setReading(entities.Reading{At: now, Objects: []entities.Object{{
		Name: s.Service, Type: "applied", Status: entities.ObjectSucceeded,
		Versions: []entities.ObjectVersion{{Version: i.Delivery.Target.FullVersion, Active: true}},
	}}}, now)
	i.Observed.Fresh = true
}

// backoff before the next apply after n failed ones: doubling, bounded.
func backoff(t entities.RuntimeTiming, n int) time.Duration {
	wait := t.RetryBackoff
	for ; n > 1 && wait < t.RetryMax; n-- {
		wait *= 2
	}
	return min(wait, max(t.RetryMax, t.RetryBackoff))
}

// RecordReading records a reading. fresh: it was taken after the end of the last apply. A failed reading keeps the last good objects (C6).
// A reading about another version than the target's is stale.
func (s *State) RecordReading(id entities.InstanceID, fullVersion string, r entities.Reading, fresh bool, now time.Time) {
	i := s.Instances[id]
	if i == nil {
		return
	}
	if _, rt := s.Runtime(id); i.currentVersion() != fullVersion && rt.Mode == entities.FetchExitCode {
		return
	}
	if !fresh && i.Observed.Fresh {
		return // a reading that began before the end of the last apply is older than the known one
	}
	stillRequested := i.Observed.Requested && !fresh
	i.setReading(r, now)
	i.Observed.Requested, i.Observed.Fresh = stillRequested, fresh && !i.Delivery.Apply.Running
}

func (i *Instance) setReading(r entities.Reading, now time.Time) {
	o := &i.Observed
	before := o.At
	o.Requested, o.At = false, now
	o.Digest = r.Digest()
	if r.Err == nil || r.Err.Code != entities.CodeNoWorker {
		i.Delivery.Apply.NoWorkerSince = time.Time{}
	}
	if r.Err == nil {
		o.Reading, o.ErrSince, o.AnsweredAt = r, time.Time{}, time.Time{}
		return
	}
	if o.Reading.Err == nil {
		o.ErrSince, o.AnsweredAt = now, before
	}
	if silentSince := now.Add(-r.Err.Silent); r.Err.Silent > 0 && (o.Reading.Err == nil || silentSince.Before(o.AnsweredAt)) {
		o.AnsweredAt = silentSince
	}
	o.Reading.Err, o.Reading.At = r.Err, r.At
}

// RecordQueryAnswer records the answer of an exit-code runtime about a version.
func (s *State) RecordQueryAnswer(id entities.InstanceID, target entities.Target, r entities.Reading) {
	if o := &s.Instance(id).Observed; o.Query != nil && o.Query.Target.Same(target) {
		o.Query = &VersionQuery{Target: target, Reading: r}
	}
}

// RecordRender records the render of a config release with the current version of an instance.
func (s *State) RecordRender(release string, id entities.InstanceID, present entities.Target) {
	if r := s.ReleaseByID(release); r != nil {
		if r.Present == nil {
			r.Present = map[entities.InstanceID]entities.Target{}
		}
		r.Present[id] = present
	}
}

// RecordMergedRender records the render of a release for an instance on top of the current version or values, or the rollback target of the
// release that it passes.
func (s *State) RecordMergedRender(op RenderOp, t entities.Target) {
	r := s.ReleaseByID(op.Release)
	if r == nil {
		return
	}
	if i := s.Instances[op.Instance]; r.IsAspect() && i != nil && i.Delivery.Target != nil {
		t.Runtime = i.Delivery.Target.Runtime // the current version was made for it
	}
	k := MergedTarget{Version: op.Version, Target: t}
	if op.RollbackTarget {
		r.setRollbackTarget(op.Instance, k)
		return
	}
	if r.MergedTargets == nil {
		r.MergedTargets = map[entities.InstanceID]MergedTarget{}
	}
	r.MergedTargets[op.Instance] = k
}

// RecordRenderFailure records that a release for an instance cannot be rendered on top of the current version. A pending release is
// cancelled in the channel; a release in progress there leaves the instance out.
func (s *State) RecordRenderFailure(release string, id entities.InstanceID, why string, now time.Time) {
	r := s.ReleaseByID(release)
	if r == nil || r.phaseState(id.Channel) == nil {
		return
	}
	if r.phaseState(id.Channel).Phase != maestro.InProgress {
		s.cancelUnentered(r, id.Channel, why, now)
		return
	}
	delete(r.MergedTargets, id)
	if !r.KeepsVersion(id.Channel) {
		delete(r.Payloads, id)
	}
	text := r.FullVersion + " skips " + s.DisplayName(id)
	s.AppendJournal(now, id.Channel, text+": "+why)
	s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventError, Channel: id.Channel, Release: r.ID, Version: r.FullVersion, Text: text, Reason: why})
}

// cancelUnentered cancels a release in a channel that it has not entered yet.
func (s *State) cancelUnentered(r *Release, channel, why string, now time.Time) {
	if r.KeepsVersion(channel) || r.phaseState(channel).Phase == maestro.Pending {
		r.cancel(channel, why, now)
		s.AppendJournal(now, channel, r.FullVersion+" "+why)
	}
}

// ExtensionEnded records the result of a run of an extension; an empty err is success. A failed one is retried with backoff until all
// attempts are used. tail is the end of its output, log the key of its complete output in the store.
func (s *State) ExtensionEnded(op ExtensionOp, err, tail, log string, now time.Time) {
	r := s.ReleaseByID(op.Release)
	if r == nil || r.Extensions[op.Extension.RunKey()] == nil {
		return
	}
	st := r.Extensions[op.Extension.RunKey()]
	if st.Done {
		return
	}
	st.Running, st.Since, st.Err, st.Tail, st.Log, st.NoWorkerSince = false, now, err, tail, log, time.Time{}
	if st.Cancelled && err != "" { // its end was requested
		s.AppendJournal(now, op.Channel, fmt.Sprintf("extension %s of %s ended, because it was cancelled", op.Extension.Name, r.FullVersion))
		return
	}
	st.Attempts++
	e := &op.Extension
	switch {
	case err == "":
		st.Done = true
		s.AppendJournal(now, op.Channel, fmt.Sprintf("extension %s of %s succeeded", e.Name, r.FullVersion))
	case st.Attempts >= e.MaxAttempts:
		st.Failed = true
		text := fmt.Sprintf("extension %s of %s failed %s", e.Name, r.FullVersion, entities.Times(st.Attempts))
		s.AppendJournal(now, op.Channel, text+": "+err)
		if e.Stage == entities.OnRollback || e.Stage == entities.Repeated { // nothing waits for it, so the failure would go unnoticed
			s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventError, Channel: op.Channel, Release: r.ID, Version: r.FullVersion, Text: text, Reason: err})
		}
	default:
		st.Next = now.Add(backoff(entities.RuntimeTiming{RetryBackoff: e.RetryBackoff, RetryMax: e.RetryMax}, st.Attempts))
	}
}

// ExtensionPutOff records that the workers have not begun a run of an extension, because they or the Temporal server have other work. That
// is not an attempt.
func (s *State) ExtensionPutOff(op ExtensionOp) {
	if r := s.ReleaseByID(op.Release); r != nil && r.Extensions[op.Extension.RunKey()] != nil {
		st := r.Extensions[op.Extension.RunKey()]
		st.Running, st.NoWorkerSince = false, time.Time{}
	}
}

// NoWorkerForExtension records that no worker took a run of an extension. That is not an attempt: it waits for a worker.
func (s *State) NoWorkerForExtension(op ExtensionOp, why string, now time.Time) {
	r := s.ReleaseByID(op.Release)
	if r == nil || r.Extensions[op.Extension.RunKey()] == nil {
		return
	}
	st := r.Extensions[op.Extension.RunKey()]
	st.Running, st.Err, st.Next = false, why, now
	if st.NoWorkerSince.IsZero() {
		st.NoWorkerSince = now
	}
}

// The following code records the state of leases: the right to one of the concurrent applies of a runtime that limits them (C10).

const (
	// askAgain is the minimum time after which a request for a lease is repeated: the Runtime workflow may have lost its state. A request
	// costs it history, so the intervals grow with the wait.
	askAgain    = 2 * time.Minute
	askAgainMax = 30 * time.Minute
)

// NextRequest is the time of the next request: the interval is as long as the wait so far.
func (l *Lease) NextRequest() time.Time {
	last := l.RequestedAt
	if !l.RepeatedAt.IsZero() {
		last = l.RepeatedAt
	}
	return last.Add(min(max(last.Sub(l.RequestedAt), askAgain), askAgainMax))
}

// leaseAsked records that a lease was requested or returned.
func (s *State) leaseAsked(op LeaseOp, now time.Time) {
	i := s.Instance(op.Instance)
	if op.Return {
		i.Delivery.Lease = nil
		s.dropIfEmpty(op.Instance) // it was only kept for that
		return
	}
	if op.Repeat {
		i.Delivery.Lease.RepeatedAt = now
		return
	}
	s.LeaseCount++
	i.Delivery.Lease = &Lease{ID: op.ID, Runtime: op.Runtime, Version: op.Version, RequestedAt: now}
}

// LeaseGranted records that a lease was granted. False: it is not needed any more, and must be returned.
func (s *State) LeaseGranted(id string, now time.Time) bool {
	l := s.lease(id)
	if l == nil {
		return false
	}
	if l.GrantedAt.IsZero() {
		l.GrantedAt = now
	}
	return true
}

// HoldsLease reports to the Runtime workflow whether that lease is still held, or waited for.
func (s *State) HoldsLease(id string) bool { return s.lease(id) != nil }

// LeaseRuntime is the runtime of a lease that is held or waited for; empty if there is none.
func (s *State) LeaseRuntime(id string) string {
	if l := s.lease(id); l != nil {
		return l.Runtime
	}
	return ""
}

func (s *State) lease(id string) *Lease {
	// The order does not matter: ids are unique.
	//workflowcheck:ignore
	for _, i := range s.Instances {
		if l := i.Delivery.Lease; l != nil && l.ID == id {
			return l
		}
	}
	return nil
}
