package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// listen registers handlers of updates, which answer at once. Signals have none: the loop collects
// them. A coroutine to receive each name would be simpler, but costs every idle workflow a stack.
func (s *shell) listen() error {
	if err := workflow.SetQueryHandler(s.ctx, protocol.QueryCheckpoint, s.handOverAgain); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(s.ctx, protocol.QueryHistory, inParts(&s.large, "what is not stored of the history of "+s.name, s.history, nil)); err != nil {
		return err
	}
	for n := range s.verbs {
		row := &s.verbs[n]
		options := workflow.UpdateHandlerOptions{
			Validator: func(ctx workflow.Context, raw json.RawMessage) error {
				return refused(s.validate(ctx, row, raw))
			},
			Description: row.Description + " (the signal of the same name takes the same JSON)",
		}
		handler := func(ctx workflow.Context, raw json.RawMessage) (json.RawMessage, error) {
			return s.update(uncancelled(ctx), row, raw)
		}
		if err := workflow.SetUpdateHandlerWithOptions(s.ctx, row.Name, handler, options); err != nil {
			return err
		}
	}
	return nil
}

// validate judges an update without I/O, so that one that is refused writes nothing. A request id
// that was answered before always passes.
func (s *shell) validate(ctx workflow.Context, row *verb.Row, raw json.RawMessage) error {
	r, err := readUpdate(ctx, row, raw)
	if err != nil {
		return err
	}
	if before, done := s.desk.Answered(row.Name, r.RequestID); done {
		return before.Same(r.Asks, statedBy(r))
	}
	if err := r.CheckSpelling(); err != nil || s.adopting || !s.restored || !s.of.known() {
		return err
	}
	stated := entities.Who{Name: r.By}
	if _, later := s.consults(row, r); later {
		_, err = s.of.judge(row, r, stated)
		return err
	}
	if err := s.checkProof(row, r, false); err != nil {
		return err
	}
	if err := s.checkWhom(row, r, false); err != nil {
		return err
	}
	switch {
	case row.Store:
		_, err = s.of.judge(row, r, stated)
	case s.behind(ctx): // what comes before it may make it right: it is judged when its turn comes
	case r.Token != "" && s.guarded(row):
		err = s.of.checkNames(r)
	default:
		if err = s.authorize(row, r, stated); err == nil {
			_, err = s.of.judge(row, r, stated) // the effect is let go
		}
	}
	return err
}

// behind: something that came earlier is not carried out yet.
func (s *shell) behind(ctx workflow.Context) bool {
	return len(s.desk.Inbox) > 0 || s.lock.IsLocked() || len(workflow.GetUnhandledSignalNames(ctx)) > 0
}

// ready: there is something to judge verbs by, or nothing of that is under way. An update may reach
// a new service together with the publication that started it.
func (s *shell) ready() bool {
	return !s.adopting && (s.restored && s.of.known() || s.begun && !s.waits(protocol.Publish))
}

// update carries out one update, and answers once what follows from it is known.
func (s *shell) update(ctx workflow.Context, row *verb.Row, raw json.RawMessage) (json.RawMessage, error) {
	out, err := s.updated(ctx, row, raw)
	if follow := s.outcomes[row.Name]; follow != nil && err == nil {
		return follow(ctx, out)
	}
	return out, err
}

// updated carries out one update: validated before it was accepted, then again under the lock,
// because other verbs may have come between.
func (s *shell) updated(ctx workflow.Context, row *verb.Row, raw json.RawMessage) (json.RawMessage, error) {
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	if err := workflow.Await(ctx, s.ready); err != nil {
		return nil, err
	}
	if err := s.inTurn(ctx); err != nil {
		return nil, err
	}
	defer func() { s.woken, s.answered = true, true }()
	r, err := decodeUpdate(ctx, row, raw)
	if err != nil {
		return nil, refused(err)
	}
	if out, done, err := s.again(row, r, statedBy(r)); done {
		return s.told(row, r, out), err
	}
	who, err := s.identify(ctx, row, r)
	if err != nil {
		return nil, err
	}
	out, err := s.whenDue(ctx, row, r, who)
	return s.told(row, r, out), err
}

// told says in an answer what follows, as of now. It is no part of what is remembered, so that its words change freely.
func (s *shell) told(row *verb.Row, r verb.Request, out json.RawMessage) json.RawMessage {
	if out == nil {
		return nil
	}
	return row.Say(out, s.of.follows(row, r))
}

// whenDue has an update carried out when its turn comes.
func (s *shell) whenDue(ctx workflow.Context, row *verb.Row, r verb.Request, who entities.Who) (json.RawMessage, error) {
	perform := func(ctx workflow.Context) (json.RawMessage, error) { return s.perform(ctx, row, r, who) }
	if row.Store {
		return s.inLine(ctx, perform)
	}
	out, err := s.locked(ctx, perform)
	if s.answers[row.Name] != nil { // whatever it answers needs the store
		return out, err
	}
	return s.pending(out), err
}

// pending says in an answer that the store does not have the line of what was done, where the worker knows that the store does
// not answer although the workflow does not yet. It is no part of what is remembered, since a replay knows nothing of it; the
// line is in the history of the workflow from which this answer is.
func (s *shell) pending(out json.RawMessage) json.RawMessage {
	worker, ok := s.ctx.Value(checkpointerKey{}).(Watcher)
	if !ok || out == nil || workflow.IsReplaying(s.ctx) || len(s.desk.Audit) == 0 || s.desk.AuditPending() != "" || !worker.Away() {
		return out
	}
	var answer protocol.Answer
	if json.Unmarshal(out, &answer) != nil {
		return out
	}
	answer.Message = joined(answer.Message, state.AuditPending(len(s.desk.Audit)))
	if with, err := json.Marshal(answer); err == nil {
		return with
	}
	return out
}

