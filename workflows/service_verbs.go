package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// serviceVerbs are Updates and Signals of the same name (DESIGN section 3).
var serviceVerbs = [...]string{
	protocol.Release, protocol.Pause, protocol.Resume, protocol.Cancel, protocol.Retry, protocol.Refresh,
	protocol.Approve, protocol.Reject, protocol.Bypass, protocol.Pin, protocol.Unpin, protocol.Rollback, protocol.Delete,
}

// listen registers handlers of updates, which answer at once. Signals have none: the loop collects
// them. A coroutine to receive each name would be simpler, but costs every idle service a stack.
func (s *service) listen() error {
	for _, verb := range serviceVerbs {
		options := workflow.UpdateHandlerOptions{
			Validator:   func(ctx workflow.Context, raw json.RawMessage) error { return s.check(ctx, verb, raw) },
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
	if err := workflow.SetQueryHandler(s.ctx, protocol.QueryHistory, s.history); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(s.ctx, protocol.QueryState, s.snapshot); err != nil {
		return err
	}
	return workflow.SetQueryHandler(s.ctx, protocol.QueryExplain, s.explanation)
}

// update carries out one update: validated before it was accepted, then again under the lock,
// because other verbs may have come between.
func (s *service) update(ctx workflow.Context, verb string, raw json.RawMessage) (json.RawMessage, error) {
	if err := workflow.Await(ctx, s.configured); err != nil {
		return nil, err
	}
	defer func() { s.woken, s.answered = true, true }()
	r, err := decode(verb, raw)
	if err != nil {
		return nil, refused(err)
	}
	if before, done := s.state.Answered(verb, r.RequestID); done {
		return repeated(verb, before), nil
	}
	who, err := s.identify(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := s.lock.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.lock.Unlock()
	return s.perform(ctx, r, who)
}

// configured: the service knows its configuration, or none is under way to it. An update may reach
// a new service together with the publication that started it.
func (s *service) configured() bool {
	return s.restored && s.state.Spec != nil || s.begun && !slices.ContainsFunc(s.state.Inbox,
		func(m entities.Message) bool { return m.Verb == protocol.Publish })
}

// check validates an update without I/O, so that one that is refused writes nothing. A request id
// that was answered before always passes.
func (s *service) check(ctx workflow.Context, verb string, raw json.RawMessage) error {
	r, err := decode(verb, raw)
	if err != nil {
		return refused(err)
	}
	if _, done := s.state.Answered(verb, r.RequestID); done || s.state.Spec == nil {
		return nil
	}
	if err := s.checkProof(r, false); err != nil {
		return refused(err)
	}
	if verb == protocol.Release {
		return refused(s.checkRelease(r.release))
	}
	if s.behind(ctx) {
		return nil // what comes before it may make it right: it is judged when its turn comes
	}
	if r.Token != "" {
		return refused(s.checkNames(r))
	}
	return refused(s.rehearse(ctx, r))
}

// behind: something that came earlier is not carried out yet.
func (s *service) behind(ctx workflow.Context) bool {
	return !s.restored || len(s.state.Inbox) > 0 || s.lock.IsLocked() || len(workflow.GetUnhandledSignalNames(ctx)) > 0
}

// checkNames refuses what does not exist. It is all that can be judged of a request before its token
// is looked at.
func (s *service) checkNames(r request) error {
	version := r.version
	if r.verb == protocol.Pin {
		version = "" // of what a channel was at, which need not be a release that is still known
	}
	if err := s.state.CheckNames(version, r.channel); err != nil {
		return err
	}
	if r.topic != "" && len(s.channelsOfTopic(r.topic)) == 0 {
		return fmt.Errorf("%s/%s has no approval %q", s.state.Application, s.state.Service, r.topic)
	}
	return nil
}

// rehearse carries a request out on a copy of the state, and says why it would be refused.
func (s *service) rehearse(ctx workflow.Context, r request) error {
	if _, declared := s.state.Spec.Channel(r.channel); r.verb == protocol.Refresh && (declared || r.channel == "") {
		return nil // nothing is wrong with it, and it is asked often
	}
	who := entities.Who{Name: r.By}
	if err := s.authorize(r, who); err != nil {
		return err
	}
	raw, err := json.Marshal(s.state)
	if err != nil {
		return fmt.Errorf("copy of the state: %w", err)
	}
	state := &entities.State{}
	if err := json.Unmarshal(raw, state); err != nil {
		return fmt.Errorf("copy of the state: %w", err)
	}
	_, err = act(ctx, state, r, who)
	return err
}

func (s *service) checkRelease(r protocol.ReleaseRequest) error {
	names, channels := entities.SortedKeys(r.Parameters), entities.SortedKeys(r.ChannelParameters)
	for _, channel := range channels {
		names = append(names, entities.SortedKeys(r.ChannelParameters[channel])...)
	}
	return s.state.CheckRelease(r.Version, names, channels)
}

// perform carries out one verb. The answer of a repeated request id is the one given then.
func (s *service) perform(ctx workflow.Context, r request, who entities.Who) (json.RawMessage, error) {
	if before, done := s.state.Answered(r.verb, r.RequestID); done {
		return repeated(r.verb, before), nil
	}
	if err := s.authorize(r, who); err != nil {
		return nil, refused(err)
	}
	answer, err := s.answer(ctx, r, who)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("answer to %s: %w", r.verb, err)
	}
	s.state.Answer(r.verb, r.RequestID, out)
	return out, nil
}

func (s *service) answer(ctx workflow.Context, r request, who entities.Who) (any, error) {
	if r.verb == protocol.Release {
		return s.release(ctx, r, who)
	}
	message, err := act(ctx, s.state, r, who)
	if err != nil {
		return nil, refused(err)
	}
	return protocol.Answer{Message: joined(message, replaced(r, who))}, nil
}

// joined are the sentences that there are.
func joined(message, note string) string {
	if message == "" || note == "" {
		return message + note
	}
	return message + "; " + note
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
func act(ctx workflow.Context, state *entities.State, r request, who entities.Who) (string, error) {
	now := workflow.Now(ctx)
	switch r.verb {
	case protocol.Pause:
		return state.PauseScope(r.channel, who, r.Reason, now)
	case protocol.Resume:
		return state.ResumeScope(r.channel, who, now)
	case protocol.Refresh:
		return state.RefreshScope(r.channel)
	case protocol.Cancel:
		return state.CancelRelease(r.version, r.channel, who, r.Reason, now)
	case protocol.Retry:
		return state.RetryRelease(r.version, r.channel, who, now)
	case protocol.Approve, protocol.Reject:
		return state.Approve(r.version, entities.Approval{
			Topic: r.topic, Who: who, At: now, Reject: r.verb == protocol.Reject, Comment: r.comment,
		})
	case protocol.Bypass:
		return state.AddBypass(r.version, entities.Bypass{
			Channel: r.channel, Condition: r.condition, Who: who, Reason: r.Reason, At: now,
		})
	case protocol.Pin:
		return state.PinChannel(r.version, entities.Pin{Channel: r.channel, Who: who, Reason: r.Reason, At: now})
	case protocol.Unpin:
		return state.UnpinChannel(r.channel, who, r.Reason, now)
	case protocol.Rollback:
		return state.RollbackRelease(r.version, r.channel, who, r.Reason, now)
	case protocol.Delete:
		return state.TakeDown(who, r.Reason, now)
	}
	return "", fmt.Errorf("no such verb %q", r.verb)
}

// refused marks an error as one that a caller made; nil stays nil.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrRefused, nil)
}

// errorText is the message of an error without Temporal's additions.
func errorText(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}
