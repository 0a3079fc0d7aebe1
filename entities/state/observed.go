package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file takes in what comes back from outside: how applies ended, and what was read.

func (s *State) applyStarted(op ApplyOp, now time.Time) {
	i := s.Instance(op.Instance)
	a := &i.Delivery.Apply
	a.Running, a.Started, a.Ending, a.Terminated, a.Of = true, now, time.Time{}, false, op.Target.FullVersion
	if a.First.IsZero() {
		a.First = now
	}
	i.Observed.Fresh = false
	if i.Delivery.Lease != nil {
		i.Delivery.Lease.Used = true
	}
	a.Approved = i.Approval.Of(op.Target.FullVersion)
	i.Approval.drop(func(given *entities.Approval) bool { return given.Version == op.Target.FullVersion })
	i.Approval.Asked = time.Time{}
}

// notBegun: the apply that was started did not begin, so a person's word on it was not used up.
func (i *Instance) notBegun() {
	given := i.Delivery.Apply.Approved
	if i.Delivery.Apply.Approved = nil; given == nil || i.Approves(given.Version) {
		return
	}
	if i.Approval.Given != nil {
		i.Approval.Also = append(slices.Clone(i.Approval.Also), i.Approval.Given)
	}
	i.Approval.Given = given
}

// ApplyEnded takes in how an apply ended. A failed one is retried with backoff until its attempts
// are spent (D18); a repair is retried for ever, ever more slowly. An answer about a target that
// is not the present one only says that nothing runs any more.
func (s *State) ApplyEnded(id entities.InstanceID, target entities.Target, err string, permanent bool, now time.Time) {
	i := s.Instance(id)
	d := &i.Delivery
	d.Apply.Running, d.Apply.Ended, d.Apply.Untaken, d.Apply.Approved = false, now, time.Time{}, nil
	i.Observed.Requested = true // until something is read, nobody knows what the apply did
	if !s.Declared(id) {
		d.Apply = Apply{Ended: now} // should the instance come back, it is applied again
		return
	}
	if d.Target == nil || !d.Target.Same(target) {
		return
	}
	d.Apply.OK, d.Apply.Err = err == "", err
	_, rt := s.Runtime(id)
	switch {
	case d.Converged: // a repair; without effect it is not repeated at once either
		d.Apply.Attempts++
		d.Apply.Next = now.Add(backoff(rt.Timing, d.Apply.Attempts))
	case err == "":
		s.takeAsReading(i, now)
	case d.Cancelled != "" && !permanent: // it was asked to end
	default:
		d.Apply.Attempts++
		if permanent || d.Apply.Attempts >= rt.Timing.MaxAttempts {
			d.Failure = err
			return
		}
		d.Apply.Next = now.Add(backoff(rt.Timing, d.Apply.Attempts))
	}
}

// ApplyLost takes in that an apply did not end: its worker went away and nobody took over in time.
// That is no fault of the release, so the progress deadline starts anew with the next attempt; it
// counts as an attempt all the same, or an apply that kills its worker would go on for ever.
func (s *State) ApplyLost(id entities.InstanceID, target entities.Target, reason string, now time.Time) {
	s.ApplyEnded(id, target, reason, false, now)
	if d := &s.Instance(id).Delivery; d.Target != nil && d.Target.Same(target) {
		d.Apply.First, d.Apply.Next = time.Time{}, now
	}
}

// ApplyUnready takes in that an apply could not begin, because what it needs could not be read. The
// release is not to blame: it is tried again for as long as it takes, and neither its attempts nor
// its deadline count.
func (s *State) ApplyUnready(id entities.InstanceID, target entities.Target, reason string, now time.Time) {
	i := s.Instance(id)
	d := &i.Delivery
	d.Apply.Running, d.Apply.Ended, d.Apply.Untaken, i.Observed.Requested = false, now, time.Time{}, true
	if d.Target == nil || !d.Target.Same(target) {
		return
	}
	i.notBegun()
	_, rt := s.Runtime(id)
	d.Apply.Err, d.Apply.First = reason, time.Time{}
	d.Apply.Next = now.Add(max(rt.Timing.RetryBackoff, unreadyPause))
}

// ApplyUntaken takes in that no worker took an apply. Nothing has begun: neither attempts nor the deadline count, and it is
// the runtime that nothing is known of. Where it can be observed, the next apply waits for a reading, for which a worker has
// to be there; else the apply itself waits.
func (s *State) ApplyUntaken(id entities.InstanceID, target entities.Target, e *entities.ReadingError, now time.Time) {
	i := s.Instance(id)
	d := &i.Delivery
	d.Apply.Running, d.Apply.Ended, i.Observed.Requested = false, now, true
	if d.Target == nil || !d.Target.Same(target) {
		return
	}
	i.notBegun()
	d.Apply.Err, d.Apply.First, d.Apply.Next = e.Message, time.Time{}, now
	if d.Apply.Untaken.IsZero() {
		d.Apply.Untaken = now
	}
	if _, rt := s.Runtime(id); rt.Observable {
		i.observe(entities.Reading{Err: e, At: now}, now)
		i.Observed.Requested = true
	}
}

