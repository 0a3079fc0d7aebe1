package workflows

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

// holds tells the services of an application or a runtime of its pause, by one activity at a time. A
// change that comes meanwhile waits until that one was stopped: told in the wrong order, services would
// stay paused.
type holds struct {
	ctx     workflow.Context
	ended   func(error) // of an activity that was not stopped
	running bool
	of      protocol.HoldRequest
	stop    workflow.CancelFunc
}

// tell starts telling what a request says, unless that is under way.
func (h *holds) tell(r protocol.HoldRequest) {
	if h.running {
		if h.of.Pause != r.Pause {
			h.stop()
		}
		return
	}
	word := "tell services of the pause of "
	if r.Pause == nil {
		word = "tell services of the end of the pause of "
	}
	ctx, stop := workflow.WithCancel(h.ctx)
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: margin, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
		Summary:     word + r.Application + r.Runtime,
	})
	h.running, h.of, h.stop = true, r, stop
	future := workflow.ExecuteActivity(ctx, protocol.ActivityHold, r)
	workflow.Go(h.ctx, func(ctx workflow.Context) {
		err := future.Get(ctx, nil)
		h.running = false
		h.ended(err)
	})
}

// end stops what is under way: another run begins it anew.
func (h *holds) end() {
	if h.running {
		h.stop()
	}
}
