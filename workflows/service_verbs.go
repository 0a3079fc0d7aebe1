package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// serviceVerbs are Updates and Signals of the same name (DESIGN section 3).
var serviceVerbs = [...]string{
	protocol.Release, protocol.Pause, protocol.Resume, protocol.Cancel, protocol.Retry, protocol.Refresh,
}

// listen registers handlers of updates, which answer at once. Signals have none: the loop collects
// them. A coroutine to receive each name would be simpler, but costs every idle service a stack.
func (s *service) listen() error {
	for _, verb := range serviceVerbs {
		options := workflow.UpdateHandlerOptions{
			Validator:   func(_ workflow.Context, raw json.RawMessage) error { return s.check(verb, raw) },
			Description: verb + " (the signal of the same name takes the same JSON)",
		}
		handler := func(ctx workflow.Context, raw json.RawMessage) (json.RawMessage, error) {
			return s.update(ctx, verb, raw)
		}
		if err := workflow.SetUpdateHandlerWithOptions(s.ctx, verb, handler, options); err != nil {
			return err
		}
	}
	if err := workflow.SetQueryHandler(s.ctx, protocol.QueryStatus, s.status); err != nil {
		return err
	}
	return workflow.SetQueryHandler(s.ctx, protocol.QueryExplain, s.explanation)
}

func (s *service) keep(name string, raw json.RawMessage) {
	if err := checkRaw(name, raw); err != nil {
		s.refuse(name, raw, err.Error(), workflow.Now(s.ctx))
		return
	}
	s.state.Inbox = append(s.state.Inbox, entities.Message{Verb: name, Payload: raw, At: workflow.Now(s.ctx)})
	s.woken = true
}

// collect takes the signals that have come into state, in the order in which they came. Those of a
// name that no verb answers to are refused visibly instead of being lost.
func (s *service) collect() {
	noted, rest := arrived(s.ctx)
	for _, name := range noted {
		s.take(name)
	}
	for _, name := range rest {
		for s.take(name) {
		}
	}
}

// take receives one signal, if there is one of that name.
func (s *service) take(name string) bool {
	var raw json.RawMessage
	if !workflow.GetSignalChannel(s.ctx, name).ReceiveAsync(&raw) {
		return false
	}
	if name != protocol.Publish && !slices.Contains(serviceVerbs[:], name) {
		s.refuse(name, raw, "no such verb; expected one of "+strings.Join(serviceVerbs[:], ", "), workflow.Now(s.ctx))
	} else {
		s.keep(name, raw)
	}
	return true
}

// receive carries out the inbox in order. What needs the store and cannot reach it stays at its
// place and is tried again; everything else goes on (a dead store must not hold up a pause).
func (s *service) receive() {
	if now := workflow.Now(s.ctx); !now.Before(s.retryAt) {
		s.retryAt = time.Time{} // due: who needs the store tries it now, and sets the next time
	}
	if len(s.state.Inbox) == 0 {
		return
	}
	if err := s.lock.Lock(s.ctx); err != nil {
		return
	}
	defer s.lock.Unlock()
	blocked := workflow.Now(s.ctx).Before(s.retryAt)
	stay := 0 // messages at the front that wait for the store
	for stay < len(s.state.Inbox) {
		m := s.state.Inbox[stay]
		if blocked && needsStore(m.Verb) {
			stay++
			continue
		}
		if err := s.receiveOne(m); isStoreError(err) {
			s.backOff(err)
			blocked = true
			stay++
			continue
		}
		// Meanwhile messages may have been added, at the end only.
		s.state.Inbox = append(s.state.Inbox[:stay:stay], s.state.Inbox[stay+1:]...)
	}
	if stay == 0 {
		s.retries, s.retryAt = 0, time.Time{}
	}
}

// receiveOne carries out one signal; what is refused is kept for `status`, and is done with.
func (s *service) receiveOne(m entities.Message) error {
	var err error
	if m.Verb == protocol.Publish {
		err = s.publish(m.Payload)
	} else {
		_, err = s.perform(s.ctx, m.Verb, m.Payload)
	}
	if err != nil && !isStoreError(err) {
		s.refuse(m.Verb, m.Payload, errorText(err), m.At)
	}
	return err
}

// backOff holds verbs that need the store until it may answer again.
func (s *service) backOff(err error) {
	s.retries++
	s.retryAt = workflow.Now(s.ctx).Add(min(time.Second<<min(s.retries, 6), time.Minute))
	s.state.Problem = errorText(err)
}

func needsStore(verb string) bool { return verb == protocol.Publish || verb == protocol.Release }

// update carries out one update: validated before it was accepted, then again under the lock,
// because other verbs may have come between.
func (s *service) update(ctx workflow.Context, verb string, raw json.RawMessage) (json.RawMessage, error) {
	if err := workflow.Await(ctx, s.configured); err != nil {
		return nil, err
	}
	if err := s.lock.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.lock.Unlock()
	answer, err := s.perform(ctx, verb, raw)
	s.woken, s.answered = true, true
	return answer, err
}

