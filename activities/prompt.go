package activities

import (
	"maps"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
)

// prompt tracks which runtimes answered the last reading of this worker quickly.
type prompt struct {
	mu   sync.Mutex
	last map[string]answered // by digest of the runtime
}

type answered struct {
	at     time.Time
	atOnce bool
}

const (
	promptly     = 100 * time.Millisecond // a fifth of the time that a workflow task waits for a reading
	promptlyThen = time.Minute            // how long a measurement is valid
)

// read records the duration of a reading of a runtime.
func (p *prompt) read(runtime string, began time.Time, took time.Duration, reading entities.Reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.last, func(_ string, a answered) bool { return began.Sub(a.at) >= promptlyThen })
	if p.last == nil {
		p.last = map[string]answered{}
	}
	p.last[runtime] = answered{began, reading.Err == nil && took <= promptly}
}

// answers reports whether the last reading of a runtime was quick and is recent.
func (p *prompt) answers(runtime string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[runtime]
	return last.atOnce && now.Sub(last.at) < promptlyThen
}