// Unreached tells whether an apply waits for a reading, which shows that a worker is there again.
func (i *Instance) Unreached() bool {
	e := i.Observed.Reading.Err
	return !i.Delivery.Apply.Untaken.IsZero() && e != nil && e.Code == entities.CodeNoWorker
}

// ApplyFenced takes in that an apply was refused: a later target was claimed for the instance, or is on the runtime, by
// a run that this one knows nothing of (F2). That is no attempt. The present target is not applied until a person says so; where
// by is 0, the installation was moved, that would not help.
func (s *State) ApplyFenced(id entities.InstanceID, target entities.Target, by int64, why string, now time.Time) {
	if by > 0 {
		why += fmt.Sprintf("; to have %s all the same: converge retry %s/%s %s --channel %s", target.FullVersion, s.Application, s.Title(), target.FullVersion, id.Channel)
	}
	s.ApplyUnready(id, target, why, now)
	if d := &s.Instance(id).Delivery; d.Target != nil && d.Target.Same(target) {
		d.Fenced, d.Apply.Next = by, now.Add(fencedPause)
	}
}

// fencedPause is the time between two tries of an apply that is refused.
const fencedPause = time.Minute

// unreadyPause is the least time between two tries to begin an apply.
const unreadyPause = 15 * time.Second

