package activities

import (
	"maps"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
)

// prompt knows which runtimes answered this worker at once when it read them last, a moment ago.
type prompt struct {
	mu   sync.Mutex
	last map[string]answered // by digest of the runtime
}

type answered struct {
	at     time.Time
	atOnce bool
}

const (
	promptly     = 100 * time.Millisecond // a fifth of how long a workflow task waits for a reading
	promptlyThen = time.Minute            // for how long that is taken to be so
)

// read notes how long a reading of a runtime took that began then.
func (p *prompt) read(runtime string, began time.Time, took time.Duration, reading entities.Reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.last, func(_ string, a answered) bool { return began.Sub(a.at) >= promptlyThen })
	if p.last == nil {
		p.last = map[string]answered{}
	}
	p.last[runtime] = answered{began, reading.Err == nil && took <= promptly}
}

// answers tells whether a runtime did so lately.
func (p *prompt) answers(runtime string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.last[runtime]
	return last.atOnce && now.Sub(last.at) < promptlyThen
}
