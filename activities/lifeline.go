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

// beat is the heartbeat interval: a fifth of the heartbeat timeout.
const beat = 2 * time.Second

// lifeline sends heartbeats for as long as an activity makes external changes.
//
// It replaces the SDK's own heartbeats. The SDK delays a heartbeat until 80% of the heartbeat timeout are over, and ends the activity
// when that one is delayed for the rest: a stall of two seconds ended a healthy apply (F7). A failed heartbeat is sent again while there
// is time. Heartbeats continue after a cancellation request: the attempt stays with this worker while it ends.
type lifeline struct {
	a        *Activities
	token    []byte
	key      string                    // under which the workflow reports its termination (State.Terminated)
	patience time.Duration             // maximum time without a successful heartbeat
	reached  atomic.Pointer[time.Time] // send time of the last successful heartbeat
	first    chan struct{}             // closed after the first successful heartbeat, or if none is needed
	end      context.CancelCauseFunc
	doing    atomic.Pointer[protocol.Progress] // nil: nothing has started
	progress *runtimes.Progress
	ended    atomic.Bool   // the attempt is terminated
	over     chan struct{} // closed by stop
}

// lifeline starts the heartbeats. It returns a context that ends when the server gives the attempt up: when the server says so, or when
// no heartbeat has succeeded for the heartbeat timeout less a second. So interrupted work has ended before another worker can start, if
// it ends within runtimes.CutGrace and the worker is not frozen.
func (a *Activities) lifeline(ctx context.Context, key string) (context.Context, *lifeline) {
	ctx, end := context.WithCancelCause(ctx)
	info := activity.GetInfo(ctx)
	l := &lifeline{
		a: a, token: info.TaskToken, key: key, patience: info.HeartbeatTimeout - time.Second, first: make(chan struct{}), end: end, over: make(chan struct{}),
	}
	if a.Client == nil || info.HeartbeatTimeout == 0 { // the server expects no heartbeats
		close(l.first)
		return ctx, l
	}
	began, eager := a.Eager.take(l.token)
	if !eager {
		began = time.Now()
	} else {
		close(l.first)
	}
	l.reached.Store(&began)
	ctx, l.progress = runtimes.WithProgress(ctx)
	go l.beats(context.WithoutCancel(ctx), eager)
	return runtimes.WithLifeline(ctx, func() time.Time {
		if l.ended.Load() {
			return time.Time{}
		}
		return l.until()
	}), l
}

// until returns the time at which the server may give the attempt up without a further heartbeat.
func (l *lifeline) until() time.Time { return l.reached.Load().Add(l.patience) }

// stop ends the heartbeats. No external change follows.
func (l *lifeline) stop() {
	close(l.over)
	l.end(nil)
}

// heard waits for a successful heartbeat, which confirms that the attempt still belongs to this worker. No change is made before that,
// because a delayed attempt may belong to another worker already. An attempt that is known not to be delayed does not wait.
func (l *lifeline) heard(ctx context.Context) error {
	select {
	case <-l.first:
		return ctx.Err()
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, runtimes.ErrAsked) {
			return cause
		}
		return ctx.Err()
	}
}

func (l *lifeline) beats(ctx context.Context, heard bool) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for again := heard; ; again = true {
		if again {
			select {
			case <-l.over:
				return
			case <-ticker.C:
			}
		}
		sent := time.Now()
		limited, done := context.WithDeadline(ctx, l.until())
		err := l.a.Client.RecordActivityHeartbeat(limited, l.token, l.said())
		done()
		asked := temporal.IsCanceledError(err)
		if asked {
			l.end(runtimes.ErrAsked)
			l.ended.Store(l.ended.Load() || l.terminated(ctx))
		}
		switch {
		case asked, err == nil:
			l.reached.Store(&sent)
			if !heard {
				heard = true
				close(l.first)
			}
		case givenUp(err) || !time.Now().Before(l.until()):
			l.end(fmt.Errorf("%w: %w", runtimes.ErrCutOff, err))
			return
		}
	}
}

// begins records the current step and its timeout; 0: no limit.
func (l *lifeline) begins(channel, what string, timeout time.Duration) {
	now := time.Now().UTC()
	doing := &protocol.Progress{Channel: channel, What: what, Since: now}
	if timeout > 0 {
		doing.Until = now.Add(timeout)
	}
	l.doing.Store(doing)
}

// said returns the content of a heartbeat, for users. If no other worker takes over, the workflow knows from it that the work had
// started.
func (l *lifeline) said() protocol.Progress {
	doing := l.doing.Load()
	if doing == nil {
		return protocol.Progress{}
	}
	said := *doing
	said.Place, said.Tail = l.progress.Said(tailSize)
	return said
}

// givenUp reports whether the server answered a heartbeat that the attempt is over.
func givenUp(err error) bool {
	var gone *serviceerror.NotFound
	return errors.As(err, &gone) ||
		errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset)
}

// terminated asks the workflow whether a cancelled attempt must end at once. Without an answer it asks again.
func (l *lifeline) terminated(ctx context.Context) bool {
	limited, done := context.WithTimeout(ctx, beat)
	defer done()
	of := activity.GetInfo(ctx).WorkflowExecution
	var keys []string
	err := protocol.Whole(func(q protocol.InParts) (raw json.RawMessage, err error) {
		value, err := l.a.Client.QueryWorkflow(limited, of.ID, of.RunID, protocol.QueryTerminated, q)
		if err == nil {
			err = value.Get(&raw)
		}
		return raw, err
	}, &keys)
	return err == nil && slices.Contains(keys, l.key)
}
