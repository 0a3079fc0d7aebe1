package activities

import (
	"maps"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
)

// latencyTracker tracks which runtimes answered the last reading of this worker quickly.
type latencyTracker struct {
	mu   sync.Mutex
	last map[string]lastAnswer // by digest of the runtime
}

type lastAnswer struct {
	at   time.Time
	fast bool
}

const (
	fastLimit = 100 * time.Millisecond // a fifth of the time that a workflow task waits for a reading
	fastTTL   = time.Minute            // how long a measurement is valid
)

// record records the duration of a reading of a runtime.
func (p *latencyTracker) record(runtime string, began time.Time, took time.Duration, reading entities.Reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.last, func(_ string, a lastAnswer) bool { return began.Sub(a.at) >= fastTTL })
	if p.last == nil {
		p.last = map[string]lastAnswer{}
	}
	p.last[runtime] = lastAnswer{began, reading.Err == nil && took <= fastLimit}
}

// isFast reports whether the last reading of a runtime was quick and is recent.
func (p *latencyTracker) isFast(runtime string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[runtime]
	return last.fast && now.Sub(last.at) < fastTTL
}
