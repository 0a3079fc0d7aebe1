package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// heartbeatInterval is the heartbeat interval: a fifth of the heartbeat timeout. While the server answers slowly, it grows up to
// maxHeartbeatInterval.
const (
	heartbeatInterval    = 2 * time.Second
	maxHeartbeatInterval = 4 * time.Second
)

// lifeline sends heartbeats for as long as an activity makes external changes.
//
// It replaces the SDK's own heartbeats. The SDK delays a heartbeat until 80% of the heartbeat timeout are over, and ends the activity
// when that one is delayed for the rest: a stall of two seconds ended a healthy apply (F7). A failed heartbeat is sent again while there
// is time. Heartbeats continue after a cancellation request: the attempt stays with this worker while it ends.
type lifeline struct {
	a            *Activities
	token        []byte
	key          string                    // under which the workflow reports its termination (State.Terminated)
	maxSilence   time.Duration             // maximum time without a successful heartbeat
	lastSuccess  atomic.Pointer[time.Time] // send time of the last successful heartbeat
	confirmed    chan struct{}             // closed after the first successful heartbeat, or if none is needed
	end          context.CancelCauseFunc
	step         atomic.Pointer[protocol.Progress] // nil: nothing has started
	progress     *runtimes.Progress
	isTerminated atomic.Bool   // the attempt is terminated
	putOff       int           // how often it was put off before
	release      func()        // its place among the writes of this worker; nil: it has none
	stopped      chan struct{} // closed by stop
}

// lifeline starts the heartbeats. It returns a context that ends when the server gives the attempt up: when the server says so, or when
// no heartbeat has succeeded for the heartbeat timeout less a second. So interrupted work has ended before another worker can start, if
// it ends within runtimes.DisconnectGrace and the worker is not frozen.
func (a *Activities) lifeline(ctx context.Context, key string) (context.Context, *lifeline) {
	ctx, end := context.WithCancelCause(ctx)
	info := activity.GetInfo(ctx)
	l := &lifeline{
		a: a, token: info.TaskToken, key: key, maxSilence: info.HeartbeatTimeout - time.Second, confirmed: make(chan struct{}), end: end, stopped: make(chan struct{}),
		putOff: earlierProgress(ctx).PutOff,
	}
	if a.Client == nil || info.HeartbeatTimeout == 0 { // the server expects no heartbeats
		close(l.confirmed)
		return ctx, l
	}
	began, eager := a.Tasks.takeEager(l.token)
	if !eager {
		began = time.Now()
	} else {
		close(l.confirmed)
	}
	l.lastSuccess.Store(&began)
	ctx, l.progress = runtimes.WithProgress(ctx)
	go l.sendLoop(context.WithoutCancel(ctx), eager)
	return runtimes.WithLifeline(ctx, func() time.Time {
		if l.isTerminated.Load() {
			return time.Time{}
		}
		return l.deadline()
	}), l
}

// deadline returns the time at which the server may give the attempt up without a further heartbeat.
func (l *lifeline) deadline() time.Time { return l.lastSuccess.Load().Add(l.maxSilence) }

// stop ends the heartbeats. No external change follows.
func (l *lifeline) stop() {
	close(l.stopped)
	l.end(nil)
	if l.release != nil {
		l.release()
	}
}

// awaitHeartbeat waits for a successful heartbeat, which confirms that the attempt still belongs to this worker. No change is made before
// that, because a delayed attempt may belong to another worker already. An attempt that is known not to be delayed does not wait.
func (l *lifeline) awaitHeartbeat(ctx context.Context) error {
	select {
	case <-l.confirmed:
		return ctx.Err()
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, runtimes.ErrStopRequested) {
			return cause
		}
		return ctx.Err()
	}
}

func (l *lifeline) sendLoop(ctx context.Context, confirmed bool) {
	next := time.NewTimer(0)
	defer next.Stop()
	if confirmed {
		next.Reset(heartbeatInterval)
	}
	for {
		select {
		case <-l.stopped:
			return
		case <-next.C:
		}
		sent := time.Now()
		sendCtx, cancel := context.WithDeadline(ctx, l.deadline())
		overdue := time.AfterFunc(slowAnswer, func() { l.a.writes.answered(slowAnswer, time.Now()) })
		err := l.a.Client.RecordActivityHeartbeat(sendCtx, l.token, l.progressReport())
		cancel()
		overdue.Stop()
		took := time.Since(sent)
		canceled := temporal.IsCanceledError(err)
		if canceled || err == nil { // a quick error is not a quick answer
			l.a.writes.answered(took, time.Now())
		}
		next.Reset(time.Until(sent.Add(max(heartbeatInterval, min(2*took, maxHeartbeatInterval)))))
		if canceled {
			l.end(runtimes.ErrStopRequested)
			l.isTerminated.Store(l.isTerminated.Load() || l.terminated(ctx))
		}
		switch {
		case canceled, err == nil:
			l.lastSuccess.Store(&sent)
			if !confirmed {
				confirmed = true
				close(l.confirmed)
			}
		case isGivenUpError(err) || !time.Now().Before(l.deadline()):
			l.end(fmt.Errorf("%w: %w", runtimes.ErrDisconnected, err))
			return
		}
	}
}

// setStep records the current step and its timeout; 0: no limit.
func (l *lifeline) setStep(channel, what string, timeout time.Duration) {
	now := time.Now().UTC()
	step := &protocol.Progress{Channel: channel, Description: what, Since: now}
	if timeout > 0 {
		step.Until = now.Add(timeout)
	}
	l.step.Store(step)
}

// progressReport returns the content of a heartbeat, for users. If no other worker takes over, the workflow knows from it that the work had
// started.
func (l *lifeline) progressReport() protocol.Progress {
	step := l.step.Load()
	if step == nil {
		return protocol.Progress{PutOff: l.putOff}
	}
	report := *step
	report.PutOff = l.putOff
	report.Place, report.Tail = l.progress.Snapshot(tailSize)
	return report
}

// isGivenUpError reports whether the server answered a heartbeat that the attempt is over.
func isGivenUpError(err error) bool {
	var notFound *serviceerror.NotFound
	return errors.As(err, &notFound) ||
		errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset)
}

// terminated asks the workflow whether a cancelled attempt must end at once. Without an answer it asks again.
func (l *lifeline) terminated(ctx context.Context) bool {
	queryCtx, cancel := context.WithTimeout(ctx, heartbeatInterval)
	defer cancel()
	execution := activity.GetInfo(ctx).WorkflowExecution
	var keys []string
	err := protocol.QueryWhole(func(q protocol.PartsQuery) (raw json.RawMessage, err error) {
		value, err := l.a.Client.QueryWorkflow(queryCtx, execution.ID, execution.RunID, protocol.QueryTerminated, q)
		if err == nil {
			err = value.Get(&raw)
		}
		return raw, err
	}, &keys)
	return err == nil && slices.Contains(keys, l.key)
}
