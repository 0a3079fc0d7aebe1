package activities

import (
	"context"

	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// log keeps what a command printed for `converge logs`. Losing it is no reason to fail.
func (a *Activities) log(ctx context.Context, in runtimes.Instance, kind store.LogKind, o runtimes.Output, failed error) {
	if o.Command == "" {
		return // a runtime without commands
	}
	entry := store.LogEntry{
		Kind: kind, At: o.Started, FullVersion: in.FullVersion, Command: o.Command, ExitCode: o.ExitCode,
		Stdout: o.Stdout, Stderr: o.Stderr, Duration: o.Duration,
	}
	if failed != nil {
		entry.Error = failed.Error()
	}
	if err := a.Store.PutLog(context.WithoutCancel(ctx), in.Application, in.Service, in.ID.Key(), entry); err != nil {
		activity.GetLogger(ctx).Warn("output not kept", "instance", in.ID.String(), "error", err)
	}
}

// logFetch keeps what an observation printed.
func (a *Activities) logFetch(ctx context.Context, in runtimes.Instance, o runtimes.Output, reading entities.Reading) {
	var failed error
	if reading.Err != nil {
		failed = reading.Err
	}
	a.log(ctx, in, store.LogFetch, o, failed)
}
