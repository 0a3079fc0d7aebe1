package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// This file commits joint releases (B8) in two phases. The proposal and the decision are write-once records in the store. A later caller,
// or a worker that continues after a crash, reads the same records.

// Propose records a joint release, unless its id is taken. It rejects a release with other versions than those recorded under its id, or
// with a service that is not declared.
func (a *Activities) Propose(ctx context.Context, r protocol.ProposeRequest) (protocol.ProposeAnswer, error) {
	answer, err := a.propose(ctx, r)
	return spillIfLarge(ctx, a, answer, err)
}

func (a *Activities) propose(ctx context.Context, r protocol.ProposeRequest) (protocol.ProposeAnswer, error) {
	manifest, err := a.Store.Manifest(ctx, r.Manifest)
	if err != nil {
		return protocol.ProposeAnswer{}, unpublishedError(err)
	}
	for _, service := range entities.SortedKeys(r.Services) {
		if _, declared := manifest[service]; !declared {
			return protocol.ProposeAnswer{}, refuse("%s declares no service %q%s", r.Application, service, entities.Expected(entities.SortedKeys(manifest)))
		}
	}
	stored, err := a.Store.CreateJoint(ctx, r.Joint)
	if err != nil {
		return protocol.ProposeAnswer{}, damageError(err)
	}
	if entities.DigestOf(stored.Services) != entities.DigestOf(r.Services) {
		return protocol.ProposeAnswer{}, refuse("release %s of %s was proposed with other versions by %s at %s; expected another id",
			r.ID, r.Application, stored.Who.Name, stored.At.Format(time.RFC3339))
	}
	decision, err := a.Store.JointDecision(ctx, r.Application, r.ID)
	return protocol.ProposeAnswer{Joint: stored, Decision: decision}, damageError(err)
}

// Reserve validates a service's part of a joint release with the checks of Prepare. It writes nothing, so an aborted release leaves no
// trace.
func (a *Activities) Reserve(ctx context.Context, r protocol.ReserveRequest) (protocol.ReserveAnswer, error) {
	answer, err := a.reserve(ctx, r)
	return spillIfLarge(ctx, a, answer, err)
}

func (a *Activities) reserve(ctx context.Context, r protocol.ReserveRequest) (protocol.ReserveAnswer, error) {
	outcome, err := a.outcome(ctx, protocol.OutcomeRequest{Application: r.Application, ID: r.ID})
	if err != nil || outcome.Decision != nil {
		return protocol.ReserveAnswer{Joint: outcome.Joint, Decision: outcome.Decision}, err
	}
	part, named := outcome.Joint.Services[r.Service]
	if !named {
		return protocol.ReserveAnswer{}, refuse("release %s of %s names no version of %s", r.ID, r.Application, r.Service)
	}
	r.Version, r.FullVersion, r.Parameters, r.ChannelParameters = part.Version, part.Version, part.Parameters, part.ChannelParameters
	draft, err := a.Draft(ctx, r.PrepareRequest)
	if err != nil {
		return protocol.ReserveAnswer{}, damageError(err)
	}
	prepared := protocol.PrepareAnswer{
		Known: draft.Known, Incarnation: draft.Record.Incarnation, Hash: draft.Record.Hash, Payloads: map[entities.InstanceID]protocol.PreparedPayload{},
	}
	for id, payload := range draft.Payloads {
		prepared.Payloads[id] = protocol.PreparedPayload{Runtime: payload.Runtime}
	}
	return protocol.ReserveAnswer{Joint: outcome.Joint, Prepared: prepared}, nil
}

// Outcome returns the decision on a joint release. If there is none in time, the first caller aborts the release for all.
func (a *Activities) Outcome(ctx context.Context, r protocol.OutcomeRequest) (protocol.OutcomeAnswer, error) {
	answer, err := a.outcome(ctx, r)
	return spillIfLarge(ctx, a, answer, err)
}

func (a *Activities) outcome(ctx context.Context, r protocol.OutcomeRequest) (protocol.OutcomeAnswer, error) {
	joint, err := a.Store.Joint(ctx, r.Application, r.ID)
	if store.IsNotFound(err) {
		return protocol.OutcomeAnswer{}, refuse("%s has no joint release %s", r.Application, r.ID)
	}
	if err != nil {
		return protocol.OutcomeAnswer{}, damageError(err)
	}
	decision, err := a.Store.JointDecision(ctx, r.Application, r.ID)
	if err == nil && decision == nil && r.Abort {
		var stored protocol.JointDecision
		stored, err = a.Store.CreateJointDecision(ctx, r.Application, protocol.JointDecision{ID: r.ID, Why: "it was not decided in time"})
		decision = &stored
	}
	return protocol.OutcomeAnswer{Joint: joint, Decision: decision}, damageError(err)
}

