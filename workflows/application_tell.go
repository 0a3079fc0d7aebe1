package workflows

import (
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// told is what services are told.
type told struct {
	manifest string
	number   int64
	pinned   bool
}

// wanted is what services should know: the pinned incarnation, or else the newest (D15).
func (a *application) wanted() told {
	newest := a.newest()
	switch pin := a.state.Pin; {
	case pin == nil:
		return told{manifest: a.state.Manifest, number: newest.Number}
	case pin.Incarnation.Number == newest.Number: // its rules may have changed since under the same number
		return told{manifest: a.state.Manifest, number: newest.Number, pinned: true}
	default:
		return told{manifest: pin.Incarnation.Manifest, number: pin.Incarnation.Number, pinned: true}
	}
}

// tell starts telling the services what changed, one thing at a time. A newer one cuts in: it
// supersedes what is being told, and what is being told may never end (its manifest is in a store
// that no worker reads). Nobody is left out, since all is told anew from what all are known to know.
// Incarnations that nobody is told of, because another one is pinned, are recorded all the same (D5).
func (a *application) tell() {
	wanted := a.wanted()
	if a.telling && wanted != a.tellingOf {
		a.stopTelling() // and tell again once it has stopped
	}
	known := told{a.state.Told, a.state.ToldNumber, a.state.ToldPinned}
	if a.telling || wanted == known && a.state.Recorded >= a.newest().Number {
		return
	}
	request := protocol.NotifyRequest{
		Application: a.name, From: a.state.Told, To: wanted.manifest, Newest: a.incarnation(wanted.number), Store: a.state.Store,
		Pinned: wanted.pinned, At: workflow.Now(a.ctx),
	}
	for _, i := range a.state.Incarnations {
		if i.Number > a.state.Recorded && i.Number != wanted.number {
			request.Passed = append(request.Passed, i)
		}
	}
	a.telling, a.tellingOf = true, wanted
	recorded := a.newest().Number
	ctx, stop := workflow.WithCancel(a.ctx)
	a.stopTelling = stop
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: margin,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
		Summary:     fmt.Sprintf("tell services of incarnation %d", wanted.number),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityNotify, request)
	workflow.Go(a.ctx, func(ctx workflow.Context) {
		var answer protocol.NotifyAnswer
		err := future.Get(ctx, &answer)
		a.telling, a.woken = false, true
		if temporal.IsCanceledError(err) {
			return
		}
		if err != nil { // its worker went away for over an hour: begin again
			a.state.Problem = "services are not told yet: " + rootCause(err)
			return
		}
		a.state.Told, a.state.ToldNumber, a.state.ToldPinned = wanted.manifest, wanted.number, wanted.pinned
		a.state.Recorded, a.state.Problem = max(a.state.Recorded, recorded), ""
	})
}

// incarnation is one of the newest, or the pinned one, by its number.
func (a *application) incarnation(number int64) protocol.Incarnation {
	for _, i := range a.state.Incarnations {
		if i.Number == number {
			return i
		}
	}
	if pin := a.state.Pin; pin != nil && pin.Incarnation.Number == number {
		return pin.Incarnation
	}
	return protocol.Incarnation{}
}

func (a *application) holdEnded(err error) {
	a.woken = true
	switch {
	case temporal.IsCanceledError(err):
	case err != nil:
		a.state.Problem = "services are not told of a pause yet: " + rootCause(err)
	case a.holds.of.Pause == a.state.Pause:
		a.state.Untold, a.state.Problem = false, ""
	}
}

// keepTrail writes audit lines to the store: people act upon whole applications seldom. What the store
// does not take is tried again.
func (a *application) keepTrail() {
	now := workflow.Now(a.ctx)
	if a.storing || len(a.state.Audit) == 0 || a.ending() || now.Before(a.retryAt) {
		return
	}
	a.storing = true
	workflow.Go(a.ctx, func(ctx workflow.Context) {
		err := a.storeLines(ctx)
		a.storing = false
		if err == nil {
			return
		}
		a.retryAt = workflow.Now(ctx).Add(time.Minute)
		if workflow.Sleep(ctx, time.Minute) == nil {
			a.woken = true
		}
	})
}

// storeTrail writes what there is; what the store does not take is carried along.
func (a *application) storeTrail() {
	if len(a.state.Audit) > 0 {
		_ = a.storeLines(a.ctx)
	}
}

func (a *application) storeLines(ctx workflow.Context) error {
	lines := slices.Clone(a.state.Audit)
	err := fromStore(ctx, protocol.ActivityHistory, protocol.HistoryRequest{Application: a.name, Lines: lines}, nil)
	if err != nil {
		return err
	}
	last := lines[len(lines)-1].N
	a.state.Audit = slices.DeleteFunc(a.state.Audit, func(l entities.AuditLine) bool { return l.N <= last })
	return nil
}
