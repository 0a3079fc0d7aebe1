package kubernetes

import (
	"context"
	"sync"
	"time"
)

// nodes caches for a few seconds whether nodes answer. The zero value is ready.
type nodes struct {
	mu  sync.Mutex
	all map[string]recentNode
}

type recentNode struct {
	at    time.Time
	ready condition
}

func (n *nodes) readyCondition(ctx context.Context, ob *observation, name string) condition {
	n.mu.Lock()
	known, ok := n.all[name]
	n.mu.Unlock()
	if ok && ob.now().Sub(known.at) < eventsTTL {
		return known.ready
	}
	known = recentNode{at: ob.now(), ready: ob.nodeOf(ctx, name)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil || len(n.all) >= maxRecent {
		n.all = map[string]recentNode{}
	}
	n.all[name] = known
	return known.ready
}

// containerLog caches the last output of a container before it ended. It is requested once for each end, and not often.
func (h *recentCache) containerLog(now time.Time, key string, fetch func() string) string {
	h.mu.Lock()
	known, ok := h.logs[key]
	h.mu.Unlock()
	if ok && (known.text != "" || now.Sub(known.at) < eventsTTL) {
		return known.text
	}
	known = recentLog{at: now, text: fetch()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.logs == nil || len(h.logs) >= maxRecent {
		h.logs = map[string]recentLog{}
	}
	h.logs[key] = known
	return known.text
}

type recentLog struct {
	at   time.Time
	text string
}
