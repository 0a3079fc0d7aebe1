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

// registerHandlers registers handlers of updates, which answer at once. Signals have no handlers: the loop collects them. A coroutine per
// signal name would be simpler, but costs every idle workflow a stack.
func (s *shell) registerHandlers() error {
	if err := workflow.SetQueryHandler(s.ctx, protocol.QueryCheckpoint, s.resubmitCheckpoint); err != nil {
		return err
	}
	if err := workflow.SetQueryHandler(s.ctx, protocol.QueryHistory, inParts(&s.large, "the unstored history of "+s.name, s.unstoredHistory, nil)); err != nil {
		return err
	}
	for n := range s.verbs {
		row := &s.verbs[n]
		options := workflow.UpdateHandlerOptions{
			Validator: func(ctx workflow.Context, raw json.RawMessage) error {
				return asRefusal(s.validate(ctx, row, raw))
			},
			Description: row.Description + " (the signal of the same name takes the same JSON)",
		}
		handler := func(ctx workflow.Context, raw json.RawMessage) (json.RawMessage, error) {
			return s.update(withoutCancel(ctx), row, raw)
		}
		if err := workflow.SetUpdateHandlerWithOptions(s.ctx, row.Name, handler, options); err != nil {
			return err
		}
	}
	return nil
}

// validate judges an update without I/O, so that a refused one writes nothing. A request id that was answered before always passes.
func (s *shell) validate(ctx workflow.Context, row *verb.Row, raw json.RawMessage) error {
	r, err := readUpdate(ctx, row, raw)
	if err != nil {
		return err
	}
	if before, done := s.mailbox.Answered(r.RequestID); done {
		return before.CheckSame(row.Name, r.RequestDigest, statedBy(r))
	}
	if err := r.CheckSpelling(); err != nil || s.adopting || !s.restored || !s.entity.initialized() {
		return err
	}
	stated := entities.Who{Name: r.By}
	if _, later := s.externalRulesFor(row, r); later {
		_, err = s.entity.judge(row, r, stated)
		return err
	}
	if err := s.checkProof(row, r, false); err != nil {
		return err
	}
	if err := s.checkNamedCaller(row, r, false); err != nil {
		return err
	}
	switch {
	case row.Store:
		_, err = s.entity.judge(row, r, stated)
	case s.hasEarlierMessages(ctx): // earlier messages may make it valid: it is judged after them
	case r.Token != "" && s.guarded(row):
		err = s.entity.checkNames(r)
	default:
		if err = s.authorize(row, r, stated); err == nil {
			_, err = s.entity.judge(row, r, stated) // the effect is discarded
		}
	}
	return err
}

// hasEarlierMessages reports whether earlier messages are not carried out yet.
func (s *shell) hasEarlierMessages(ctx workflow.Context) bool {
	return len(s.mailbox.Inbox) > 0 || s.lock.IsLocked() || len(workflow.GetUnhandledSignalNames(ctx)) > 0
}

// ready reports whether there is state to judge verbs by, or no work that would create it is in progress. An update may reach a new service
// together with the publication that started it.
func (s *shell) ready() bool {
	return !s.adopting && (s.restored && s.entity.initialized() || s.reconciledOnce && !s.isQueued(protocol.Publish))
}

// update carries out one update, and answers once its result is known.
func (s *shell) update(ctx workflow.Context, row *verb.Row, raw json.RawMessage) (json.RawMessage, error) {
	out, err := s.performUpdate(ctx, row, raw)
	if follow := s.outcomeHandlers[row.Name]; follow != nil && err == nil {
		return follow(ctx, out)
	}
	return out, err
}

// performUpdate carries out one update. It was validated before it was accepted, and is validated again under the lock, because other verbs
// may have run in between.
func (s *shell) performUpdate(ctx workflow.Context, row *verb.Row, raw json.RawMessage) (json.RawMessage, error) {
	if err := s.awaitAdoption(ctx); err != nil {
		return nil, err
	}
	if err := workflow.Await(ctx, s.ready); err != nil {
		return nil, err
	}
	if err := s.waitForEarlierSignals(ctx); err != nil {
		return nil, err
	}
	out, err := s.carryOutUpdate(ctx, row, raw)
	s.afterUpdate()
	return out, err
}