// inTurn has an update wait for the signals that came before it, unless they wait themselves: the loop may be busy ending
// the run.
func (s *shell) inTurn(ctx workflow.Context) error {
	if s.untried == 0 && len(workflow.GetUnhandledSignalNames(ctx)) == 0 {
		return nil
	}
	s.woken = true
	s.collect()
	before := s.passes
	return workflow.Await(ctx, func() bool { return s.passes > before })
}

// locked does something while nothing else is carried out.
func (s *shell) locked(ctx workflow.Context, do func(workflow.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	if err := s.lock.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.lock.Unlock()
	return do(ctx)
}

// readUpdate is decodeUpdate of one that nobody has accepted yet.
func readUpdate(ctx workflow.Context, row *verb.Row, raw json.RawMessage) (verb.Request, error) {
	r, err := decodeUpdate(ctx, row, raw)
	if err == nil {
		err = verb.CheckForm(row.Name, raw)
	}
	return r, err
}

// decodeUpdate is Decode for an update. The id of the update stands for a request id that is not given: one that the
// server hands on after a reset, or that is found in the history of a closed run, is carried out once. A token that it came
// with has served it with that id, as which it comes then.
func decodeUpdate(ctx workflow.Context, row *verb.Row, raw json.RawMessage) (verb.Request, error) {
	r, err := row.Decode(raw)
	if info := workflow.GetCurrentUpdateInfo(ctx); err == nil && r.RequestID == "" && info != nil {
		r.RequestID = info.ID
		if r.Token != "" {
			r.Content = verb.ContentOf(withRequestID(raw, info.ID))
		}
	}
	return r, err
}

// signalled carries out a verb that came as a signal. A token is looked at once: who it proves stays
// with the message, the token does not, so that it may expire while the message waits for the store.
func (s *shell) signalled(ctx workflow.Context, m *state.Message) error {
	row := verb.Find(s.verbs, m.Verb)
	if row == nil {
		return refused(fmt.Errorf("no such verb %q", m.Verb)) // a worker of another version took it in
	}
	r, err := row.DecodeSignal(m.Payload)
	if err != nil {
		return refused(err)
	}
	r.At = m.At
	if r.Token != "" && r.RequestID == "" { // one that is sent again is the same request
		r.RequestID = "signal-" + digestOf(m.Verb, m.Payload)
	}
	who := m.Who
	if who == nil {
		proven, err := s.identify(ctx, row, r)
		if err != nil {
			return err
		}
		who = &proven
	}
	if r.Token != "" {
		m.Payload, m.Who = withRequestID(withoutToken(m.Payload, who.Name), r.RequestID), who
	}
	_, err = s.perform(ctx, row, r, *who)
	return err
}

// perform carries out one verb. The answer of a repeated request id is the one given then.
func (s *shell) perform(ctx workflow.Context, row *verb.Row, r verb.Request, who entities.Who) (json.RawMessage, error) {
	if out, done, err := s.again(row, r, who.Name); done {
		return out, err
	}
	if err := s.authorize(row, r, who); err != nil {
		return nil, refused(err)
	}
	answer, err := s.answer(ctx, row, r, who)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("answer to %s: %w", row.Name, err)
	}
	s.desk.Answer(state.Request{
		ID: r.RequestID, Verb: row.Name, Of: r.Asks, By: who.Name, Answer: out, Until: s.replayableUntil(who),
	}, s.now())
	return out, nil
}

func (s *shell) answer(ctx workflow.Context, row *verb.Row, r verb.Request, who entities.Who) (any, error) {
	if special := s.answers[row.Name]; special != nil {
		return special(ctx, r, who)
	}
	return s.effect(row, r, who)
}

// effect carries out a verb that asks nobody outside any more.
func (s *shell) effect(row *verb.Row, r verb.Request, who entities.Who) (any, error) {
	effect, err := s.of.judge(row, r, who)
	if err != nil {
		return nil, refused(err)
	}
	return protocol.Answer{Message: joined(joined(effect(), replaced(r, who)), s.desk.AuditPending())}, nil
}

// again is what a request was answered that comes once more. Another one under its id is refused.
func (s *shell) again(row *verb.Row, r verb.Request, by string) (out json.RawMessage, done bool, err error) {
	before, done := s.desk.Answered(row.Name, r.RequestID)
	if !done {
		return nil, false, nil
	}
	if err := before.Same(r.Asks, by); err != nil {
		return nil, true, refused(err)
	}
	return repeated(row, before.Answer), true, nil
}

// statedBy is who asks, as far as that is known before a token is looked at.
func statedBy(r verb.Request) string {
	if r.Token != "" {
		return ""
	}
	return r.By
}

// repeated is the answer once given, marked as such where the verb's answer has room for it.
func repeated(row *verb.Row, before json.RawMessage) json.RawMessage {
	if row.Repeat == nil {
		return before
	}
	return row.Repeat(before)
}

// joined are the sentences that there are.
func joined(message, note string) string {
	if message == "" || note == "" {
		return message + note
	}
	return message + "; " + note
}

// refused marks an error as one that a caller made; nil stays nil. It is UTF-8, as the server takes no other answer.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(strings.ToValidUTF8(err.Error(), "\ufffd"), protocol.ErrRefused, nil)
}

// errorText is the message of an error without Temporal's additions.
func errorText(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}

// rootCause is what a person needs of a chain of Temporal errors: the message of what failed, whole
// ("write … to the store: permission denied"), or else the innermost one.
func rootCause(err error) string {
	var app *temporal.ApplicationError
	for !errors.As(err, &app) && errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return errorText(err)
}
