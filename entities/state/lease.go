package state

import (
	"time"
)

// This file takes in what becomes of leases: the right to be one of the applies that run at once on a runtime
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
		if i.Delivery.Target == nil && s.Spec != nil && !s.Declared(op.Instance) {
			s.drop(op.Instance) // it was only kept for that
		}
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
