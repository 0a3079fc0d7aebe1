package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/converge-engine/converge/runtimes"
)

// maxApplyLog limits the log of an apply, in bytes.
const maxApplyLog = 16 << 10

// applyLog describes what an apply did, with a line for each changed object, for `converge logs`.
type applyLog struct {
	lines     []string
	unchanged int // unchanged objects
}

func (a *applyLog) add(format string, args ...any) {
	a.lines = append(a.lines, fmt.Sprintf(format, args...))
}

// report adds the outcome for an object.
func (a *applyLog) report(t *trial, applied *unstructured.Unstructured) {
	name := displayName(applied)
	switch {
	case t.rerun:
		a.add("reran the failed %s: run %d", name, t.runs)
	case t.outcome == recreated:
		a.add("recreated %s", name)
	case t.live == nil:
		a.add("created %s", name)
	case t.replacedPods() != nil:
		a.add("configured %s (%s)", name, t.replacedPods())
	case len(t.fields) == 1:
		a.add("configured %s (%s)", name, t.fields[0].Path)
	case len(t.fields) == 0:
		a.add("configured %s", name)
	default:
		a.add("configured %s (%d fields)", name, len(t.fields))
	}
	if t.movedFrom != "" {
		a.add("moved %s here from service %s", name, t.movedFrom)
	}
	if t.adoption != nil && len(t.adoption.managers) > 0 {
		a.add("adopted %s from %s", name, strings.Join(t.adoption.managers, ", "))
	}
	for _, f := range t.takenOut {
		a.add("took out %s of %s, %s: the server refuses the declaration together with it", f, name, f.origin())
	}
	for _, c := range t.takenOver {
		if c.isManualEdit() {
			a.add("reverted %s of %s, written by %s", c.field, name, c.owner)
		} else {
			a.add("took over %s of %s from %s", c.field, name, c.owner)
		}
	}
}

// displayName is the name of an object in messages: Deployment/web.
func displayName(o *unstructured.Unstructured) string { return o.GetKind() + "/" + o.GetName() }

func (a *applyLog) output() runtimes.Output {
	lines := a.lines
	switch {
	case a.unchanged == 1:
		lines = append(lines, "unchanged 1 object")
	case a.unchanged > 1:
		lines = append(lines, fmt.Sprintf("unchanged %d objects", a.unchanged))
	}
	text := strings.Join(lines, "\n")
	if text != "" {
		text = runtimes.Clip(text+"\n", maxApplyLog)
	}
	return runtimes.Output{Command: "server-side apply", Stdout: text}
}

// warnings collects the server's warnings during one call, each text once.
type warnings struct {
	mu   sync.Mutex
	text []string
}

type warningsKey struct{}

// collectWarnings returns a context whose requests add the server's warnings to the result.
func collectWarnings(ctx context.Context) (context.Context, *warnings) {
	w := &warnings{}
	return context.WithValue(ctx, warningsKey{}, w), w
}

func (w *warnings) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.text)
}

// warningsToCaller adds warnings to the collector in the context; it prints none.
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
