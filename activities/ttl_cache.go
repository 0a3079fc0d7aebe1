package activities

import (
	"maps"
	"sync"
	"time"
)

// ttlCache is a cache with a time to live for reads of the store, by key. Concurrent misses are not coalesced: no caller waits for another
// caller's read.
type ttlCache[T any] struct {
	mu      sync.Mutex
	entries map[string]cacheEntry[T]
}

type cacheEntry[T any] struct {
	at    time.Time // when the read began
	value T
}

// maxCacheTTL is the maximum age of an entry.
const maxCacheTTL = time.Minute

// get returns the value of a key if it is younger than maxAge, or reads it. Errors are not cached.
func (l *ttlCache[T]) get(key string, maxAge time.Duration, read func() (T, error)) (T, error) {
	now := time.Now()
	if k, ok := l.load(key); ok && now.Sub(k.at) < maxAge {
		return k.value, nil
	}
	v, err := read()
	if err == nil {
		l.store(key, cacheEntry[T]{now, v})
	}
	return v, err
}

func (l *ttlCache[T]) load(key string) (cacheEntry[T], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.entries[key]
	return k, ok
}

// store adds an entry and drops expired ones.
func (l *ttlCache[T]) store(key string, entry cacheEntry[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.entries, func(_ string, k cacheEntry[T]) bool { return entry.at.Sub(k.at) >= maxCacheTTL })
	if l.entries == nil {
		l.entries = map[string]cacheEntry[T]{}
	}
	l.entries[key] = entry
}

// reset clears the cache.
func (l *ttlCache[T]) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.entries)
}
