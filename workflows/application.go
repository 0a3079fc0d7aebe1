package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// maxIncarnations is how many of the newest incarnations an Application remembers itself.
const maxIncarnations = 50

// Application is the life of one application: it numbers incarnations and tells services about
// them.
//
// Invariant: numbers only grow, an incarnation never changes (D5), and every service whose spec
// differs from what it was last told is told, however often a worker dies on the way: telling is
// one resumable activity from the manifest that all know to the newest one.
func Application(ctx workflow.Context, in protocol.ApplicationInput) error {
	a := &application{ctx: ctx, name: in.Application, state: in.State}
	if a.state == nil {
		a.state = &protocol.ApplicationState{}
	}
	if err := a.listen(); err != nil {
		return err
	}
	for {
		a.tell()
		workflow.SetCurrentDetails(ctx, a.details())
		if workflow.GetInfo(ctx).GetContinueAsNewSuggested() && !a.telling && workflow.AllHandlersFinished(ctx) {
			a.collect()
			return workflow.NewContinueAsNewError(ctx, protocol.ApplicationWorkflow,
				protocol.ApplicationInput{Application: a.name, State: a.state})
		}
		a.woken = false
		if err := workflow.Await(ctx, func() bool { return a.woken }); err != nil {
			return err
		}
	}
}

type application struct {
	ctx   workflow.Context
	name  string
	state *protocol.ApplicationState
	woken bool

	telling     bool
	tellingOf   string // the manifest that is being told
	stopTelling workflow.CancelFunc
}

func (a *application) listen() error {
	handler := func(_ workflow.Context, raw json.RawMessage) (protocol.PublishAnswer, error) { return a.publish(raw) }
	options := workflow.UpdateHandlerOptions{Validator: func(_ workflow.Context, raw json.RawMessage) error {
		_, err := a.check(raw)
		return refused(err)
	}}
	if err := workflow.SetUpdateHandlerWithOptions(a.ctx, protocol.Publish, handler, options); err != nil {
		return err
	}
	workflow.Go(a.ctx, func(ctx workflow.Context) {
		for {
			var raw json.RawMessage
			workflow.GetSignalChannel(ctx, protocol.Publish).Receive(ctx, &raw)
			a.signalled(raw)
		}
	})
	return workflow.SetQueryHandler(a.ctx, protocol.QueryStatus, a.status)
}

// signalled publishes by signal: nobody hears the answer, so a refusal is kept for `status`.
func (a *application) signalled(raw json.RawMessage) {
	if _, err := a.publish(raw); err != nil {
		a.state.Refused = keepNewest(append(a.state.Refused, entities.Refusal{
			Verb: protocol.Publish, By: by(raw), Reason: clip(errorText(err), maxRefusal), At: workflow.Now(a.ctx),
		}), entities.MaxRefused)
		a.woken = true
	}
}

func (a *application) collect() {
	for {
		var raw json.RawMessage
		if !workflow.GetSignalChannel(a.ctx, protocol.Publish).ReceiveAsync(&raw) {
			return
		}
		a.signalled(raw)
	}
}

// check validates a publication against what is newest.
func (a *application) check(raw json.RawMessage) (protocol.PublishRequest, error) {
	var p protocol.PublishRequest
	if err := decodeStrictly(protocol.Publish, raw, &p); err != nil {
		return p, err
	}
	newest := a.newest()
	switch {
	case p.By == "":
		return p, errors.New(`"by" is missing; expected who publishes`)
	case checkAct(p.Act) != nil:
		return p, checkAct(p.Act)
	case p.Hash == "" || p.Manifest == "":
		return p, errors.New(`"hash" and "manifest" are needed; publish with: converge apply DIR`)
	case a.answered(p.RequestID) != nil:
		return p, nil
	case p.After != 0 && p.After != newest.Number:
		return p, fmt.Errorf("compiled against incarnation %d, but %d is newest; see: converge diff %s %d %d",
			p.After, newest.Number, a.name, p.After, newest.Number)
	case newest.Number != 0 && p.Origin.Path != a.state.Origin.Path && !p.TakeOver:
		return p, fmt.Errorf("%s comes from %s, not from %s; to move it here: --take-over", a.name, a.state.Origin.Path, p.Origin.Path)
	case newest.Number != 0 && p.Store != a.state.Store && !p.TakeOver:
		return p, fmt.Errorf("%s is kept in the store %s, not in %s; to move it: --take-over", a.name, a.state.Store, p.Store)
	}
	return p, nil
}

