package activities

import (
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
)

// Places is the limit of concurrent activities of a worker.
const Places = 1000

// Activities that wait for external answers are limited to a share of the places. Slow or missing answers then do not block activities
// that make changes, or those that query other systems.
const (
	readingPlaces = 500
	runtimePlaces = 200 // of these, per runtime
	checkPlaces   = 250
	askerPlaces   = 100 // of these, per application
)

// The retry delay without a free place is twice the age of the oldest holder, within these bounds.
const (
	shortestAway = time.Second
	longestAway  = time.Minute
)

// places limits the concurrency of one kind of activity. The zero value with its limits set is empty.
type places struct {
	all, each int // limits: in total, and per queried system

	mu    sync.Mutex
	taken map[string]map[*place]struct{} // by queried system
	now   int
}

type place struct{ since time.Time }

// take acquires a place for a query of a system until leave is called, which is idempotent. Without a free place, leave is nil and away
// is the retry delay.
func (p *places) take(who string, now time.Time) (leave func(), away time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.taken[who]) >= p.each || p.now >= p.all {
		return nil, p.away(who, now)
	}
	if p.taken == nil {
		p.taken = map[string]map[*place]struct{}{}
	}
	if p.taken[who] == nil {
		p.taken[who] = map[*place]struct{}{}
	}
	mine := &place{since: now}
	p.taken[who][mine] = struct{}{}
	p.now++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, here := p.taken[who][mine]; !here {
			return
		}
		if delete(p.taken[who], mine); len(p.taken[who]) == 0 {
			delete(p.taken, who)
		}
		p.now--
	}, 0
}

func (p *places) away(who string, now time.Time) time.Duration {
	oldest := now
	for one := range p.taken[who] {
		if one.since.Before(oldest) {
			oldest = one.since
		}
	}
	return min(max(2*now.Sub(oldest), shortestAway), longestAway)
}

// noPlace returns an error that makes the server retry later. The retry writes no history.
func noPlace(what string, away time.Duration) error {
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("concurrency limit of this worker reached for %s", what), protocol.ErrUnchanged,
		temporal.ApplicationErrorOptions{NextRetryDelay: away, Category: temporal.ApplicationErrorCategoryBenign})
}
