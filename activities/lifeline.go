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

// beat is how often an activity shows the server that its worker lives: a fifth of the heartbeat timeout.
const beat = 2 * time.Second

// lifeline shows the server that this worker lives, for as long as an activity changes something outside.
//
// It stands in for the SDK's own heartbeats, which hold one back until 80% of the heartbeat timeout are over and end the
// activity when that one is held up for the rest: a stall of two seconds ended a healthy apply (F7). A heartbeat that does
// not arrive is sent again as long as there is time. One that is answered with that the activity is asked to end is followed by more:
// the attempt stays this worker's while it ends.
type lifeline struct {
	a        *Activities
	token    []byte
	key      string                    // by which the workflow says that it is terminated (State.Terminated)
	patience time.Duration             // without a heartbeat that arrived
	reached  atomic.Pointer[time.Time] // when the last one was sent that did
	first    chan struct{}             // closed once one did, or none has to
	end      context.CancelCauseFunc
	doing    atomic.Pointer[protocol.Progress] // nil: it has only begun
	progress *runtimes.Progress
	ended    atomic.Bool   // it is terminated
	over     chan struct{} // closed once it is stopped
}

// lifeline begins one, and returns a context that ends when the server gives the attempt up: when it says so, or when no
// heartbeat has reached it for as long as it waits for one, less a second. So what was cut off has ended before another
// worker can begin, if it ends within runtimes.CutGrace and the worker is not frozen.
func (a *Activities) lifeline(ctx context.Context, key string) (context.Context, *lifeline) {
	ctx, end := context.WithCancelCause(ctx)
	info := activity.GetInfo(ctx)
	l := &lifeline{
		a: a, token: info.TaskToken, key: key, patience: info.HeartbeatTimeout - time.Second, first: make(chan struct{}), end: end, over: make(chan struct{}),
	}
	if a.Client == nil || info.HeartbeatTimeout == 0 { // nobody waits for heartbeats
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

// until is when the server may give the attempt up, unless it hears of it again.
func (l *lifeline) until() time.Time { return l.reached.Load().Add(l.patience) }

// stop ends it: nothing outside is changed any more.
func (l *lifeline) stop() {
	close(l.over)
	l.end(nil)
}

// heard waits until a heartbeat has reached the server, which says that the attempt is still this worker's. Before that
// nothing is touched: what took long to get here may be another worker's by now. What is known not to have taken long does
// not wait.
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

// begins says what runs from now on, and for how long at most; 0: without a limit.
func (l *lifeline) begins(channel, what string, timeout time.Duration) {
	now := time.Now().UTC()
	doing := &protocol.Progress{Channel: channel, What: what, Since: now}
	if timeout > 0 {
		doing.Until = now.Add(timeout)
	}
	l.doing.Store(doing)
}

// said is what a heartbeat says, for people. Should no other worker take over, the workflow knows by it that somebody had
// begun.
func (l *lifeline) said() protocol.Progress {
	doing := l.doing.Load()
	if doing == nil {
		return protocol.Progress{}
	}
	said := *doing
	said.Place, said.Tail = l.progress.Said(tailSize)
	return said
}

// givenUp tells whether the server answered a heartbeat with that the attempt is over.
func givenUp(err error) bool {
	var gone *serviceerror.NotFound
	return errors.As(err, &gone) ||
		errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset)
}

// terminated asks the workflow whether what it asks to end is to end at once. One that does not answer is asked again.
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
