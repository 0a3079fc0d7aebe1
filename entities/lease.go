package entities

import (
	"fmt"
	"time"
)

// This file holds leases: a place among the applies of a runtime that bounds them (C10). An apply
// holds one from just before it begins until it has ended; nothing that waits for anything else
// does.

// takeLease tells whether an apply of the target may start as far as leases go; where it has none
// yet, it asks for one.
func (v *view) takeLease(t Target) bool {
	if v.runtime.MaxApplies <= 0 {
		return true
	}
	l := v.inst.Lease
	if l != nil && (l.Used || l.Version != t.FullVersion || l.Runtime != v.spec.Runtime) {
		return false // of another apply: it is given back first
	}
	v.wants().lease = true
	if l != nil && !l.Granted.IsZero() {
		return true
	}
	v.askLease(t)
	j := Judgement{ID: "lease", Verdict: Wait, Reason: fmt.Sprintf("waits for a place on %s, where %d may be applied at once", v.spec.Runtime, v.runtime.MaxApplies)}
	if l != nil {
		j.Since = l.Asked
	}
	if v.out.Next != nil {
		v.out.Gates = append(v.out.Gates, j)
	} else {
		v.reason("%s", j.Reason)
	}
	return false
}

const (
	// askAgain is the least time after which a lease that did not come is asked for again: the Runtime
	// workflow may have lost what it knew. Asking costs it history, so the pauses grow with the wait.
	askAgain    = 2 * time.Minute
	askAgainMax = 30 * time.Minute
)

// again is when to ask for a lease again: as late as it has already been waited for.
func (l *Lease) again() time.Time {
	last := l.Asked
	if !l.Again.IsZero() {
		last = l.Again
	}
	return last.Add(min(max(last.Sub(l.Asked), askAgain), askAgainMax))
}

// askLease asks for a lease, and now and then again while it does not come.
func (v *view) askLease(t Target) {
	l := v.inst.Lease
	op := LeaseOp{
		Channel: v.spec.Name, Runtime: v.spec.Runtime, Version: t.FullVersion,
		Rollback: v.wayBack(), Limit: v.runtime.MaxApplies, Timeout: v.runtime.Timing.ApplyTimeout,
	}
	switch {
	case v.mode.Drain:
		return
	case l == nil:
		op.ID = v.leaseID(t)
	case v.now.Before(l.again()):
		v.due(l.again())
		return
	default:
		op.ID, op.Again = l.ID, true
	}
	v.d.Leases = append(v.d.Leases, op)
}

// leaseID names a lease for good: no two applies of a service's life share one.
func (v *view) leaseID(t Target) string {
	n := v.s.LeaseCount + 1
	for _, op := range v.d.Leases {
		if !op.GiveBack && !op.Again {
			n++
		}
	}
	return fmt.Sprintf("service/%s/%s/%s/%s/%d", v.s.Application, v.s.Service, v.spec.Name, t.FullVersion, n)
}

// returnLease gives back a lease whose apply has ended, or is not wanted any more.
func (v *view) returnLease() {
	l := v.inst.Lease
	if l == nil || v.changed || v.inst.Progress.Running || v.out.wants != nil && v.out.wants.lease || v.mode.Drain && !l.Used {
		return
	}
	for _, op := range v.d.Applies {
		if op.Channel == v.spec.Name {
			return
		}
	}
	v.d.giveBack(v.spec.Name, l)
}

func (d *Decision) giveBack(channel string, l *Lease) {
	d.Leases = append(d.Leases, LeaseOp{Channel: channel, Runtime: l.Runtime, ID: l.ID, Version: l.Version, GiveBack: true})
}

// leaseAsked commits that a lease was asked for or given back.
func (s *State) leaseAsked(op LeaseOp, now time.Time) {
	i := s.Instance(op.Channel)
	if op.GiveBack {
		i.Lease = nil
		if i.Target == nil && s.Spec != nil && !s.declared(op.Channel) {
			delete(s.Instances, op.Channel) // it was only kept for that
		}
		return
	}
	if op.Again {
		i.Lease.Again = now
		return
	}
	s.LeaseCount++
	i.Lease = &Lease{ID: op.ID, Runtime: op.Runtime, Version: op.Version, Asked: now}
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

func (s *State) lease(id string) *Lease {
	// In any order: ids are unique.
	//workflowcheck:ignore
	for _, i := range s.Instances {
		if i.Lease != nil && i.Lease.ID == id {
			return i.Lease
		}
	}
	return nil
}
