package activities

import (
	"maps"
	"sync"
	"time"
)

// lately is a cache with a time to live for reads of the store, by key. Concurrent misses are not coalesced: no caller waits for another
// caller's read.
type lately[T any] struct {
	mu   sync.Mutex
	read map[string]known[T]
}

type known[T any] struct {
	at time.Time // when the read began
	v  T
}

// longestLately is the maximum age of an entry.
const longestLately = time.Minute

// get returns the value of a key if it is younger than old, or reads it. Errors are not cached.
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

// keep adds an entry and drops expired ones.
func (l *lately[T]) keep(key string, read known[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.read, func(_ string, k known[T]) bool { return read.at.Sub(k.at) >= longestLately })
	if l.read == nil {
		l.read = map[string]known[T]{}
	}
	l.read[key] = read
}

// forget clears the cache.
func (l *lately[T]) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.read)
}