// carryOutUpdate carries out an update whose turn it is.
func (s *shell) carryOutUpdate(ctx workflow.Context, row *verb.Row, raw json.RawMessage) (json.RawMessage, error) {
	r, err := decodeUpdate(ctx, row, raw)
	if err != nil {
		return nil, asRefusal(err)
	}
	who, err := s.identify(ctx, row, r)
	if err != nil {
		return nil, err
	}
	if out, done, err := s.previousAnswer(row, r, who); done {
		return s.withFollowUp(row, r, out), err
	}
	out, err := s.runSerialized(ctx, row, r, who)
	return s.withFollowUp(row, r, out), err
}

// afterUpdate wakes the loop, which then submits a checkpoint in the workflow task that answers the update. While the run ends, the loop
// would do so only in the next run.
func (s *shell) afterUpdate() {
	s.woken, s.updateAnswered = true, true
	if s.ending {
		s.collect()
		s.checkpoint(false)
	}
}

// withFollowUp adds the follow-up to an answer, as of now. It is not part of the stored answer, so its text can change freely.
func (s *shell) withFollowUp(row *verb.Row, r verb.Request, out json.RawMessage) json.RawMessage {
	if out == nil {
		return nil
	}
	return row.AddNext(out, s.entity.followUp(row, r))
}

// runSerialized carries out an update in order.
func (s *shell) runSerialized(ctx workflow.Context, row *verb.Row, r verb.Request, who entities.Who) (json.RawMessage, error) {
	perform := func(ctx workflow.Context) (json.RawMessage, error) { return s.performVerb(ctx, row, r, who) }
	if row.Store {
		return s.runInStoreQueue(ctx, perform)
	}
	out, err := s.withLock(ctx, perform)
	if s.answerHandlers[row.Name] != nil { // its answer needs the store
		return out, err
	}
	return s.withPendingAudit(out), err
}

// withPendingAudit adds to an answer that the audit line is not in the store yet, if the worker knows that the store is unavailable and the
// workflow does not know that yet. It is not part of the stored answer, because a replay does not know it. The line is in the history of
// the workflow that sends this answer.
func (s *shell) withPendingAudit(out json.RawMessage) json.RawMessage {
	worker, ok := s.ctx.Value(checkpointerKey{}).(StoreHealth)
	if !ok || out == nil || workflow.IsReplaying(s.ctx) || len(s.mailbox.Audit) == 0 || s.mailbox.AuditPending() != "" || !worker.StoreUnavailable() {
		return out
	}
	var answer protocol.Answer
	if json.Unmarshal(out, &answer) != nil {
		return out
	}
	answer.Message = joinNotes(answer.Message, state.AuditPending(len(s.mailbox.Audit)))
	if with, err := json.Marshal(answer); err == nil {
		return with
	}
	return out
}

// waitForEarlierSignals makes an update wait for the signals that arrived before it, unless these are waiting themselves. The loop may be
// busy ending the run.
func (s *shell) waitForEarlierSignals(ctx workflow.Context) error {
	if s.untriedSignals == 0 && len(workflow.GetUnhandledSignalNames(ctx)) == 0 {
		return nil
	}
	s.woken = true
	s.collect()
	before := s.inboxPasses
	return workflow.Await(ctx, func() bool { return s.inboxPasses > before })
}