// Limits in bytes of the messages about a joint release: the reason why one service failed (all may fail), and the reason for the overall
// result.
const (
	maxFailureText = 200
	maxReasonText  = 4 << 10
)

// Decide collects the promises of all services of a joint release, records the decision, and makes all services carry it out. After the
// end of a worker another one continues: each promise, decision and commit takes effect once.
func (a *Activities) Decide(ctx context.Context, r protocol.DecideRequest) (protocol.DecideAnswer, error) {
	heartbeatCtx, stop := context.WithCancel(ctx)
	defer stop()
	go sendHeartbeats(heartbeatCtx, nil)
	decision, err := a.Store.JointDecision(ctx, r.Application, r.ID)
	if err == nil && decision == nil {
		decision, err = a.decide(ctx, r)
	}
	if err != nil {
		return protocol.DecideAnswer{}, damageError(err)
	}
	answer := protocol.DecideAnswer{Decision: *decision}
	answer.Decision.Why = entities.ClipMessage(decision.Why, maxReasonText)
	errs := a.updateAll(ctx, r, protocol.Conclude, time.Now().Add(sendTimeout))
	for n, service := range r.Services {
		switch err := errs[n]; {
		case err == nil || !decision.Committed: // a promise expires without a notification
		case isRefused(err):
			if answer.Failed == nil {
				answer.Failed = map[string]string{}
			}
			answer.Failed[service] = entities.ClipMessage(refusalText(err), maxFailureText)
		default:
			answer.Services = append(answer.Services, service)
			answer.Why = entities.ClipMessage(fmt.Sprintf("%s: %s", service, err), maxReasonText)
		}
	}
	return answer, ctx.Err()
}

// decide records the decision that follows from the promises. One missing promise aborts the whole release.
func (a *Activities) decide(ctx context.Context, r protocol.DecideRequest) (*protocol.JointDecision, error) {
	decision := protocol.JointDecision{ID: r.ID, Committed: true}
	var reasons []string
	promises := a.updateAll(ctx, r, protocol.Reserve, time.Now().Add(protocol.JointPromiseTimeout))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for n, service := range r.Services {
		switch err := promises[n]; {
		case err == nil:
		case isRefused(err):
			reasons = append(reasons, service+": "+refusalText(err))
		default:
			reasons = append(reasons, fmt.Sprintf("%s did not answer in time (%s)", service, err))
		}
	}
	if len(reasons) > 0 {
		decision.Committed, decision.Why = false, strings.Join(reasons, "; ")
	}
	stored, err := a.Store.CreateJointDecision(ctx, r.Application, decision)
	return &stored, err
}

// updateAll sends a verb to all services, a limited number concurrently, until each has done or refused it, or the deadline is over.
func (a *Activities) updateAll(ctx context.Context, r protocol.DecideRequest, verb string, until time.Time) []error {
	errs := make([]error, len(r.Services))
	forEach(len(r.Services), func(n int) {
		errs[n] = a.updateUntil(ctx, protocol.ServiceID(r.Application, r.Services[n]), verb, protocol.JointHint{ID: r.ID}, until)
	})
	return errs
}

// updateRetryDelay is the time between two attempts to reach a service.
const updateRetryDelay = 500 * time.Millisecond

func (a *Activities) updateUntil(ctx context.Context, id, verb string, hint protocol.JointHint, until time.Time) error {
	for {
		err := a.updateOnce(ctx, id, verb, hint)
		if err == nil || isRefused(err) || ctx.Err() != nil || time.Now().Add(updateRetryDelay).After(until) {
			return err
		}
		select {
		case <-time.After(updateRetryDelay):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *Activities) updateOnce(ctx context.Context, id, verb string, hint protocol.JointHint) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	handle, err := a.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: verb, Args: []any{hint}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) && verb == protocol.Reserve {
		return refuse("it is not managed: its workflow has ended, or it is unmanaged")
	}
	return err
}

// isRefused reports whether a retry would not change the error soon.
func isRefused(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && (app.Type() == protocol.ErrRefused || app.Type() == protocol.ErrDamaged)
}

func refusalText(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}
