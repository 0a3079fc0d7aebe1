package kubernetes

import (
	"slices"
	"sync"

	"github.com/converge-engine/converge/runtimes"
)

// hints are those who want to know of changes. The zero value is ready.
type hints struct {
	mu  sync.Mutex
	all []*listener // never changed in place
}

type listener struct{ hint func(runtimes.Owner) }

// tell passes a hint on to everybody. A listener that was just stopped may get one more.
func (h *hints) tell(owner runtimes.Owner) {
	h.mu.Lock()
	all := h.all
	h.mu.Unlock()
	for _, l := range all {
		l.hint(owner)
	}
}

func (h *hints) add(hint func(runtimes.Owner)) (stop func()) {
	added := &listener{hint}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(slices.Clip(h.all), added)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = slices.DeleteFunc(slices.Clone(h.all), func(l *listener) bool { return l == added })
	}
}

// Watch implements runtimes.Watcher: the watches are those that looks began. The pods of a workload
// and its ReplicaSets carry our labels too, so a rollout hints all along. Services on one cluster
// share its watches; so do runtimes that name it in the same way, and each hears of all.
func (r *Runtime) Watch(hint func(runtimes.Owner)) (stop func()) {
	return r.cluster.views.hints.add(hint)
}
