// Package lease keeps account of who may apply on a runtime that bounds how many applies go on there at once (C10):
// what is held, what waits, whom to notify and whom to ask. It sends nothing. Functions of a ledger and a time.
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
	// MaxWaiting bounds the leases that wait; who comes beyond is refused.
	MaxWaiting = 10_000
	// answerWithin is how long a holder has to answer whether it still holds a lease.
	answerWithin = time.Minute
	// patientAsks is how often it is asked at that pace. Then the pauses double, up to askSeldom.
	patientAsks = 3
	askSeldom   = time.Hour
)

// Ledger is what is held and waited for. A lease is never taken from a holder that lives: its apply may
// be running, and one too many at once is what leases are there to prevent. It is asked again and again
// and shown; a person may take it back.
type Ledger struct {
	Limit   int              `json:"limit,omitempty"`
	Paused  bool             `json:"paused,omitempty"` // nothing is granted
	Held    []entities.Lease `json:"held,omitempty"`
	Waiting []entities.Lease `json:"waiting,omitempty"` // first come first served, rollbacks first
}

// Check says why a lease cannot even wait, or nil.
func (l *Ledger) Check(r entities.LeaseRequest) error {
	if len(l.Waiting) >= MaxWaiting && Find(l.Held, r.ID) < 0 && Find(l.Waiting, r.ID) < 0 {
		return fmt.Errorf("%d leases wait already; ask again later", MaxWaiting)
	}
	return nil
}

// Others refuses a request under the id of a lease that somebody else holds or waits for.
func (l *Ledger) Others(r entities.LeaseRequest) error {
	for _, of := range [...][]entities.Lease{l.Held, l.Waiting} {
		if i := Find(of, r.ID); i >= 0 && of[i].Holder != r.Holder {
			return fmt.Errorf("lease %q is of %s, not of %s", r.ID, of[i].Holder, r.Holder)
		}
	}
	return nil
}

// Request notes that a lease is wanted, which Check has let pass. One that is held already is returned: it is to
// be granted again. One that waits keeps its place. The limit that it names counts from now on.
func (l *Ledger) Request(r entities.LeaseRequest, now time.Time) (held *entities.Lease) {
	l.Limit = r.Limit
	if i := Find(l.Held, r.ID); i >= 0 {
		l.Held[i].LeaseRequest = r
		kept(&l.Held[i], now)
		return &l.Held[i]
	}
	if i := Find(l.Waiting, r.ID); i >= 0 {
		l.Waiting[i].LeaseRequest = r
	} else {
		l.Waiting = append(l.Waiting, entities.Lease{LeaseRequest: r, Since: now})
	}
	slices.SortStableFunc(l.Waiting, func(a, b entities.Lease) int { return cmp.Compare(turn(a), turn(b)) })
	return nil
}

// turn orders those who wait: rollbacks first.
func turn(l entities.Lease) int {
	if l.Rollback {
		return 0
	}
	return 1
}

// Grantable is how many leases there is room for.
func (l *Ledger) Grantable() int {
	if l.Paused {
		return 0
	}
	return max(min(len(l.Waiting), l.Limit-len(l.Held)), 0)
}

// Grant moves leases from waiting to held while there is room, so many at most, and returns them: their holders are
// to be notified.
func (l *Ledger) Grant(now time.Time, most int) (granted []entities.Lease) {
	for range min(most, l.Grantable()) {
		granted = append(granted, l.Admit(0, now))
	}
	return granted
}

// Admit grants the lease at a place in the line, whatever the limit.
func (l *Ledger) Admit(place int, now time.Time) entities.Lease {
	h := l.Waiting[place]
	l.Waiting = slices.Delete(l.Waiting, place, place+1)
	h.Since = now
	kept(&h, now)
	l.Held = append(l.Held, h)
	return h
}

// Give ends a lease, held or waited for.
func (l *Ledger) Give(id string) (was entities.Lease, known bool) {
	for _, list := range []*[]entities.Lease{&l.Held, &l.Waiting} {
		if i := Find(*list, id); i >= 0 {
			was = (*list)[i]
			*list = slices.Delete(*list, i, i+1)
			return was, true
		}
	}
	return was, false
}

// Keep notes that its holder still holds a lease. It is asked again when another apply could have ended.
func (l *Ledger) Keep(id string, now time.Time) {
	if i := Find(l.Held, id); i >= 0 {
		kept(&l.Held[i], now)
	}
}

func kept(h *entities.Lease, now time.Time) {
	h.Asked, h.Asks, h.Due = time.Time{}, 0, now.Add(h.Timeout)
}

// Asking is how many holders are to be asked now, or notified again.
func (l *Ledger) Asking(now time.Time) (n int) {
	for i := range l.Held {
		if !l.Held[i].Due.After(now) {
			n++
		}
	}
	return n
}

// Overdue returns the leases whose holders are to be asked now, or notified again, so many at most, and notes that
// they were.
func (l *Ledger) Overdue(now time.Time, most int) (ask []entities.Lease) {
	for i := range l.Held {
		h := &l.Held[i]
		if len(ask) >= most || h.Due.After(now) {
			continue
		}
		wait := answerWithin
		if !h.Undelivered {
			h.Asked, h.Asks = now, h.Asks+1
			wait = min(answerWithin<<min(max(0, h.Asks-patientAsks), 10), askSeldom)
		}
		h.Due = now.Add(wait)
		ask = append(ask, *h)
	}
	return ask
}

// Delivered notes whether the grant of a lease has reached its holder.
func (l *Ledger) Delivered(id string, ok bool, now time.Time) {
	i := Find(l.Held, id)
	switch {
	case i < 0:
	case !ok:
		l.Held[i].Undelivered, l.Held[i].Due = true, now.Add(answerWithin)
	case l.Held[i].Undelivered:
		l.Held[i].Undelivered = false
		kept(&l.Held[i], now)
	}
}

// Lose ends all leases of a holder that no longer exists.
func (l *Ledger) Lose(holder string) (lost []entities.Lease) {
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

// Due is when a holder is to be asked next; zero: nobody is.
func (l *Ledger) Due() (at time.Time) {
	for _, h := range l.Held {
		if at.IsZero() || h.Due.Before(at) {
			at = h.Due
		}
	}
	return at
}

// Find is the place of a lease in a list, or -1.
func Find(leases []entities.Lease, id string) int {
	return slices.IndexFunc(leases, func(h entities.Lease) bool { return h.ID == id })
}

// IDs lists the first of some leases, for people.
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
