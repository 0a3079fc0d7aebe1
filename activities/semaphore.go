package activities

import (
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
)

// MaxConcurrent is the limit of concurrent activities of a worker.
const MaxConcurrent = 1000

// Activities that wait for external answers are limited to a share of MaxConcurrent. Slow or missing answers then do not block activities
// that make changes, or those that query other systems.
const (
	maxReadings          = 500
	maxRuntimeReadings   = 200 // of these, per runtime
	maxChecks            = 250
	maxApplicationChecks = 100 // of these, per application
)

// The retry delay without a free slot is twice the age of the oldest holder, within these bounds.
const (
	minSlotRetry = time.Second
	maxSlotRetry = time.Minute
)

// keyedSemaphore limits the concurrency of one kind of activity. The zero value with its limits set is empty.
type keyedSemaphore struct {
	total, perKey int // limits: in total, and per queried system

	mu    sync.Mutex
	held  map[string]map[*slot]struct{} // by queried system
	inUse int
}

type slot struct{ since time.Time }

// acquire acquires a slot for a query of a system until release is called, which is idempotent. Without a free slot, release is nil and
// retryAfter is the retry delay.
func (p *keyedSemaphore) acquire(key string, now time.Time) (release func(), retryAfter time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held[key]) >= p.perKey || p.inUse >= p.total {
		return nil, p.retryDelay(key, now)
	}
	if p.held == nil {
		p.held = map[string]map[*slot]struct{}{}
	}
	if p.held[key] == nil {
		p.held[key] = map[*slot]struct{}{}
	}
	acquired := &slot{since: now}
	p.held[key][acquired] = struct{}{}
	p.inUse++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, isHeld := p.held[key][acquired]; !isHeld {
			return
		}
		if delete(p.held[key], acquired); len(p.held[key]) == 0 {
			delete(p.held, key)
		}
		p.inUse--
	}, 0
}

func (p *keyedSemaphore) retryDelay(key string, now time.Time) time.Duration {
	oldest := now
	for s := range p.held[key] {
		if s.since.Before(oldest) {
			oldest = s.since
		}
	}
	return min(max(2*now.Sub(oldest), minSlotRetry), maxSlotRetry)
}

// limitReached returns an error that makes the server retry later. The retry writes no history.
func limitReached(what string, retryAfter time.Duration) error {
	return temporal.NewApplicationErrorWithOptions(fmt.Sprintf("concurrency limit of this worker reached for %s", what), protocol.ErrUnchanged,
		temporal.ApplicationErrorOptions{NextRetryDelay: retryAfter, Category: temporal.ApplicationErrorCategoryBenign})
}
