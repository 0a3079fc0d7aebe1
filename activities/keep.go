package activities

import (
	"context"
	"encoding/json"

	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// storeLog stores the output of a command for `converge logs`. A failed write is ignored.
func (a *Activities) storeLog(ctx context.Context, in runtimes.Request, kind store.LogKind, o runtimes.Output, failed error) {
	if o.Command == "" {
		return // a runtime without commands
	}
	entry := store.LogEntry{
		Kind: kind, At: o.Started, FullVersion: in.FullVersion, Command: o.Command, ExitCode: o.ExitCode, TimedOut: o.TimedOut,
		Stdout: o.Stdout, Stderr: o.Log(), Duration: o.Duration,
	}
	if failed != nil {
		entry.Error = failed.Error()
	}
	if kind == store.LogApply {
		entry.Begun = timesBegun(ctx)
	}
	if err := a.Store.PutLog(context.WithoutCancel(ctx), in.Application, in.Service, in.ID.Key(), entry); err != nil {
		activity.GetLogger(ctx).Warn("output not stored", "instance", in.ID.String(), "error", err)
	}
}

// storeFetchLog stores the output of an observation.
func (a *Activities) storeFetchLog(ctx context.Context, in runtimes.Request, o runtimes.Output, reading entities.Reading) {
	var failed error
	if reading.Err != nil {
		failed = reading.Err
	}
	a.storeLog(ctx, in, store.LogFetch, o, failed)
}

// History stores entries of an audit trail beyond Temporal's retention. Stored entries are not changed, so it is idempotent.
func (a *Activities) History(ctx context.Context, r protocol.HistoryRequest) error {
	return a.Store.AppendAudit(ctx, r.Application, r.Service, r.Entries)
}

// partSize limits one answer of Restore, in bytes.
const partSize = 44 << 10

// Spill stores state that is too large for the input of the next run. Without state it reports whether the store is available.
func (a *Activities) Spill(ctx context.Context, r protocol.SpillRequest) (string, error) {
	if len(r.Packed) == 0 {
		return "", a.Store.CheckWritable(ctx)
	}
	return a.Store.PutState(ctx, r.Packed)
}

// spillIfLarge stores the answer of a local activity if it is too large for a payload. The workflow then gets its digest and reads it like
// spilled state (F8).
func spillIfLarge[T any](ctx context.Context, a *Activities, answer T, err error) (T, error) {
	if err != nil {
		return answer, err
	}
	raw, err := json.Marshal(answer)
	if err != nil || len(raw) <= protocol.MaxAnswer {
		return answer, err
	}
	packed, err := protocol.Pack(json.RawMessage(raw))
	if err != nil {
		return answer, err
	}
	var zero T
	digest, err := a.Store.PutState(ctx, packed)
	any(&zero).(interface{ SetStoredDigest(digest string) }).SetStoredDigest(digest) // each answer that may be stored embeds it
	return zero, err
}

// Restore returns one part of spilled state.
func (a *Activities) Restore(ctx context.Context, r protocol.RestoreRequest) (protocol.RestoreAnswer, error) {
	packed, err := a.Store.State(ctx, r.Digest)
	if err != nil {
		return protocol.RestoreAnswer{}, err
	}
	end := min(r.Offset+partSize, len(packed))
	if r.Offset > end {
		return protocol.RestoreAnswer{}, refuse("carried state %s has %d bytes; none at %d", r.Digest, len(packed), r.Offset)
	}
	return protocol.RestoreAnswer{Part: packed[r.Offset:end], Total: len(packed)}, nil
}
