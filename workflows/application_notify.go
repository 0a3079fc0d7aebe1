package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

// wanted is what services should know: the pinned incarnation, or else the newest (D15).
func (a *application) wanted() notice {
	newest := a.newest()
	switch pin := a.state.Pin; {
	case pin == nil:
		return notice{Manifest: a.state.Manifest, Number: newest.Number}
	case pin.Incarnation.Number == newest.Number: // its rules may have changed since under the same number
		return notice{Manifest: a.state.Manifest, Number: newest.Number, Pinned: true}
	default:
		return notice{Manifest: pin.Incarnation.Manifest, Number: pin.Incarnation.Number, Pinned: true}
	}
}

// notification is the kind of trouble that services cannot be notified of an incarnation.
const notification = "notification"

// notify starts notifying the services of what changed, one thing at a time. A newer one cuts in: it
// supersedes what they are being notified of, which may never end (its manifest is in a store
// that no worker reads). Nobody is left out, since all is said anew from what all are known to know.
// Incarnations that nobody is notified of, because another one is pinned, are recorded all the same (D5).
func (a *application) notify() {
	wanted := a.wanted()
	if a.notifying && wanted != a.present {
		a.stop() // and notify again once it has stopped
	}
	if a.notifying || wanted == a.state.Notified && a.state.Recorded >= a.newest().Number {
		return
	}
	request := protocol.NotifyRequest{
		Application: a.name, From: a.state.Notified.Manifest, To: wanted.Manifest, Newest: a.incarnation(wanted.Number), Store: a.state.Store,
		Pinned: wanted.Pinned, At: a.now(),
	}
	for _, i := range a.state.Incarnations {
		if i.Number > a.state.Recorded && i.Number != wanted.Number {
			request.Passed = append(request.Passed, i)
		}
	}
	ctx, stop := workflow.WithCancel(a.ctx)
	a.notifying, a.present, a.stop = true, wanted, stop
	recorded := a.newest().Number
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: margin,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
		Summary:     fmt.Sprintf("notify services of incarnation %d", wanted.Number),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityNotify, request)
	a.await(func(ctx workflow.Context) {
		var answer protocol.NotifyAnswer
		err := future.Get(ctx, &answer)
		a.notifying = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker went away for over an hour: begin again
			a.trouble(notification, "services are not notified yet: "+rootCause(err))
		default:
			a.state.Notified, a.state.Recorded = wanted, max(a.state.Recorded, recorded)
			a.clear(notification)
		}
	})
}