// withLock calls do while nothing else is carried out.
func (s *shell) withLock(ctx workflow.Context, do func(workflow.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	if err := s.lock.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.lock.Unlock()
	return do(ctx)
}

// readUpdate is decodeUpdate for an update that is not accepted yet.
func readUpdate(ctx workflow.Context, row *verb.Row, raw json.RawMessage) (verb.Request, error) {
	r, err := decodeUpdate(ctx, row, raw)
	if err == nil {
		err = verb.CheckForm(row.Name, raw)
	}
	return r, err
}

// decodeUpdate is Decode for an update. The id of the update is the default request id. So an update that the server delivers again after a
// reset, or that is found in the history of a closed run, is carried out once. The update's token was used under that id, and is then
// presented under it again.
func decodeUpdate(ctx workflow.Context, row *verb.Row, raw json.RawMessage) (verb.Request, error) {
	r, err := row.Decode(raw)
	if info := workflow.GetCurrentUpdateInfo(ctx); err == nil && r.RequestID == "" && info != nil {
		r.RequestID = info.ID
		if r.Token != "" {
			r.Payload = withRequestID(raw, info.ID)
			r.PayloadDigest = verb.PayloadDigest(r.Payload)
		}
	}
	return r, err
}

// performSignal carries out a verb that arrived as a signal. A token is verified at once. The proven identity stays with the message and
// the token does not, so the token may expire while the message waits for the store.
func (s *shell) performSignal(ctx workflow.Context, m *state.Message) error {
	row := verb.Find(s.verbs, m.Verb)
	if row == nil {
		return asRefusal(fmt.Errorf("no such verb %q", m.Verb)) // a worker of another version received it
	}
	r, err := row.DecodeSignal(m.Payload)
	if err != nil {
		return asRefusal(err)
	}
	r.At = m.At
	if r.Token != "" && r.RequestID == "" { // a repeated signal is the same request
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
	_, err = s.performVerb(ctx, row, r, *who)
	return err
}

// performVerb carries out one verb. A repeated request id gets the original answer.
func (s *shell) performVerb(ctx workflow.Context, row *verb.Row, r verb.Request, who entities.Who) (json.RawMessage, error) {
	if out, done, err := s.previousAnswer(row, r, who); done {
		return out, err
	}
	if err := s.authorize(row, r, who); err != nil {
		return nil, asRefusal(err)
	}
	answer, err := s.answerVerb(ctx, row, r, who)
	if err != nil {
		return nil, err
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("answer to %s: %w", row.Name, err)
	}
	s.mailbox.Answer(state.Request{
		ID: r.RequestID, Verb: row.Name, Digest: r.RequestDigest, By: who.Name, Subject: who.Subject, Answer: out, TokenUntil: s.replayableUntil(who),
	}, s.now())
	return out, nil
}

func (s *shell) answerVerb(ctx workflow.Context, row *verb.Row, r verb.Request, who entities.Who) (any, error) {
	if special := s.answerHandlers[row.Name]; special != nil {
		return special(ctx, r, who)
	}
	return s.applyVerb(row, r, who)
}

// applyVerb carries out a verb that needs no further dependency.
func (s *shell) applyVerb(row *verb.Row, r verb.Request, who entities.Who) (any, error) {
	effect, err := s.entity.judge(row, r, who)
	if err != nil {
		return nil, asRefusal(err)
	}
	return protocol.Answer{Message: joinNotes(joinNotes(effect(), identityNote(r, who)), s.mailbox.AuditPending())}, nil
}

// previousAnswer returns the original answer to a repeated request. A different request with the same id is refused.
func (s *shell) previousAnswer(row *verb.Row, r verb.Request, who entities.Who) (out json.RawMessage, done bool, err error) {
	before, done := s.mailbox.Answered(r.RequestID)
	if !done {
		return nil, false, nil
	}
	if err := before.CheckSame(row.Name, r.RequestDigest, &who); err != nil {
		return nil, true, asRefusal(err)
	}
	return markRepeated(row, before.Answer), true, nil
}

// statedBy is the caller as far as it is known before a token is verified.
func statedBy(r verb.Request) *entities.Who {
	if r.Token != "" {
		return nil
	}
	return &entities.Who{Name: r.By}
}

// markRepeated is the original answer, marked as repeated if the verb's answer allows that.
func markRepeated(row *verb.Row, before json.RawMessage) json.RawMessage {
	if row.Repeat == nil {
		return before
	}
	return row.Repeat(before)
}

// joinNotes joins the non-empty sentences.
func joinNotes(message, note string) string {
	if message == "" || note == "" {
		return message + note
	}
	return message + "; " + note
}

// asRefusal marks an error as caused by the caller; nil stays nil. The text is valid UTF-8, because the server accepts nothing else.
func asRefusal(err error) error {
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

// rootCause is the useful part of a chain of Temporal errors for a person: the whole message of the application error ("write … to the
// store: permission denied"), or else the innermost error.
func rootCause(err error) string {
	var app *temporal.ApplicationError
	for !errors.As(err, &app) && errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return errorText(err)
}
