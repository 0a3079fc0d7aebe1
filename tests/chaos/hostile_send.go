package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/chaos/record"
)

// This file sends what mallory does.

// attack sends all of it, and notes what was answered as if it had been right.
func (p *people) attack(ctx context.Context, attacks []attack) error {
	for _, a := range attacks {
		if err := p.awaitReleases(ctx, a.after); err != nil {
			return err
		}
		did := record.Attack{What: a.String(), At: time.Now()}
		answered, err := p.send(ctx, a)
		var refused *refusal
		if errors.As(err, &refused) {
			did.Refused, err = refused.reason, nil
		}
		did.Answered, did.Sent = answered, err == nil
		p.mu.Lock()
		p.attacks = append(p.attacks, did)
		p.mu.Unlock()
	}
	return ctx.Err()
}

// errNothing says that there is nothing yet to send: nobody has sent what it needs.
var errNothing = errors.New("nothing to send")

// send sends one message. Answered is what an update was answered with that should have been refused. An error is a *refusal, or says that
// the message may not have arrived.
func (p *people) send(ctx context.Context, a attack) (answered string, err error) {
	ctx, cancel := context.WithTimeout(ctx, oneTry/2)
	defer cancel()
	if a.start {
		_, err = p.world.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: a.id, TaskQueue: protocol.TaskQueue, WorkflowExecutionErrorWhenAlreadyStarted: true},
			protocol.ServiceWorkflow, protocol.ServiceInput{Application: application, Service: "evil", CarriedState: protocol.CarriedState{StateVersion: 1, State: json.RawMessage(`{}`)}})
		return "", err
	}
	payload := json.RawMessage(a.payload)
	switch {
	case a.replay:
		a.name, payload, err = p.replayed(a.id)
		a.update = false // it would be answered as the first time
	case a.identity != unproven:
		a.name, payload, err = p.posing(ctx, a)
	}
	if err != nil {
		return "", err
	}
	return p.world.message(ctx, a, payload)
}

// message sends a payload as it is.
func (w *world) message(ctx context.Context, a attack, payload []byte) (answered string, err error) {
	arg := converter.NewRawValue(&commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: payload})
	if !a.update {
		return "", w.client.SignalWorkflow(ctx, a.id, "", a.name, arg)
	}
	handle, err := w.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: a.id, UpdateName: a.name, Args: []any{arg}, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	var answer json.RawMessage
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	if err != nil && ctx.Err() == nil {
		err = &refusal{err.Error()}
	}
	return string(answer), err
}

// replayed is what somebody sent to a service last and was answered.
func (p *people) replayed(id string) (verb string, data json.RawMessage, err error) {
	p.mu.Lock()
	last, token := record.Act{}, ""
	for _, a := range slices.Backward(p.acts) {
		if a.Service != "" && protocol.ServiceID(application, a.Service) == id && a.Outcome == record.Answered {
			last, token = a, p.tokens[a.By()]
			break
		}
	}
	p.mu.Unlock()
	if last.N == 0 {
		return "", nil, errNothing
	}
	data, err = json.Marshal(payload(&last, token))
	return last.Verb, data, err
}

// posing is the content of an attack with a token in it: mallory's own, or one that somebody used.
func (p *people) posing(ctx context.Context, a attack) (verb string, data json.RawMessage, err error) {
	var fields map[string]any
	if err := json.Unmarshal([]byte(a.payload), &fields); err != nil {
		return "", nil, err
	}
	verb = a.name
	switch a.identity {
	case own:
		fields["token"], err = p.world.token(record.Mallory)
	default:
		used, usedErr := p.world.used(ctx, a.from)
		if usedErr != nil {
			return "", nil, usedErr
		}
		if fields["token"] = used.fields["token"]; a.same {
			verb, fields = used.verb, used.fields
		}
	}
	if err != nil {
		return "", nil, err
	}
	data, err = json.Marshal(fields)
	return verb, data, err
}

// request is an update that somebody was answered, with a token.
type request struct {
	verb   string
	fields map[string]any
}

// used reads the newest request that somebody was answered by a service from its history, as everybody can who reads Temporal. The token of
// one that was not answered yet may be unused: it would be whoever's who is first.
func (w *world) used(ctx context.Context, service string) (newest request, err error) {
	accepted := map[int64]request{}
	events := w.client.GetWorkflowHistory(ctx, protocol.ServiceID(application, service), "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			return newest, err
		}
		if r, ok := requestIn(e); ok {
			accepted[e.GetEventId()] = r
		}
		done := e.GetWorkflowExecutionUpdateCompletedEventAttributes()
		if r, ok := accepted[done.GetAcceptedEventId()]; ok && done.GetOutcome().GetSuccess() != nil {
			newest = r
		}
	}
	if newest.verb == "" {
		return newest, errNothing
	}
	return newest, nil
}

// requestIn is the request of somebody other than mallory that an event has, if it is an update with a token that was noted as used.
func requestIn(e *historypb.HistoryEvent) (request, bool) {
	input := e.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput()
	r := request{verb: input.GetName()}
	if len(input.GetArgs().GetPayloads()) != 1 || json.Unmarshal(input.GetArgs().GetPayloads()[0].GetData(), &r.fields) != nil {
		return r, false
	}
	return r, r.fields["token"] != nil && r.fields["reason"] == reason && !isUrgent(r.verb)
}
