package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// applicationVerbs are Updates and Signals of the same name (DESIGN section 3).
var applicationVerbs = [...]string{
	protocol.Publish, protocol.Pause, protocol.Resume, protocol.Pin, protocol.Unpin,
}

func (a *application) listen() error {
	publish := func(_ workflow.Context, raw json.RawMessage) (protocol.PublishAnswer, error) { return a.publish(raw) }
	options := workflow.UpdateHandlerOptions{Validator: func(_ workflow.Context, raw json.RawMessage) error {
		_, err := a.check(raw)
		return refused(err)
	}}
	if err := workflow.SetUpdateHandlerWithOptions(a.ctx, protocol.Publish, publish, options); err != nil {
		return err
	}
	for _, verb := range applicationVerbs[1:] {
		options := workflow.UpdateHandlerOptions{
			Validator: func(_ workflow.Context, raw json.RawMessage) error {
				pin, err := a.decode(verb, raw)
				if err == nil {
					err = a.checkProof(verb, pin.Token, false)
				}
				return refused(err)
			},
			Description: verb + " (the signal of the same name takes the same JSON)",
		}
		handler := func(ctx workflow.Context, raw json.RawMessage) (protocol.Answer, error) {
			message, err := a.perform(ctx, verb, raw)
			a.woken = true
			if err != nil {
				err = refused(errors.New(errorText(err)))
			}
			return protocol.Answer{Message: message}, err
		}
		if err := workflow.SetUpdateHandlerWithOptions(a.ctx, verb, handler, options); err != nil {
			return err
		}
	}
	return workflow.SetQueryHandler(a.ctx, protocol.QueryStatus, a.status)
}

// collect carries out the signals that have come, in the order in which they came.
func (a *application) collect() {
	noted, rest := arrived(a.ctx)
	for _, name := range noted {
		a.take(name)
	}
	for _, name := range rest {
		for a.take(name) {
		}
	}
}

// take receives one signal, if there is one of that name. Nobody hears the answer, so a refusal is kept
// for `status`.
func (a *application) take(name string) bool {
	var raw json.RawMessage
	if !workflow.GetSignalChannel(a.ctx, name).ReceiveAsync(&raw) {
		return false
	}
	a.woken = true
	err := fmt.Errorf("no such verb; expected one of %s", strings.Join(applicationVerbs[:], ", "))
	switch {
	case name == protocol.Publish:
		_, err = a.publish(raw)
	case slices.Contains(applicationVerbs[:], name):
		_, err = a.perform(a.ctx, name, raw)
	}
	if err != nil {
		a.state.Refused = keepNewest(append(a.state.Refused, entities.Refusal{
			Verb: clip(name, maxName), By: by(raw), Reason: clip(errorText(err), maxRefusal), At: workflow.Now(a.ctx),
		}), entities.MaxRefused)
	}
	return true
}

// decode reads the payload of a verb; a pause has no number.
func (a *application) decode(verb string, raw json.RawMessage) (protocol.IncarnationPin, error) {
	var pin protocol.IncarnationPin
	var err error
	if verb == protocol.Pin {
		err = decodeStrictly(verb, raw, &pin)
	} else {
		err = decodeStrictly(verb, raw, &pin.Act)
	}
	stated := pin.Act
	if stated.By == "" && stated.Token != "" {
		stated.By = "whom the token names"
	}
	switch {
	case err != nil:
		return pin, err
	case checkAct(stated) != nil:
		return pin, checkAct(stated)
	case verb == protocol.Pin && pin.Incarnation < 1:
		return pin, errors.New(`"incarnation" is missing; expected the number of one: ` + a.known())
	}
	return pin, nil
}

