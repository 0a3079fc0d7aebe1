package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
)

// lifeline shows the server that this worker lives, for as long as an activity changes something outside, and returns a
// context that ends when the server gives the attempt up: when it says so, or when no heartbeat has reached it for as
// long as it waits for one, less a second. So what was cut off is told to end before another worker can begin; a command
// that takes its time to end, or a frozen worker, may still overlap.
//
// It stands in for the SDK's own heartbeats, which hold one back until 80% of that time are over and end the activity
// when that one is held up for the rest: a stall of two seconds ended a healthy apply (F7). A heartbeat that does not
// arrive is sent again as long as there is time.
func (a *Activities) lifeline(ctx context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	stop := func() { end(nil) }
	info := activity.GetInfo(ctx)
	if a.Client == nil || info.HeartbeatTimeout == 0 {
		return ctx, stop // nobody waits for heartbeats
	}
	patience := info.HeartbeatTimeout - time.Second // the server began to wait a little earlier
	go func() {
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for reached := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			sent := time.Now()
			limited, done := context.WithDeadline(ctx, reached.Add(patience))
			err := a.Client.RecordActivityHeartbeat(limited, info.TaskToken)
			done()
			switch {
			case err == nil:
				reached = sent
			case givenUp(err) || time.Since(reached) >= patience:
				end(fmt.Errorf("the server has given up on this attempt: %w", err))
			}
		}
	}()
	return ctx, stop
}

// givenUp tells whether the server answered a heartbeat with that the attempt is over.
func givenUp(err error) bool {
	var gone *serviceerror.NotFound
	return errors.As(err, &gone) || temporal.IsCanceledError(err) ||
		errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset)
}
