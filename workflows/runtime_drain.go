package workflows

import (
	"fmt"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// This file takes a runtime out of service, and back into service (A16). A drain is a pause, announced like any other. Then one activity at
// a time makes services leave in turn, or return, until all are done.

// drain refuses to remove the last instances of a channel.
func (r *runtime) drain(ctx workflow.Context, q verb.Request, who entities.Who) (any, error) {
	effect, err := r.drained(q, who)
	if err != nil {
		return nil, refused(err)
	}
	if !q.Force && !r.isDrained() {
		var answer protocol.AloneAnswer
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: margin, ScheduleToCloseTimeout: patience,
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}, Summary: "find channels that run only there",
		}), protocol.ActivityAlone, protocol.AloneRequest{Runtime: r.runtime}).Get(ctx, &answer)
		switch {
		case err != nil:
			return nil, refused(fmt.Errorf("cannot tell whether a channel runs only there: %s; to drain it anyway: --force", rootCause(err)))
		case answer.Alone != "":
			return nil, refused(fmt.Errorf("no instance of %s would be left; to drain it anyway: --force", answer.Alone))
		}
		if effect, err = r.drained(q, who); err != nil { // another verb may have run in between
			return nil, refused(err)
		}
	}
	text := effect()
	r.followPause()
	return protocol.Answer{Message: joined(joined(text, replaced(q, who)), r.desk.AuditPending())}, nil
}

// isDrained reports whether the runtime is drained or being drained.
func (r *runtime) isDrained() bool {
	p := r.state.Pause
	return p != nil && p.Drain != nil && !p.Drain.Up
}

// drained is the effect of the verb drain. It reverses a turnup in progress.
func (r *runtime) drained(q verb.Request, who entities.Who) (state.Effect, error) {
	switch p := r.state.Pause; {
	case p != nil && p.Drain == nil:
		return nil, fmt.Errorf("%s is paused by %s: resume it first", r.name, p.By)
	case r.isDrained() && (p.Drain.Force || !q.Force):
		return func() string {
			text := fmt.Sprintf("%s is already drained by %s", r.name, p.By)
			if p.Drain.Done {
				again := *p
				again.Drain = &entities.Drain{Force: p.Drain.Force}
				r.change(&again)
				text += "; services that came there since leave too"
			}
			return text
		}, nil
	}
	return func() string {
		r.change(&entities.Pause{Scope: r.scope, By: who.Name, Reason: q.Reason, At: r.now(), Drain: &entities.Drain{Force: q.Force}})
		r.note(entities.EventPause, &who, r.name+" drained"+byForce(q), q.Reason)
		return r.name + " is being drained: its services leave one by one"
	}, nil
}

// turnedUp is the effect of the verb turnup.
func (r *runtime) turnedUp(q verb.Request, who entities.Who) (state.Effect, error) {
	p := r.state.Pause
	switch {
	case p == nil || p.Drain == nil:
		return nil, fmt.Errorf("%s is not drained", r.name)
	case p.Drain.Up && (p.Drain.Force || !q.Force):
		return func() string { return r.name + " is being turned up already" }, nil
	}
	return func() string {
		up := *p
		up.Drain = &entities.Drain{Up: true, Force: q.Force}
		r.change(&up)
		r.note(entities.EventPause, &who, r.name+" turned up"+byForce(q), q.Reason)
		return r.name + " is being turned up: its services return one by one"
	}, nil
}

func byForce(q verb.Request) string {
	if q.Force {
		return " by force"
	}
	return ""
}

// change sets the pause and announces it to services.
func (r *runtime) change(p *entities.Pause) { r.state.Pause, r.state.Announcing = p, true }

// followPause makes the ledger follow the pause: during a turnup, leases are granted.
func (r *runtime) followPause() {
	p := r.state.Pause
	r.state.Paused = p != nil && (p.Drain == nil || !p.Drain.Up)
}

// draining is the kind of trouble in which a drain makes no progress.
const draining = "drain"

// carryOn starts the activity that makes services leave or return, unless it runs or is done.
func (r *runtime) carryOn() {
	p := r.state.Pause
	if p == nil || p.Drain == nil || p.Drain.Done || r.running || r.state.Announcing || r.drains() {
		return
	}
	request := r.pauses.request()
	request.Scope, request.Pause = r.scope, p
	if !r.fits(&request) {
		return
	}
	ctx, stop := workflow.WithCancel(r.work)
	ctx = enduring(ctx, "drain or turn up "+r.name)
	r.running, r.present, r.stop = true, p, stop
	future := workflow.ExecuteActivity(ctx, protocol.ActivityDrain, request)
	r.await(func(ctx workflow.Context) {
		var answer protocol.DrainAnswer
		err := future.Get(ctx, &answer)
		if digest := leftInStore(&answer); err == nil && digest != "" {
			err = r.fetchAnswer(ctx, digest, &answer)
		}
		r.running = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker was gone for over an hour: start again
			r.trouble(draining, "services cannot be drained or turned up: "+rootCause(err))
		case r.present == r.state.Pause:
			r.clear(draining)
			r.advanced(answer.Drain)
		}
	})
}

// advanced records the progress of a drain.
func (r *runtime) advanced(d entities.Drain) {
	p := *r.state.Pause
	p.Drain = &d
	r.state.Pause = &p
	switch {
	case d.Done && d.Up:
		r.state.Ended = p.At
		r.change(nil)
		r.followPause()
		r.note(entities.EventPause, nil, r.name+" is turned up: its services may return", "")
	case d.Done:
		r.note(entities.EventPause, nil, r.name+" is drained: no service is left that can leave", "")
	}
}
