package store

import (
	"container/list"
	"sync"
)

// maxCached bounds the bytes that a store holds in memory.
const maxCached = 32 << 20

// cache holds things that never change, the least recently used ones dropped first. What is in it
// is shared and must not be edited.
type cache struct {
	mu      sync.Mutex
	size    int
	byKey   map[string]*list.Element
	recency *list.List // most recent first
}

type cached struct {
	key  string
	v    any
	size int
}

func newCache() *cache { return &cache{byKey: map[string]*list.Element{}, recency: list.New()} }

func (c *cache) get(key string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[key]
	if !ok {
		return nil, false
	}
	c.recency.MoveToFront(e)
	return e.Value.(cached).v, true
}

// put keeps a thing of a size; one too large to be worth it is not kept.
func (c *cache) put(key string, v any, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byKey[key] != nil || size > maxCached/4 {
		return
	}
	c.byKey[key] = c.recency.PushFront(cached{key, v, size})
	c.size += size
	for c.size > maxCached {
		oldest := c.recency.Remove(c.recency.Back()).(cached)
		delete(c.byKey, oldest.key)
		c.size -= oldest.size
	}
}
