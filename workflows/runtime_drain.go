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
// a time makes services leave one after another, or return, until all are done.

// handleDrain refuses to remove the last instances of a channel.
func (r *runtime) handleDrain(ctx workflow.Context, q verb.Request, who entities.Who) (any, error) {
	effect, err := r.drainEffect(q, who)
	if err != nil {
		return nil, asRefusal(err)
	}
	if !q.Force && !r.isDrained() {
		var answer protocol.AloneAnswer
		err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout: margin, ScheduleToCloseTimeout: takeoverTimeout,
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}, Summary: "find channels that run only there",
		}), protocol.ActivityAlone, protocol.AloneRequest{Runtime: r.runtime}).Get(ctx, &answer)
		switch {
		case err != nil:
			return nil, asRefusal(fmt.Errorf("cannot tell whether a channel runs only there: %s; to drain it anyway: --force", rootCause(err)))
		case answer.Alone != "":
			return nil, asRefusal(fmt.Errorf("no instance of %s would be left; to drain it anyway: --force", answer.Alone))
		}
		if effect, err = r.drainEffect(q, who); err != nil { // another verb may have run in between
			return nil, asRefusal(err)
		}
	}
	text := effect()
	r.followPause()
	return protocol.Answer{Message: joinNotes(joinNotes(text, identityNote(q, who)), r.mailbox.AuditPending())}, nil
}

// isDrained reports whether the runtime is drained or being drained.
func (r *runtime) isDrained() bool {
	p := r.state.Pause
	return p != nil && p.Drain != nil && !p.Drain.Restoring
}

// drainEffect is the effect of the verb drain. It reverses a restore in progress.
func (r *runtime) drainEffect(q verb.Request, who entities.Who) (state.Effect, error) {
	switch p := r.state.Pause; {
	case p != nil && p.Drain == nil:
		return nil, fmt.Errorf("%s is paused by %s: resume it first", r.name, p.By)
	case r.isDrained() && (p.Drain.Force || !q.Force):
		return func() string {
			text := fmt.Sprintf("%s is already drained by %s", r.name, p.By)
			if p.Drain.Done {
				again := *p
				again.Drain = &entities.Drain{Force: p.Drain.Force}
				r.setPause(&again)
				text += "; services that came there since leave too"
			}
			return text
		}, nil
	}
	return func() string {
		r.setPause(&entities.Pause{Scope: r.scope, By: who.Name, Reason: q.Reason, At: r.now(), Drain: &entities.Drain{Force: q.Force}})
		r.recordAudit(entities.EventPause, &who, r.name+" drained"+forceSuffix(q), q.Reason)
		return r.name + " is being drained: its services leave one by one"
	}, nil
}

// restoreEffect is the effect of the verb restore.
func (r *runtime) restoreEffect(q verb.Request, who entities.Who) (state.Effect, error) {
	p := r.state.Pause
	switch {
	case p == nil || p.Drain == nil:
		return nil, fmt.Errorf("%s is not drained", r.name)
	case p.Drain.Restoring && (p.Drain.Force || !q.Force):
		return func() string { return r.name + " is being restored already" }, nil
	}
	return func() string {
		up := *p
		up.Drain = &entities.Drain{Restoring: true, Force: q.Force}
		r.setPause(&up)
		r.recordAudit(entities.EventPause, &who, r.name+" restored"+forceSuffix(q), q.Reason)
		return r.name + " is being restored: its services return one by one"
	}, nil
}

func forceSuffix(q verb.Request) string {
	if q.Force {
		return " by force"
	}
	return ""
}

// setPause sets the pause and announces it to services.
func (r *runtime) setPause(p *entities.Pause) { r.state.Pause, r.state.Announcing = p, true }

// followPause makes the ledger follow the pause: during a restore, leases are granted.
func (r *runtime) followPause() {
	p := r.state.Pause
	r.state.Paused = p != nil && (p.Drain == nil || !p.Drain.Restoring)
}

// problemDrain is the kind of the problem that a drain makes no progress.
const problemDrain = "drain"

// continueDrain starts the activity that makes services leave or return, unless it runs or is done.
func (r *runtime) continueDrain() {
	p := r.state.Pause
	if p == nil || p.Drain == nil || p.Drain.Done || r.activityRunning || r.state.Announcing || r.blocksNewWork() {
		return
	}
	request := r.pauses.request()
	request.Scope, request.Pause = r.scope, p
	if !r.spillPermits(&request) {
		return
	}
	ctx, stop := workflow.WithCancel(r.workCtx)
	ctx = withLongActivity(ctx, "drain or restore "+r.name)
	r.activityRunning, r.announcedPause, r.stopActivity = true, p, stop
	future := workflow.ExecuteActivity(ctx, protocol.ActivityDrain, request)
	r.trackOperation(func(ctx workflow.Context) {
		var answer protocol.DrainAnswer
		err := future.Get(ctx, &answer)
		if digest := storedAnswerDigest(&answer); err == nil && digest != "" {
			err = r.fetchStoredAnswer(ctx, digest, &answer)
		}
		r.activityRunning = false
		switch {
		case temporal.IsCanceledError(err):
		case err != nil: // its worker was gone for over an hour: start again
			r.setProblem(problemDrain, "services cannot be drained or restored: "+rootCause(err))
		case r.announcedPause == r.state.Pause:
			r.clearProblem(problemDrain)
			r.recordDrain(answer.Drain)
		}
	})
}

// recordDrain records the progress of a drain.
func (r *runtime) recordDrain(d entities.Drain) {
	p := *r.state.Pause
	p.Drain = &d
	r.state.Pause = &p
	switch {
	case d.Done && d.Restoring:
		r.state.Ended = p.At
		r.setPause(nil)
		r.followPause()
		r.recordAudit(entities.EventPause, nil, r.name+" is restored: its services may return", "")
	case d.Done:
		r.recordAudit(entities.EventPause, nil, r.name+" is drained: no service is left that can leave", "")
	}
}
