package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"go.temporal.io/server/common/metrics"

	"github.com/converge-engine/converge/entities"
)

// actions counts, by kind, what Temporal Cloud takes money for: the server says so itself in its metric "action". Queries and
// heartbeats are among them.
type actions struct {
	metrics.Handler
	mu    sync.Mutex
	taken map[string]int64
}

func newActions() *actions {
	return &actions{Handler: metrics.NoopMetricsHandler, taken: map[string]int64{}}
}

// WithTags implements metrics.Handler.
func (a *actions) WithTags(...metrics.Tag) metrics.Handler { return a }

// Counter implements metrics.Handler.
func (a *actions) Counter(name string) metrics.CounterIface {
	if name != metrics.ActionCounter.Name() {
		return a.Handler.Counter(name)
	}
	return metrics.CounterFunc(func(n int64, tags ...metrics.Tag) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, tag := range tags {
			if tag.Key == metrics.ActionType("").Key {
				a.taken[tag.Value] += n
			}
		}
	})
}

func (a *actions) soFar() map[string]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.taken)
}

// actionsSince is how many of each kind were taken since, and of all.
func actionsSince(before, now usage) (of map[string]int64, all int64) {
	of = map[string]int64{}
	for kind, n := range now.Actions {
		if n -= before.Actions[kind]; n > 0 {
			of[kind] = n
			all += n
		}
	}
	return of, all
}

// kindsOf lists actions by kind, the most frequent first.
func kindsOf(of map[string]int64) string {
	kinds := entities.SortedKeys(of)
	slices.SortStableFunc(kinds, func(a, b string) int { return int(of[b] - of[a]) })
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", of[kind], strings.NewReplacer("grpc_", "", "command_", "").Replace(kind))
	}
	return strings.Join(kinds, ", ")
}
