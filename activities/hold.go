package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// holdsFor is how long a worker goes by what it has read of the pauses in force: a pause that is accepted holds for
// applies that long after it was kept, at most.
const holdsFor = 3 * time.Second

// holds are the pauses of applications and runtimes as they were last read: a read of the store serves many applies.
type holds struct {
	mu   sync.Mutex
	read map[string]hold // by application and runtime
}

type hold struct {
	at     time.Time
	pauses []protocol.ScopePause
}

// held says which pause holds an apply of an application on a runtime, whether its service has heard of that or not; or
// that it cannot be known.
func (a *Activities) held(ctx context.Context, application, runtime string) error {
	key := application + "/" + runtime
	h, known := a.holds.recent(key, time.Now())
	if !known {
		began := time.Now()
		pauses, err := a.Store.Pauses(ctx, application, []string{runtime})
		var damaged *store.CorruptError
		if err != nil && !errors.As(err, &damaged) { // what is damaged is no pause; its service may know of one
			return fmt.Errorf("pauses in force: %w", err)
		}
		h = hold{began, pauses}
		a.holds.keep(key, h)
	}
	if len(h.pauses) == 0 {
		return nil
	}
	p := h.pauses[0]
	return fmt.Errorf("%s is paused by %s%s", p.Scope, p.Pause.By, entities.Because(p.Pause.Reason))
}

func (h *holds) recent(key string, now time.Time) (hold, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.read[key]
	return known, ok && now.Sub(known.at) < holdsFor
}

// keep keeps what was read, and drops what is too old to be of use.
func (h *holds) keep(key string, read hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.read, func(_ string, old hold) bool { return read.at.Sub(old.at) >= holdsFor })
	if h.read == nil {
		h.read = map[string]hold{}
	}
	h.read[key] = read
}

// forget makes the next apply read again.
func (h *holds) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.read)
}
