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

func (n *nodes) of(ctx context.Context, ob *observation, name string) condition {
	n.mu.Lock()
	known, ok := n.all[name]
	n.mu.Unlock()
	if ok && ob.now().Sub(known.at) < eventsFor {
		return known.ready
	}
	known = recentNode{at: ob.now(), ready: ob.nodeOf(ctx, name)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil || len(n.all) >= maxRemembered {
		n.all = map[string]recentNode{}
	}
	n.all[name] = known
	return known.ready
}

// words caches the last output of a container before it ended. It is requested once for each end, and not often.
func (h *happened) words(now time.Time, key string, ask func() string) string {
	h.mu.Lock()
	known, ok := h.said[key]
	h.mu.Unlock()
	if ok && (known.text != "" || now.Sub(known.at) < eventsFor) {
		return known.text
	}
	known = recentWords{at: now, text: ask()}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.said == nil || len(h.said) >= maxRemembered {
		h.said = map[string]recentWords{}
	}
	h.said[key] = known
	return known.text
}

type recentWords struct {
	at   time.Time
	text string
}