// perform carries out one verb. The answer of a repeated request id is the one given then.
func (a *application) perform(ctx workflow.Context, verb string, raw json.RawMessage) (string, error) {
	p, err := a.decode(verb, raw)
	if err != nil {
		return "", err
	}
	who, err := a.identify(ctx, verb, p.Act)
	if err != nil {
		return "", err
	}
	var message string
	for _, before := range a.state.Requests {
		if p.RequestID != "" && before.ID == p.RequestID && before.Verb == verb && json.Unmarshal(before.Answer, &message) == nil {
			return message, nil
		}
	}
	if message, err = a.act(verb, p, who); err != nil || p.RequestID == "" {
		return message, err
	}
	if answer, err := json.Marshal(message); err == nil {
		a.state.Requests = keepNewest(append(a.state.Requests, entities.Request{ID: p.RequestID, Verb: verb, Answer: answer}), entities.MaxRequests)
	}
	return message, nil
}

func (a *application) act(verb string, p protocol.IncarnationPin, who entities.Who) (string, error) {
	switch verb {
	case protocol.Pause:
		return a.pause(who, p.Reason)
	case protocol.Resume:
		return a.resume(who, p.Reason)
	case protocol.Pin:
		return a.pin(p.Incarnation, who, p.Reason)
	case protocol.Unpin:
		return a.unpin(who, p.Reason)
	}
	return "", fmt.Errorf("no such verb %q", verb)
}

func (a *application) pause(who entities.Who, reason string) (string, error) {
	if p := a.state.Pause; p != nil {
		return "", fmt.Errorf("%s is paused already, by %s", a.name, p.By)
	}
	a.state.Pause = &entities.Pause{Scope: scopeApplication, By: who.Name, Reason: reason, At: workflow.Now(a.ctx)}
	a.state.Untold = true
	a.note(entities.EventPause, &who, a.name+" paused", reason)
	return a.name + " is paused; an apply in flight is left to finish", nil
}

func (a *application) resume(who entities.Who, reason string) (string, error) {
	if a.state.Pause == nil {
		return "", fmt.Errorf("%s is not paused; a service or a channel that is has a pause of its own", a.name)
	}
	a.state.Pause, a.state.Untold = nil, true
	a.note(entities.EventPause, &who, a.name+" resumed", reason)
	return a.name + " goes on", nil
}

// pin holds services at an incarnation, whatever is published (D15).
func (a *application) pin(number int64, who entities.Who, reason string) (string, error) {
	wanted := a.incarnation(number)
	switch {
	case wanted.Number == 0:
		return "", fmt.Errorf("no incarnation %d of %s: %s", number, a.name, a.known())
	case a.state.Pin != nil && a.state.Pin.Incarnation.Number == number:
		return "", fmt.Errorf("%s is pinned to incarnation %d already, by %s", a.name, number, a.state.Pin.Who.Name)
	}
	a.state.Pin = &protocol.ApplicationPin{Incarnation: wanted, Who: who, Reason: reason, At: workflow.Now(a.ctx)}
	message := fmt.Sprintf("%s pinned to incarnation %d", a.name, number)
	a.note(entities.EventPin, &who, message, reason)
	if newest := a.newest().Number; newest != number {
		message += fmt.Sprintf("; %d and what is published later wait until it is unpinned", newest)
	}
	return message, nil
}

func (a *application) unpin(who entities.Who, reason string) (string, error) {
	if a.state.Pin == nil {
		return "", fmt.Errorf("%s is not pinned", a.name)
	}
	a.state.Pin = nil
	a.note(entities.EventPin, &who, a.name+" unpinned", reason)
	return fmt.Sprintf("%s goes to incarnation %d", a.name, a.newest().Number), nil
}

// known lists the incarnations that can be pinned.
func (a *application) known() string {
	all := a.state.Incarnations
	switch n := len(all); {
	case n == 0:
		return "nothing was published yet"
	case n == 1:
		return fmt.Sprintf("there is %d", all[0].Number)
	default:
		return fmt.Sprintf("there are %d to %d", all[0].Number, all[n-1].Number)
	}
}