// publish makes an incarnation the newest. The same content as the newest gets no new number; old
// content again does (D5), and newest goes by number.
func (a *application) publish(raw json.RawMessage) (protocol.PublishAnswer, error) {
	p, err := a.check(raw)
	if err != nil {
		return protocol.PublishAnswer{}, refused(err)
	}
	if before := a.answered(p.RequestID); before != nil {
		return *before, nil
	}
	answer := protocol.PublishAnswer{Incarnation: a.newest().Number, Hash: p.Hash, Unchanged: p.Manifest == a.state.Manifest}
	if p.Hash != a.newest().Hash {
		answer.Incarnation, answer.Unchanged = max(a.newest().Number, p.Floor)+1, false
		a.state.Incarnations = keepNewest(append(a.state.Incarnations, protocol.Incarnation{
			Number: answer.Incarnation, Hash: p.Hash, Manifest: p.Manifest, Services: p.Services,
			At: workflow.Now(a.ctx), By: p.By, Origin: p.Origin, Causes: p.Causes,
		}), maxIncarnations)
	}
	a.state.Manifest, a.state.Store, a.state.Origin = p.Manifest, p.Store, p.Origin
	if out, err := json.Marshal(answer); err == nil && p.RequestID != "" {
		a.state.Requests = keepNewest(append(a.state.Requests, entities.Request{ID: p.RequestID, Verb: protocol.Publish, Answer: out}), entities.MaxRequests)
	}
	a.woken = true
	return answer, nil
}

func (a *application) answered(id string) *protocol.PublishAnswer {
	for _, r := range a.state.Requests {
		if id == "" || r.ID != id {
			continue
		}
		var answer protocol.PublishAnswer
		if json.Unmarshal(r.Answer, &answer) == nil {
			return &answer
		}
	}
	return nil
}

func (a *application) newest() protocol.Incarnation {
	if n := len(a.state.Incarnations); n > 0 {
		return a.state.Incarnations[n-1]
	}
	return protocol.Incarnation{}
}

// tell starts telling the services what changed, one publication at a time. A newer one cuts in: it
// supersedes what is being told, and what is being told may never end (its manifest is in a store
// that no worker reads). Nobody is left out, since all is told anew from what all are known to know.
func (a *application) tell() {
	newest := a.newest()
	if a.telling && a.state.Manifest != a.tellingOf &&
		workflow.GetVersion(a.ctx, "newer-cuts-in", workflow.DefaultVersion, 1) == 1 {
		a.stopTelling() // and tell again once it has stopped
	}
	if a.telling || a.state.Manifest == a.state.Told && newest.Number == a.state.ToldNumber {
		return
	}
	a.telling, a.tellingOf = true, a.state.Manifest
	request := protocol.NotifyRequest{
		Application: a.name, From: a.state.Told, To: a.state.Manifest, Newest: newest, Store: a.state.Store,
	}
	for _, i := range a.state.Incarnations {
		if i.Number > a.state.ToldNumber && i.Number != newest.Number {
			request.Passed = append(request.Passed, i)
		}
	}
	ctx, stop := workflow.WithCancel(a.ctx)
	a.stopTelling = stop
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: margin,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
		Summary:     fmt.Sprintf("tell services of incarnation %d", newest.Number),
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
		a.state.Told, a.state.ToldNumber, a.state.Problem = request.To, newest.Number, ""
	})
}

func (a *application) status() (protocol.ApplicationStatus, error) {
	return protocol.ApplicationStatus{
		Schema: "converge.application/v1", Application: a.name, Newest: a.newest().Number, Store: a.state.Store,
		Origin: a.state.Origin, Manifest: a.state.Manifest, Told: a.state.Told, Notified: a.state.ToldNumber, Incarnations: a.state.Incarnations, Refused: a.state.Refused,
	}, nil
}

// details is what the Temporal UI shows of an application.
func (a *application) details() string {
	newest := a.newest()
	if newest.Number == 0 {
		return "nothing published yet"
	}
	text := fmt.Sprintf("**incarnation %d** by %s, %d services, from %s", newest.Number, newest.By, newest.Services, newest.Origin.Path)
	if a.state.ToldNumber != newest.Number {
		text += fmt.Sprintf("\n\ntelling services (all know incarnation %d)", a.state.ToldNumber)
	}
	if a.state.Problem != "" {
		text += "\n\n" + a.state.Problem
	}
	return text
}

func keepNewest[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	return append([]T(nil), list[len(list)-n:]...)
}
