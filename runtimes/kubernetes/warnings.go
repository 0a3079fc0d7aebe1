package kubernetes

import (
	"context"
	"slices"
	"sync"
)

// warnings collects what the server warned of during one call, each text once.
type warnings struct {
	mu   sync.Mutex
	text []string
}

type warningsKey struct{}

// collectWarnings gives a context whose requests leave the server's warnings in what is returned.
func collectWarnings(ctx context.Context) (context.Context, *warnings) {
	w := &warnings{}
	return context.WithValue(ctx, warningsKey{}, w), w
}

func (w *warnings) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.text)
}

// warningsToCaller hands warnings to whoever collects them; nobody prints them.
type warningsToCaller struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (warningsToCaller) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	w, ok := ctx.Value(warningsKey{}).(*warnings)
	if !ok || text == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.text, text) {
		w.text = append(w.text, text)
	}
}
