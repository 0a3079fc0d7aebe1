package activities

import (
	"context"
	"errors"
	"fmt"
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
// not arrive is sent again as long as there is time.
type lifeline struct {
	a        *Activities
	token    []byte
	patience time.Duration             // without a heartbeat that arrived
	reached  atomic.Pointer[time.Time] // when the last one was sent that did
	first    chan struct{}             // closed once one did, or none has to
	end      context.CancelCauseFunc
	doing    atomic.Pointer[protocol.Progress] // nil: it has only begun
	progress *runtimes.Progress
}

// lifeline begins one, and returns a context that ends when the server gives the attempt up: when it says so, or when no
// heartbeat has reached it for as long as it waits for one, less a second. So what was cut off has ended before another
// worker can begin, if it ends within runtimes.CutGrace and the worker is not frozen.
func (a *Activities) lifeline(ctx context.Context) (context.Context, *lifeline) {
	ctx, end := context.WithCancelCause(ctx)
	info := activity.GetInfo(ctx)
	l := &lifeline{a: a, token: info.TaskToken, patience: info.HeartbeatTimeout - time.Second, first: make(chan struct{}), end: end}
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
	go l.beats(ctx, eager)
	return runtimes.WithLifeline(ctx, l.until), l
}

// until is when the server may give the attempt up, unless it hears of it again.
func (l *lifeline) until() time.Time { return l.reached.Load().Add(l.patience) }

// stop ends it: nothing outside is changed any more.
func (l *lifeline) stop() { l.end(nil) }

// heard waits until a heartbeat has reached the server, which says that the attempt is still this worker's. Before that
// nothing is touched: what took long to get here may be another worker's by now. What is known not to have taken long does
// not wait.
func (l *lifeline) heard(ctx context.Context) error {
	select {
	case <-l.first:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lifeline) beats(ctx context.Context, heard bool) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for again := heard; ; again = true {
		if again {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
		sent := time.Now()
		limited, done := context.WithDeadline(ctx, l.until())
		err := l.a.Client.RecordActivityHeartbeat(limited, l.token, l.said())
		done()
		switch {
		case err == nil:
			l.reached.Store(&sent)
			if !heard {
				heard = true
				close(l.first)
			}
		case givenUp(err) || !time.Now().Before(l.until()):
			l.end(fmt.Errorf("%w: %w", runtimes.ErrCutOff, err))
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
	return errors.As(err, &gone) || temporal.IsCanceledError(err) ||
		errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset)
}
