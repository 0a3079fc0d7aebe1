package workflows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file decides about leases (C10): functions of the state and of a time. Nothing is sent here.

const (
	// maxWaiting bounds the leases that wait; who comes beyond is refused.
	maxWaiting = 10_000
	// answerWithin is how long a holder has to answer whether it still holds a lease.
	answerWithin = time.Minute
	// patientAsks is how often it is asked at that pace. Then the pauses double, up to askSeldom.
	patientAsks = 3
	askSeldom   = time.Hour
)

// ledger is what is held and waited for. A lease is never taken from a holder that lives: its apply may
// be running, and one too many at once is what leases are there to prevent. It is asked again and again
// and shown; a person may take it back (release).
type ledger struct{ *protocol.RuntimeState }

// checkLease refuses what is no request for a lease.
func checkLease(r protocol.LeaseRequest) error {
	switch {
	case r.ID == "" || r.Holder == "":
		return errors.New(`"id" and "holder" are needed: of the lease, and of the workflow that asks for it`)
	case len(r.ID) > 2*maxName || len(r.Holder) > maxName:
		return fmt.Errorf(`"id" or "holder" is too long; at most %d and %d bytes`, 2*maxName, maxName)
	case r.Limit < 1:
		return fmt.Errorf(`"limit" is %d; expected at least 1: where nothing is bounded no lease is asked for`, r.Limit)
	case r.Timeout <= 0:
		return fmt.Errorf(`"timeout" is %s; expected how long an apply may take`, r.Timeout)
	}
	return nil
}

// request notes that a lease is wanted. One that is held already is to be granted again; one that waits
// keeps its place. The limit that it names counts from now on.
func (l ledger) request(r protocol.LeaseRequest, now time.Time) (held bool, err error) {
	r.What = clip(r.What, maxName)
	if i := find(l.Held, r.ID); i >= 0 {
		l.Limit = r.Limit
		l.Held[i].LeaseRequest = r
		l.kept(&l.Held[i], now)
		return true, nil
	}
	i := find(l.Waiting, r.ID)
	switch {
	case i >= 0:
		l.Waiting[i].LeaseRequest = r
	case len(l.Waiting) >= maxWaiting:
		return false, fmt.Errorf("%d leases wait already; ask again later", maxWaiting)
	default:
		l.Waiting = append(l.Waiting, protocol.HeldLease{LeaseRequest: r, Since: now})
	}
	l.Limit = r.Limit
	slices.SortStableFunc(l.Waiting, func(a, b protocol.HeldLease) int {
		switch {
		case a.Rollback == b.Rollback:
			return 0
		case a.Rollback:
			return -1
		}
		return 1
	})
	return false, nil
}

// grant moves leases from waiting to held while there is room, and returns them. Nothing is granted
// while the runtime is paused.
func (l ledger) grant(now time.Time) (granted []protocol.HeldLease) {
	for l.Pause == nil && len(l.Waiting) > 0 && len(l.Held) < l.Limit {
		granted = append(granted, l.admit(0, now))
	}
	return granted
}

// admit grants the lease at a place in the line.
func (l ledger) admit(place int, now time.Time) protocol.HeldLease {
	h := l.Waiting[place]
	l.Waiting = slices.Delete(l.Waiting, place, place+1)
	h.Since, h.Asked, h.Asks, h.Due = now, time.Time{}, 0, now.Add(h.Timeout)
	l.Held = append(l.Held, h)
	return h
}

// give ends a lease, held or waited for.
func (l ledger) give(id string) (was protocol.HeldLease, known bool) {
	for _, list := range []*[]protocol.HeldLease{&l.Held, &l.Waiting} {
		if i := find(*list, id); i >= 0 {
			was = (*list)[i]
			*list = slices.Delete(*list, i, i+1)
			return was, true
		}
	}
	return was, false
}

// keep notes that its holder still holds a lease. It is asked again when another apply could have ended.
func (l ledger) keep(id string, now time.Time) {
	if i := find(l.Held, id); i >= 0 {
		l.kept(&l.Held[i], now)
	}
}

func (l ledger) kept(h *protocol.HeldLease, now time.Time) {
	h.Asked, h.Asks, h.Due = time.Time{}, 0, now.Add(h.Timeout)
}

// overdue returns the leases whose holders are to be asked now, and notes that they were.
func (l ledger) overdue(now time.Time) (ask []protocol.HeldLease) {
	for i := range l.Held {
		h := &l.Held[i]
		if h.Due.After(now) {
			continue
		}
		wait := answerWithin
		if !h.Untold {
			h.Asked, h.Asks = now, h.Asks+1
			wait = min(answerWithin<<min(max(0, h.Asks-patientAsks), 10), askSeldom)
		}
		h.Due = now.Add(wait)
		ask = append(ask, *h)
	}
	return ask
}

// told notes whether the grant of a lease has reached its holder.
func (l ledger) told(id string, ok bool, now time.Time) {
	i := find(l.Held, id)
	if i < 0 {
		return
	}
	h := &l.Held[i]
	switch {
	case !ok:
		h.Untold, h.Due = true, now.Add(answerWithin)
	case h.Untold:
		h.Untold = false
		l.kept(h, now)
	}
}

// lose ends all leases of a workflow that no longer exists.
func (l ledger) lose(holder string) (lost []protocol.HeldLease) {
	for _, list := range []*[]protocol.HeldLease{&l.Held, &l.Waiting} {
		*list = slices.DeleteFunc(*list, func(h protocol.HeldLease) bool {
			if h.Holder == holder {
				lost = append(lost, h)
			}
			return h.Holder == holder
		})
	}
	return lost
}

// due is when a holder is to be asked next; zero: nobody is.
func (l ledger) due() (at time.Time) {
	for _, h := range l.Held {
		at = earliest(at, h.Due)
	}
	return at
}

func find(leases []protocol.HeldLease, id string) int {
	return slices.IndexFunc(leases, func(h protocol.HeldLease) bool { return h.ID == id })
}
