// Package logs configures the log of a worker: text or JSON, one record per line. Every line about a service names the service, and as far
// as known the channel, release, workflow and run. It imports the protocol.
package logs

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/converge-engine/converge/entities/protocol"
)

// New makes a logger with a format (text, json) and a minimum level (debug, info, warn, error).
func New(out io.Writer, format, level string) (*slog.Logger, error) {
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: expected debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: least}
	switch format {
	case "text":
		return slog.New(&handler{Handler: slog.NewTextHandler(out, o)}), nil
	case "json":
		return slog.New(&handler{Handler: slog.NewJSONHandler(out, o)}), nil
	}
	return nil, fmt.Errorf("--log-format %q: expected text or json", format)
}

// handler adds application and service to records that name a workflow, unless they are present.
type handler struct {
	slog.Handler
	workflow   string // from earlier attributes
	hasService bool   // the service is present
}

// The keys under which a record names a workflow: our key, and that of Temporal's SDK.
const (
	ourKey = "workflow"
	sdkKey = "WorkflowID"
)

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	id, hasService := h.workflow, h.hasService
	r.Attrs(func(a slog.Attr) bool {
		id, hasService = readAttr(a, id, hasService)
		return true
	})
	if application, service, ok := protocol.ParseServiceID(id); ok && !hasService {
		r = r.Clone()
		r.AddAttrs(slog.String("application", application), slog.String("service", service))
	}
	return h.Handler.Handle(ctx, r)
}

func readAttr(a slog.Attr, id string, hasService bool) (string, bool) {
	switch a.Key {
	case ourKey, sdkKey:
		id = a.Value.String()
	case "service":
		hasService = true
	}
	return id, hasService
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &handler{h.Handler.WithAttrs(attrs), h.workflow, h.hasService}
	for _, a := range attrs {
		with.workflow, with.hasService = readAttr(a, with.workflow, with.hasService)
	}
	return with
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.workflow, h.hasService}
}
