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

// lately keeps what was read of the store, by key: one read serves many applies.
type lately[T any] struct {
	mu    sync.Mutex
	known map[string]known[T]
}

type known[T any] struct {
	at time.Time // when it was asked for
	v  T
}

// get returns what was read under a key less than holdsFor ago, or reads it. An error is not kept.
func (l *lately[T]) get(key string, read func() (T, error)) (T, error) {
	began := time.Now()
	if k, ok := l.recall(key, began); ok {
		return k.v, nil
	}
	v, err := read()
	if err == nil {
		l.keep(key, known[T]{began, v})
	}
	return v, err
}

func (l *lately[T]) recall(key string, now time.Time) (known[T], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.known[key]
	return k, ok && now.Sub(k.at) < holdsFor
}

// keep keeps what was read, and drops what is too old to be of use.
func (l *lately[T]) keep(key string, read known[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.known, func(_ string, old known[T]) bool { return read.at.Sub(old.at) >= holdsFor })
	if l.known == nil {
		l.known = map[string]known[T]{}
	}
	l.known[key] = read
}

// forget makes the next apply read again.
func (l *lately[T]) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.known)
}

// held says which pause holds an apply of an application on a runtime, whether its service has heard of that or not; or
// that it cannot be known.
func (a *Activities) held(ctx context.Context, application, runtime string) error {
	pauses, err := a.pauses.get(application+"/"+runtime, func() ([]protocol.ScopePause, error) {
		pauses, err := a.Store.Pauses(ctx, application, []string{runtime})
		var damaged *store.CorruptError
		if errors.As(err, &damaged) { // what is damaged is no pause; its service may know of one
			err = nil
		}
		return pauses, err
	})
	if err != nil {
		return fmt.Errorf("pauses in force: %w", err)
	}
	if len(pauses) == 0 {
		return nil
	}
	p := pauses[0]
	return fmt.Errorf("%s is paused by %s%s", p.Scope, p.Pause.By, entities.Because(p.Pause.Reason))
}