// configured: the service knows its configuration, or none is under way to it. An update may reach
// a new service together with the publication that started it.
func (s *service) configured() bool {
	return s.restored && s.state.Spec != nil || s.begun && !slices.ContainsFunc(s.state.Inbox,
		func(m entities.Message) bool { return m.Verb == protocol.Publish })
}

// check validates without I/O; a request id that was answered before always passes.
func (s *service) check(verb string, raw json.RawMessage) error {
	r, err := decode(verb, raw)
	if err != nil {
		return refused(err)
	}
	if _, done := s.state.Answered(verb, r.act().RequestID); done || verb != protocol.Release || s.state.Spec == nil {
		return nil
	}
	return refused(s.checkRelease(r.release))
}

func (s *service) checkRelease(r protocol.ReleaseRequest) error {
	names, channels := entities.SortedKeys(r.Parameters), entities.SortedKeys(r.ChannelParameters)
	for _, channel := range channels {
		names = append(names, entities.SortedKeys(r.ChannelParameters[channel])...)
	}
	return s.state.CheckRelease(r.Version, names, channels)
}

// perform carries out one verb. The answer of a repeated request id is the one given then.
func (s *service) perform(ctx workflow.Context, verb string, raw json.RawMessage) (json.RawMessage, error) {
	r, err := decode(verb, raw)
	if err != nil {
		return nil, refused(err)
	}
	act := r.act()
	if before, done := s.state.Answered(verb, act.RequestID); done {
		return repeated(verb, before), nil
	}
	var answer any
	if verb == protocol.Release {
		answer, err = s.release(ctx, r.release)
	} else {
		var message string
		message, err = s.act(verb, r)
		answer, err = protocol.Answer{Message: message}, refused(err)
	}
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("answer to %s: %w", verb, err)
	}
	s.state.Answer(verb, act.RequestID, out)
	return out, nil
}

// repeated is the answer once given, marked as such where the verb's answer has room for it.
func repeated(verb string, before json.RawMessage) json.RawMessage {
	var answer protocol.ReleaseAnswer
	if verb != protocol.Release || json.Unmarshal(before, &answer) != nil {
		return before
	}
	answer.Repeated = true
	if out, err := json.Marshal(answer); err == nil {
		return out
	}
	return before
}

// act carries out the verbs that are pure changes of state.
func (s *service) act(verb string, r request) (string, error) {
	now, who, why := workflow.Now(s.ctx), entities.Who{Name: r.act().By}, r.act().Reason
	switch verb {
	case protocol.Pause:
		return s.state.PauseScope(r.scope.Channel, who, why, now)
	case protocol.Resume:
		return s.state.ResumeScope(r.scope.Channel, who, now)
	case protocol.Refresh:
		return s.state.RefreshScope(r.scope.Channel)
	case protocol.Cancel:
		return s.state.CancelRelease(r.version.Version, r.version.Channel, who, why, now)
	case protocol.Retry:
		return s.state.RetryRelease(r.version.Version, r.version.Channel, who, now)
	}
	return "", fmt.Errorf("no such verb %q", verb)
}

// request is the payload of any verb; which part is filled depends on the verb.
type request struct {
	verb    string
	release protocol.ReleaseRequest
	scope   protocol.ScopeRequest
	version protocol.VersionRequest
}

func (r request) act() protocol.Act {
	switch r.verb {
	case protocol.Release:
		return r.release.Act
	case protocol.Cancel, protocol.Retry:
		return r.version.Act
	}
	return r.scope.Act
}

// decode reads a payload strictly: a misspelt field must not be a field left out.
func decode(verb string, raw json.RawMessage) (request, error) {
	r := request{verb: verb}
	var into any
	switch verb {
	case protocol.Release:
		into = &r.release
	case protocol.Cancel, protocol.Retry:
		into = &r.version
	default:
		into = &r.scope
	}
	if err := decodeStrictly(verb, raw, into); err != nil {
		return request{}, err
	}
	if err := checkAct(r.act()); err != nil {
		return request{}, err
	}
	if n := len(r.release.ID); n > maxName {
		return request{}, fmt.Errorf(`"id" is %d bytes long; at most %d`, n, maxName)
	}
	if v := r.version; into == &r.version && v.Version == "" {
		return request{}, errors.New(`"version" is missing`)
	}
	return r, nil
}

func decodeStrictly(verb string, raw json.RawMessage, into any) error {
	if err := checkRaw(verb, raw); err != nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("payload of %s: %s", verb, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// refused marks an error as one that a caller made; nil stays nil.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrRefused, nil)
}

func isStoreError(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == protocol.ErrStore
}

// errorText is the message of an error without Temporal's additions.
func errorText(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}
