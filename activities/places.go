package activities

import (
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
)

// Places is how many activities a worker carries out at once.
const Places = 1000

// What waits for others to answer gets a part of them, so that whoever answers late or never takes no place from anything
// that changes something, nor from what asks others.
const (
	readingPlaces = 500
	runtimePlaces = 200 // of those, the readings of one runtime
	checkPlaces   = 250
	askerPlaces   = 100 // of those, the checks of one application
)

// How long whoever finds no place stays away: twice as long as the one who has been there the longest, within these.
const (
	shortestAway = time.Second
	longestAway  = time.Minute
)

// places are for one sort of activity. The zero value with its bounds set is empty.
type places struct {
	all, each int // at once: altogether, and those that ask one and the same

	mu    sync.Mutex
	taken map[string]map[*place]struct{} // by who is asked
	now   int
}

type place struct{ since time.Time }

// take gives a place to something that asks somebody, until it leaves, which it may do twice. Without one, it says how long to stay away.
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

// noPlace asks the server for another attempt later, which writes no history.
func noPlace(what string, away time.Duration) error {
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("no place for one more of %s: as many as there may be are under way in this worker", what), protocol.ErrUnchanged,
		temporal.ApplicationErrorOptions{NextRetryDelay: away, Category: temporal.ApplicationErrorCategoryBenign})
}
