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

// maxAccount bounds what an apply reports, in bytes.
const maxAccount = 16 << 10

// account is what an apply did, a line for each object that it changed, for `converge logs`.
type account struct {
	lines []string
	same  int // objects that were left as they are
}

func (a *account) say(format string, args ...any) {
	a.lines = append(a.lines, fmt.Sprintf(format, args...))
}

// report says what became of an object.
func (a *account) report(t *trial, applied *unstructured.Unstructured) {
	name := called(applied)
	switch {
	case t.fails:
		a.say("ran %s again, which had failed: run %d", name, t.runs)
	case t.outcome == recreated:
		a.say("recreated %s", name)
	case t.live == nil:
		a.say("created %s", name)
	case t.forConfig():
		a.say("configured %s (%s)", name, beginAnew)
	case len(t.fields) == 1:
		a.say("configured %s (%s)", name, t.fields[0].Path)
	case len(t.fields) == 0:
		a.say("configured %s", name)
	default:
		a.say("configured %s (%d fields)", name, len(t.fields))
	}
	if t.adoption != nil && len(t.adoption.managers) > 0 {
		a.say("adopted %s from %s", name, strings.Join(t.adoption.managers, ", "))
	}
	for _, c := range t.taken {
		if c.byHand() {
			a.say("took back %s of %s from %s", c.field, name, c.owner)
		} else {
			a.say("took over %s of %s from %s", c.field, name, c.owner)
		}
	}
}

// called is Deployment/web.
func called(o *unstructured.Unstructured) string { return o.GetKind() + "/" + o.GetName() }

func (a *account) output() runtimes.Output {
	lines := a.lines
	switch {
	case a.same == 1:
		lines = append(lines, "unchanged 1 object")
	case a.same > 1:
		lines = append(lines, fmt.Sprintf("unchanged %d objects", a.same))
	}
	text := strings.Join(lines, "\n")
	if text != "" {
		text = runtimes.Clip(text+"\n", maxAccount)
	}
	return runtimes.Output{Command: "server-side apply", Stdout: text}
}

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
