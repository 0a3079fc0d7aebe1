package activities

import (
	"maps"
	"sync"
	"time"
)

// lately keeps what was read of the store a moment ago, by key: one read serves many. Nobody waits for what another reads.
type lately[T any] struct {
	mu   sync.Mutex
	read map[string]known[T]
}

type known[T any] struct {
	at time.Time // when it was asked for
	v  T
}

// longestLately is how old what is kept may become.
const longestLately = time.Minute

// get returns what was read under a key less than a time ago, or reads it. An error is not kept.
func (l *lately[T]) get(key string, old time.Duration, read func() (T, error)) (T, error) {
	now := time.Now()
	if k, ok := l.recall(key); ok && now.Sub(k.at) < old {
		return k.v, nil
	}
	v, err := read()
	if err == nil {
		l.keep(key, known[T]{now, v})
	}
	return v, err
}

func (l *lately[T]) recall(key string) (known[T], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.read[key]
	return k, ok
}

// keep keeps what was read, and drops what is too old to be of use.
func (l *lately[T]) keep(key string, read known[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.read, func(_ string, k known[T]) bool { return read.at.Sub(k.at) >= longestLately })
	if l.read == nil {
		l.read = map[string]known[T]{}
	}
	l.read[key] = read
}

// forget has the next one read again.
func (l *lately[T]) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.read)
}
