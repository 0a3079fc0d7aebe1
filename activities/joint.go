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

// This file commits joint releases (B8) by two phases. What was proposed, and what was decided, are records of the store that are
// written once: whoever asks later, and whoever died between, finds the same.

// Propose writes down a joint release, unless its id is taken. One that names other versions than those that stand under its id,
// or a service that is not declared, is refused.
func (a *Activities) Propose(ctx context.Context, r protocol.ProposeRequest) (protocol.ProposeAnswer, error) {
	answer, err := a.propose(ctx, r)
	return left(ctx, a, answer, err)
}

func (a *Activities) propose(ctx context.Context, r protocol.ProposeRequest) (protocol.ProposeAnswer, error) {
	manifest, err := a.Store.Manifest(ctx, r.Manifest)
	if err != nil {
		return protocol.ProposeAnswer{}, unpublished(err)
	}
	for _, service := range entities.SortedKeys(r.Services) {
		if _, declared := manifest[service]; !declared {
			return protocol.ProposeAnswer{}, refuse("%s declares no service %q%s", r.Application, service, entities.Expected(entities.SortedKeys(manifest)))
		}
	}
	stands, err := a.Store.CreateJoint(ctx, r.Joint)
	if err != nil {
		return protocol.ProposeAnswer{}, damage(err)
	}
	if entities.DigestOf(stands.Services) != entities.DigestOf(r.Services) {
		return protocol.ProposeAnswer{}, refuse("release %s of %s is of other versions, proposed by %s at %s; expected another id",
			r.ID, r.Application, stands.Who.Name, stands.At.Format(time.RFC3339))
	}
	decision, err := a.Store.JointDecision(ctx, r.Application, r.ID)
	return protocol.ProposeAnswer{Joint: stands, Decision: decision}, damage(err)
}

// Reserve tries a service's part of a joint release, with the refusals of Prepare, and writes nothing: of one that is aborted
// nothing stays.
func (a *Activities) Reserve(ctx context.Context, r protocol.ReserveRequest) (protocol.ReserveAnswer, error) {
	answer, err := a.reserve(ctx, r)
	return left(ctx, a, answer, err)
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
		return protocol.ReserveAnswer{}, damage(err)
	}
	prepared := protocol.PrepareAnswer{
		Known: draft.Known, Incarnation: draft.Record.Incarnation, Hash: draft.Record.Hash, Payloads: map[entities.InstanceID]protocol.PreparedPayload{},
	}
	for id, payload := range draft.Payloads {
		prepared.Payloads[id] = protocol.PreparedPayload{Runtime: payload.Runtime}
	}
	return protocol.ReserveAnswer{Joint: outcome.Joint, Prepared: prepared}, nil
}

// Outcome reads what was decided of a joint release. Where nobody came to decide in time, whoever asks first decides that nothing
// comes of it, for all.
func (a *Activities) Outcome(ctx context.Context, r protocol.OutcomeRequest) (protocol.OutcomeAnswer, error) {
	answer, err := a.outcome(ctx, r)
	return left(ctx, a, answer, err)
}

func (a *Activities) outcome(ctx context.Context, r protocol.OutcomeRequest) (protocol.OutcomeAnswer, error) {
	joint, err := a.Store.Joint(ctx, r.Application, r.ID)
	if store.IsNotFound(err) {
		return protocol.OutcomeAnswer{}, refuse("%s has no joint release %s", r.Application, r.ID)
	}
	if err != nil {
		return protocol.OutcomeAnswer{}, damage(err)
	}
	decision, err := a.Store.JointDecision(ctx, r.Application, r.ID)
	if err == nil && decision == nil && r.Abort {
		var stands protocol.JointDecision
		stands, err = a.Store.CreateJointDecision(ctx, r.Application, protocol.JointDecision{ID: r.ID, Why: "it was not decided in time"})
		decision = &stands
	}
	return protocol.OutcomeAnswer{Joint: joint, Decision: decision}, damage(err)
}

