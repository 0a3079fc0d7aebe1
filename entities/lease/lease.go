// Package lease is the ledger of who may apply on a runtime with a limit of concurrent applies (C10): held leases, waiting leases, the
// holders to notify and the holders to query. It sends nothing. It has only functions of a ledger and a time.
package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

const (
	// MaxWaiting limits the waiting leases. Further requests are refused.
	MaxWaiting = 10_000
	// answerTimeout is how long a holder has to answer a query whether it still holds a lease.
	answerTimeout = time.Minute
	// fastQueries is the number of queries at that interval. After that the interval doubles, up to maxQueryInterval.
	fastQueries      = 3
	maxQueryInterval = time.Hour
)

// Ledger lists the held and the waiting leases. It never takes a lease from a live holder: the apply of that holder may be running, and
// leases exist to prevent one apply too many. The holder is queried repeatedly and shown. An operator may take the lease back.
type Ledger struct {
	Limit   int              `json:"limit,omitempty"`
	Paused  bool             `json:"paused,omitempty"` // grants nothing
	Held    []entities.Lease `json:"held,omitempty"`
	Waiting []entities.Lease `json:"waiting,omitempty"` // first come, first served; rollbacks first
}

// Check returns why a lease cannot even wait, or nil.
func (l *Ledger) Check(r entities.LeaseRequest) error {
	if len(l.Waiting) >= MaxWaiting && Find(l.Held, r.ID) < 0 && Find(l.Waiting, r.ID) < 0 {
		return fmt.Errorf("%d leases are already waiting; try again later", MaxWaiting)
	}
	return nil
}

// CheckHolder refuses a request with the id of a lease of another holder.
func (l *Ledger) CheckHolder(r entities.LeaseRequest) error {
	for _, of := range [...][]entities.Lease{l.Held, l.Waiting} {
		if i := Find(of, r.ID); i >= 0 && of[i].Holder != r.Holder {
			return fmt.Errorf("lease %q belongs to %s, not to %s", r.ID, of[i].Holder, r.Holder)
		}
	}
	return nil
}

// Request records a request that passed Check. If the lease is held already, Request returns it, and the caller grants it again. A waiting
// lease keeps its position. The limit in the request takes effect now.
func (l *Ledger) Request(r entities.LeaseRequest, now time.Time) (held *entities.Lease) {
	l.Limit = r.Limit
	if i := Find(l.Held, r.ID); i >= 0 {
		l.Held[i].LeaseRequest = r
		confirm(&l.Held[i], now)
		return &l.Held[i]
	}
	if i := Find(l.Waiting, r.ID); i >= 0 {
		l.Waiting[i].LeaseRequest = r
	} else {
		l.Waiting = append(l.Waiting, entities.Lease{LeaseRequest: r, Since: now})
	}
	slices.SortStableFunc(l.Waiting, func(a, b entities.Lease) int { return cmp.Compare(priority(a), priority(b)) })
	return nil
}

// priority is the sort key of waiting leases: rollbacks first.
func priority(l entities.Lease) int {
	if l.Rollback {
		return 0
	}
	return 1
}

// Grantable returns how many waiting leases can be granted now.
func (l *Ledger) Grantable() int {
	if l.Paused {
		return 0
	}
	return max(min(len(l.Waiting), l.Limit-len(l.Held)), 0)
}

// Grant moves up to maxCount leases from waiting to held, within the limit. It returns them; the caller notifies their holders.
func (l *Ledger) Grant(now time.Time, maxCount int) (granted []entities.Lease) {
	for range min(maxCount, l.Grantable()) {
		granted = append(granted, l.GrantAt(0, now))
	}
	return granted
}

// GrantAt grants the waiting lease at a position, whether or not the limit allows it.
func (l *Ledger) GrantAt(index int, now time.Time) entities.Lease {
	h := l.Waiting[index]
	l.Waiting = slices.Delete(l.Waiting, index, index+1)
	h.Since = now
	confirm(&h, now)
	l.Held = append(l.Held, h)
	return h
}

// End ends a held or waiting lease.
func (l *Ledger) End(id string) (was entities.Lease, known bool) {
	for _, list := range []*[]entities.Lease{&l.Held, &l.Waiting} {
		if i := Find(*list, id); i >= 0 {
			was = (*list)[i]
			*list = slices.Delete(*list, i, i+1)
			return was, true
		}
	}
	return was, false
}

// Confirm records that a holder still holds its lease. The next query is due after the timeout of an apply.
func (l *Ledger) Confirm(id string, now time.Time) {
	if i := Find(l.Held, id); i >= 0 {
		confirm(&l.Held[i], now)
	}
}

func confirm(h *entities.Lease, now time.Time) {
	h.QueriedAt, h.UnansweredQueries, h.NextQuery = time.Time{}, 0, now.Add(h.Timeout)
}

// QueriesDue returns how many holders are to be queried or notified again now.
func (l *Ledger) QueriesDue(now time.Time) (n int) {
	for i := range l.Held {
		if !l.Held[i].NextQuery.After(now) {
			n++
		}
	}
	return n
}

// TakeOverdue returns up to maxCount leases whose holders are to be queried or notified again now, and records the query.
func (l *Ledger) TakeOverdue(now time.Time, maxCount int) (overdue []entities.Lease) {
	for i := range l.Held {
		h := &l.Held[i]
		if len(overdue) >= maxCount || h.NextQuery.After(now) {
			continue
		}
		wait := answerTimeout
		if !h.Undelivered {
			h.QueriedAt, h.UnansweredQueries = now, h.UnansweredQueries+1
			wait = min(answerTimeout<<min(max(0, h.UnansweredQueries-fastQueries), 10), maxQueryInterval)
		}
		h.NextQuery = now.Add(wait)
		overdue = append(overdue, *h)
	}
	return overdue
}

// Delivered records whether the grant of a lease reached its holder.
func (l *Ledger) Delivered(id string, ok bool, now time.Time) {
	i := Find(l.Held, id)
	switch {
	case i < 0:
	case !ok:
		l.Held[i].Undelivered, l.Held[i].NextQuery = true, now.Add(answerTimeout)
	case l.Held[i].Undelivered:
		l.Held[i].Undelivered = false
		confirm(&l.Held[i], now)
	}
}

// EndAll ends all leases of a holder that no longer exists.
func (l *Ledger) EndAll(holder string) (lost []entities.Lease) {
	for _, list := range []*[]entities.Lease{&l.Held, &l.Waiting} {
		*list = slices.DeleteFunc(*list, func(h entities.Lease) bool {
			if h.Holder == holder {
				lost = append(lost, h)
			}
			return h.Holder == holder
		})
	}
	return lost
}

// NextQuery returns when the next holder is to be queried. Zero means that there is none.
func (l *Ledger) NextQuery() (at time.Time) {
	for _, h := range l.Held {
		if at.IsZero() || h.NextQuery.Before(at) {
			at = h.NextQuery
		}
	}
	return at
}

// Find returns the index of a lease in a list, or -1.
func Find(leases []entities.Lease, id string) int {
	return slices.IndexFunc(leases, func(h entities.Lease) bool { return h.ID == id })
}

// IDs lists the first few lease ids, for people.
func IDs(leases []entities.Lease) string {
	const shown = 8
	var names []string
	for i, h := range leases {
		if i == shown {
			names = append(names, fmt.Sprintf("%d more", len(leases)-shown))
			break
		}
		names = append(names, fmt.Sprintf("%q", h.ID))
	}
	return cmp.Or(strings.Join(names, ", "), "none")
}