// takeAsReading: on a runtime that cannot be observed, the success of an apply is the state (C1).
func (s *State) takeAsReading(i *Instance, now time.Time) {
	if _, rt := s.Runtime(i.ID); rt.Observable {
		return
	}
	i.observe(entities.Reading{At: now, Objects: []entities.Object{{
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

// Observed takes in a reading. Fresh: it was taken after the last apply had ended. A reading that
// failed keeps the last good objects (C6). One about a version that is not the target's is stale.
func (s *State) Observed(id entities.InstanceID, fullVersion string, r entities.Reading, fresh bool, now time.Time) {
	i := s.Instances[id]
	if i == nil {
		return
	}
	if _, rt := s.Runtime(id); i.present() != fullVersion && rt.Mode == entities.FetchExitCode {
		return
	}
	if !fresh && i.Observed.Fresh {
		return // a reading that began before the last apply ended knows less than what is known
	}
	again := i.Observed.Requested && !fresh
	i.observe(r, now)
	i.Observed.Requested, i.Observed.Fresh = again, fresh && !i.Delivery.Apply.Running
}

func (i *Instance) observe(r entities.Reading, now time.Time) {
	o := &i.Observed
	o.Requested, o.At = false, now
	o.Digest = r.Digest()
	if r.Err == nil || r.Err.Code != entities.CodeNoWorker {
		i.Delivery.Apply.Untaken = time.Time{}
	}
	if r.Err == nil {
		o.Reading, o.ErrSince = r, time.Time{}
		return
	}
	if o.Reading.Err == nil {
		o.ErrSince = now
	}
	o.Reading.Err, o.Reading.At = r.Err, r.At
}

// AskAnswered takes in what an exit-code runtime answered about a version.
func (s *State) AskAnswered(id entities.InstanceID, target entities.Target, r entities.Reading) {
	if o := &s.Instance(id).Observed; o.Asked != nil && o.Asked.Target.Same(target) {
		o.Asked = &Asked{Target: target, Reading: r}
	}
}

// Rendered takes in what a config release renders to under the version present in an instance.
func (s *State) Rendered(release string, id entities.InstanceID, present entities.Target) {
	if r := s.ReleaseByID(release); r != nil {
		if r.Present == nil {
			r.Present = map[entities.InstanceID]entities.Target{}
		}
		r.Present[id] = present
	}
}

// Keep takes in what a release brings to an instance on top of what is there, or the way back of the one that it passes.
func (s *State) Keep(op RenderOp, t entities.Target) {
	r := s.ReleaseByID(op.Release)
	if r == nil {
		return
	}
	if i := s.Instances[op.Instance]; r.OfAspect() && i != nil && i.Delivery.Target != nil {
		t.Runtime = i.Delivery.Target.Runtime // what is there was made for it
	}
	k := Kept{Version: op.Of, Target: t}
	if op.Way {
		r.keepWay(op.Instance, k)
		return
	}
	if r.Kept == nil {
		r.Kept = map[entities.InstanceID]Kept{}
	}
	r.Kept[op.Instance] = k
}

// Unrendered takes in that what a release brings to an instance cannot be rendered on top of what is there. Where the release is still
// to come to the channel it does not; one that is in progress there leaves the instance out.
func (s *State) Unrendered(release string, id entities.InstanceID, why string, now time.Time) {
	r := s.ReleaseByID(release)
	if r == nil || r.in(id.Channel) == nil {
		return
	}
	if r.in(id.Channel).Phase != maestro.InProgress {
		s.doesNotCome(r, id.Channel, why, now)
		return
	}
	delete(r.Kept, id)
	if !r.Keeps(id.Channel) {
		delete(r.Payloads, id)
	}
	text := r.FullVersion + " leaves out " + s.Shown(id)
	s.Record(now, id.Channel, text+": "+why)
	s.note(entities.AuditLine{At: now, Kind: entities.EventError, Channel: id.Channel, Release: r.ID, Version: r.FullVersion, Text: text, Reason: why})
}

// doesNotCome cancels a release where it has not entered a channel yet.
func (s *State) doesNotCome(r *Release, channel, why string, now time.Time) {
	if r.Keeps(channel) || r.in(channel).Phase == maestro.Pending {
		r.cancel(channel, why, now)
		s.Record(now, channel, r.FullVersion+" "+why)
	}
}

// ExtensionEnded takes in how a run of an extension ended; an empty err is success. A failed one is
// tried again with backoff until its attempts are spent. Tail is the end of its output, log the key
// of all of it in the store.
func (s *State) ExtensionEnded(op ExtensionOp, err, tail, log string, now time.Time) {
	r := s.ReleaseByID(op.Release)
	if r == nil || r.Extensions[op.Extension.RunKey()] == nil {
		return
	}
	st := r.Extensions[op.Extension.RunKey()]
	if st.Done {
		return
	}
	st.Running, st.Since, st.Err, st.Tail, st.Log, st.Untaken = false, now, err, tail, log, time.Time{}
	if st.Cancelled && err != "" { // it was asked to end
		s.Record(now, op.Channel, fmt.Sprintf("extension %s of %s ended, since that was cancelled", op.Extension.Name, r.FullVersion))
		return
	}
	st.Attempts++
	e := &op.Extension
	switch {
	case err == "":
		st.Done = true
		s.Record(now, op.Channel, fmt.Sprintf("extension %s of %s succeeded", e.Name, r.FullVersion))
	case st.Attempts >= e.MaxAttempts:
		st.Failed = true
		text := fmt.Sprintf("extension %s of %s failed %s", e.Name, r.FullVersion, entities.Times(st.Attempts))
		s.Record(now, op.Channel, text+": "+err)
		if e.Stage == entities.OnRollback || e.Stage == entities.Repeated { // nothing waits for it, so that nobody would see it
			s.note(entities.AuditLine{At: now, Kind: entities.EventError, Channel: op.Channel, Release: r.ID, Version: r.FullVersion, Text: text, Reason: err})
		}
	default:
		st.Next = now.Add(backoff(entities.RuntimeTiming{RetryBackoff: e.RetryBackoff, RetryMax: e.RetryMax}, st.Attempts))
	}
}

// ExtensionUntaken takes in that no worker took a run of an extension. That is no attempt: it waits for one.
func (s *State) ExtensionUntaken(op ExtensionOp, why string, now time.Time) {
	r := s.ReleaseByID(op.Release)
	if r == nil || r.Extensions[op.Extension.RunKey()] == nil {
		return
	}
	st := r.Extensions[op.Extension.RunKey()]
	st.Running, st.Err, st.Next = false, why, now
	if st.Untaken.IsZero() {
		st.Untaken = now
	}
}

// What follows takes in what becomes of leases: the right to be one of the applies that run at once on a runtime
// that bounds them (C10).

const (
	// askAgain is the least time after which a lease that did not come is asked for again: the Runtime
	// workflow may have lost what it knew. Asking costs it history, so the pauses grow with the wait.
	askAgain    = 2 * time.Minute
	askAgainMax = 30 * time.Minute
)

// AskAgain is when to ask for a lease again: as late as it has already been waited for.
func (l *Lease) AskAgain() time.Time {
	last := l.Asked
	if !l.Again.IsZero() {
		last = l.Again
	}
	return last.Add(min(max(last.Sub(l.Asked), askAgain), askAgainMax))
}

// leaseAsked commits that a lease was asked for or given back.
func (s *State) leaseAsked(op LeaseOp, now time.Time) {
	i := s.Instance(op.Instance)
	if op.GiveBack {
		i.Delivery.Lease = nil
		s.dropEmpty(op.Instance) // it was only kept for that
		return
	}
	if op.Again {
		i.Delivery.Lease.Again = now
		return
	}
	s.LeaseCount++
	i.Delivery.Lease = &Lease{ID: op.ID, Runtime: op.Runtime, Version: op.Version, Asked: now}
}

// LeaseGranted takes in that a lease was granted. False: it is not wanted any more, and must be
// given back.
func (s *State) LeaseGranted(id string, now time.Time) bool {
	l := s.lease(id)
	if l == nil {
		return false
	}
	if l.Granted.IsZero() {
		l.Granted = now
	}
	return true
}

// HoldsLease answers the Runtime workflow: is that lease still held, or waited for?
func (s *State) HoldsLease(id string) bool { return s.lease(id) != nil }

// LeaseOn is the runtime of a lease that is held or waited for; empty when there is none.
func (s *State) LeaseOn(id string) string {
	if l := s.lease(id); l != nil {
		return l.Runtime
	}
	return ""
}

func (s *State) lease(id string) *Lease {
	// In any order: ids are unique.
	//workflowcheck:ignore
	for _, i := range s.Instances {
		if l := i.Delivery.Lease; l != nil && l.ID == id {
			return l
		}
	}
	return nil
}