// Bounds in bytes of what is said of a joint release: of why one service failed, which all may, and of why all of it is as it is.
const (
	failedText = 200
	maxWhy     = 4 << 10
)

// Decide asks all services of a joint release for their promises, writes down what follows, and has all of them carry that out.
// Another worker goes on where this one died: what was promised, decided and carried out is so once.
func (a *Activities) Decide(ctx context.Context, r protocol.DecideRequest) (protocol.DecideAnswer, error) {
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(beating, nil)
	decision, err := a.Store.JointDecision(ctx, r.Application, r.ID)
	if err == nil && decision == nil {
		decision, err = a.decide(ctx, r)
	}
	if err != nil {
		return protocol.DecideAnswer{}, damage(err)
	}
	answer := protocol.DecideAnswer{Decision: *decision}
	answer.Decision.Why = entities.Clip(decision.Why, maxWhy)
	tries := a.askAll(ctx, r, protocol.Conclude, time.Now().Add(reachWithin))
	for n, service := range r.Services {
		switch err := tries[n]; {
		case err == nil || !decision.Committed: // a promise that nobody is told of ends by itself
		case isRefused(err):
			if answer.Failed == nil {
				answer.Failed = map[string]string{}
			}
			answer.Failed[service] = entities.Clip(refusalOf(err), failedText)
		default:
			answer.Services = append(answer.Services, service)
			answer.Why = entities.Clip(fmt.Sprintf("%s: %s", service, err), maxWhy)
		}
	}
	return answer, ctx.Err()
}

// decide writes down what follows from the promises. One service that does not promise has all of it aborted.
func (a *Activities) decide(ctx context.Context, r protocol.DecideRequest) (*protocol.JointDecision, error) {
	decision := protocol.JointDecision{ID: r.ID, Committed: true}
	var whys []string
	promises := a.askAll(ctx, r, protocol.Reserve, time.Now().Add(protocol.JointPatience))
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	for n, service := range r.Services {
		switch err := promises[n]; {
		case err == nil:
		case isRefused(err):
			whys = append(whys, service+": "+refusalOf(err))
		default:
			whys = append(whys, fmt.Sprintf("%s did not answer in time (%s)", service, err))
		}
	}
	if len(whys) > 0 {
		decision.Committed, decision.Why = false, strings.Join(whys, "; ")
	}
	stands, err := a.Store.CreateJointDecision(ctx, r.Application, decision)
	return &stands, err
}

// askAll sends a verb to all services, some at a time, until each has done it or refused it, or it is too late.
func (a *Activities) askAll(ctx context.Context, r protocol.DecideRequest, verb string, until time.Time) []error {
	errs := make([]error, len(r.Services))
	atOnce(len(r.Services), func(n int) {
		errs[n] = a.ask(ctx, protocol.ServiceID(r.Application, r.Services[n]), verb, protocol.JointHint{ID: r.ID}, until)
	})
	return errs
}

// askPause is between two tries to ask a service.
const askPause = 500 * time.Millisecond

func (a *Activities) ask(ctx context.Context, id, verb string, hint protocol.JointHint, until time.Time) error {
	for {
		err := a.askOnce(ctx, id, verb, hint)
		if err == nil || isRefused(err) || ctx.Err() != nil || time.Now().Add(askPause).After(until) {
			return err
		}
		select {
		case <-time.After(askPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *Activities) askOnce(ctx context.Context, id, verb string, hint protocol.JointHint) error {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	handle, err := a.Client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: verb, Args: []any{hint}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) && verb == protocol.Reserve {
		return refuse("nobody looks after it: its workflow is gone, or kept down")
	}
	return err
}

// isRefused: no later try would change it soon.
func isRefused(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && (app.Type() == protocol.ErrRefused || app.Type() == protocol.ErrDamaged)
}

func refusalOf(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}
