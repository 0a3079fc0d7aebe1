package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// This file receives signals: in order, with limits, and each to its handler.

// collect moves the received signals into state, in the order of arrival. Signals of an unknown name are refused visibly instead of being
// lost, and so is a request to cancel.
func (s *shell) collect() {
	s.refuseCancellation()
	s.inboxBytes, s.inboxHints = 0, 0
	for _, m := range s.mailbox.Inbox {
		s.countMessage(m)
	}
	noted, rest := takeArrived(s.ctx)
	for _, name := range noted {
		s.receiveSignal(name)
	}
	for _, name := range rest {
		for s.receiveSignal(name) {
		}
	}
}

// receiveSignal receives one signal of that name, if there is one.
func (s *shell) receiveSignal(name string) bool {
	if isReserved(name) {
		s.recordRefusal(name, nil, s.errNoVerb().Error(), s.now())
		return true
	}
	var received converter.RawValue
	if !workflow.GetSignalChannel(s.ctx, name).ReceiveAsync(&received) {
		return false
	}
	raw := signalPayload(received)
	if name == protocol.SignalWake {
		var w protocol.Wake
		s.planHinted = json.Unmarshal(raw, &w) == nil && w.Plan || s.planHinted
		s.woken = true
		return true
	}
	if err := s.checkSignal(name, raw); err != nil {
		s.recordRefusal(name, raw, err.Error(), s.now())
		return true
	}
	if m := s.messages[name]; m.handle != nil && s.inboxOverLimit() {
		s.coalesce(name, raw)
		return true
	}
	s.enqueue(name, raw)
	s.untriedSignals++
	s.recordSeen(name, raw)
	return true
}

// signalPayload is the JSON payload of a signal. If the payload is not JSON, which the SDK would skip, it is the raw data.
func signalPayload(received converter.RawValue) (raw json.RawMessage) {
	payload := received.Payload()
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &raw); err != nil {
		return payload.GetData()
	}
	return raw
}

func (s *shell) errNoVerb() error {
	return errors.New("no such verb; expected one of " + strings.Join(verb.Names(s.verbs), ", "))
}

// checkSignal refuses a signal that could never be carried out, and one that exceeds the limits of the inbox.
func (s *shell) checkSignal(name string, raw json.RawMessage) error {
	m, known := s.messages[name]
	if verb.Find(s.verbs, name) == nil && (!known || m.internal) {
		return s.errNoVerb()
	}
	if err := verb.CheckRaw(name, raw); err != nil {
		return err
	}
	if err := verb.CheckForm(name, raw); err != nil {
		return err
	}
	if !known {
		return s.checkInboxRoom()
	}
	return nil
}

// checkInboxRoom refuses a message if the inbox is full, because all of it goes from run to run. Messages of other workflows are not
// limited here.
func (s *shell) checkInboxRoom() error {
	if len(s.mailbox.Inbox) < state.MaxInbox && s.inboxBytes < state.MaxInboxBytes {
		return nil
	}
	return fmt.Errorf("%d signals are queued already, which is the limit; send it again once they are carried out%s", len(s.mailbox.Inbox), entities.Because(entities.Visible(s.mailbox.Problem)))
}

// inboxOverLimit reports whether so many messages of other workflows are queued that a hostile one must have sent them.
func (s *shell) inboxOverLimit() bool {
	return s.inboxHints >= state.MaxHints || s.inboxBytes >= 2*state.MaxInboxBytes
}

// coalesce coalesces a hint that exceeds the limits: one message to check is kept instead, if the message type has one.
func (s *shell) coalesce(name string, raw json.RawMessage) {
	coalesced := s.messages[name].coalesced
	if coalesced == "" {
		s.recordRefusal(name, raw, fmt.Sprintf("%d signals of other workflows are queued already, which is the limit", s.inboxHints), s.now())
	} else if !slices.ContainsFunc(s.mailbox.Inbox, func(m *state.Message) bool { return m.Verb == name && string(m.Payload) == coalesced }) {
		s.enqueue(name, json.RawMessage(coalesced))
	}
}

// enqueue puts a message into the inbox.
func (s *shell) enqueue(name string, raw json.RawMessage) {
	m := &state.Message{Verb: name, Payload: raw, At: s.now()}
	s.countMessage(m)
	s.mailbox.Inbox = append(s.mailbox.Inbox, m)
	s.woken = true
}

// countMessage counts a message against the limits of the inbox.
func (s *shell) countMessage(m *state.Message) {
	s.inboxBytes += len(m.Payload)
	if known, ok := s.messages[m.Verb]; ok && !known.internal {
		s.inboxHints++
	}
}

// isQueued reports whether a message of that name is in the inbox.
func (s *shell) isQueued(name string) bool {
	return slices.ContainsFunc(s.mailbox.Inbox, func(m *state.Message) bool { return m.Verb == name })
}

// processInbox carries out the inbox in order. A message that needs an unavailable dependency stays in place and is retried, and with it
// all messages that need the same one. Everything else continues (an unavailable store must not block a pause). Messages that need the
// store are carried out in order of arrival, regardless of other dependencies.
func (s *shell) processInbox() {
	s.outages.expire(s.now())
	defer func() { s.untriedSignals, s.inboxPasses = 0, s.inboxPasses+1 }()
	if len(s.mailbox.Inbox) == 0 {
		return
	}
	if err := s.lock.Lock(s.ctx); err != nil {
		return
	}
	defer s.lock.Unlock()
	var awaited [depCount]bool
	done := map[*state.Message]bool{}
	for n := 0; n < len(s.mailbox.Inbox); n++ { // messages may be appended during the loop
		m := s.mailbox.Inbox[n]
		if s.storeQueue.done[m] {
			done[m] = true
			continue
		}
		if of := s.processMessage(m); of != depNone {
			awaited[of] = true
			continue
		}
		done[m] = true
		s.flushFullAudit()
	}
	s.mailbox.Inbox = slices.DeleteFunc(s.mailbox.Inbox, func(m *state.Message) bool { return done[m] })
	clear(s.storeQueue.done)
	for _, of := range [...]dependency{depStore, depTokenIssuer, depRuntimes, depPauseOwner, depDamagedObject} {
		if awaited[of] {
			continue
		}
		if of == depDamagedObject && s.outages[of].tries > 0 {
			s.markReached(of)
		}
		s.outages[of] = outage{}
	}
}

// processMessage carries out one message, or returns what it waits for: an unavailable dependency, or the messages before it.
func (s *shell) processMessage(m *state.Message) dependency {
	of := s.unavailableFor(m)
	switch {
	case s.outages.isOpen(of):
		return of
	case s.needsStore(m) && s.storeQueue.running:
		return depStore
	case s.needsStore(m) && s.failedBefore(depStore):
		s.handleInActivity(m)
		return depStore
	}
	err := s.handleMessage(s.ctx, m)
	if !isOutage(err) {
		return depNone
	}
	of = dependencyOf(err)
	m.Damaged = of == depDamagedObject
	s.backOff(of, err)
	if of == depStore && isTimedOut(err) {
		s.handleInActivity(m)
	}
	return of
}

// needsStore reports whether a message reads the store.
func (s *shell) needsStore(m *state.Message) bool {
	row := verb.Find(s.verbs, m.Verb)
	return !m.Damaged && (row != nil && row.Store || s.messages[m.Verb].dependency == depStore)
}

// unavailableFor is the unavailable dependency that a message needs, or depNone.
func (s *shell) unavailableFor(m *state.Message) dependency {
	of := s.messages[m.Verb].dependency
	row := verb.Find(s.verbs, m.Verb)
	if row != nil && row.Store {
		of = depStore
	}
	if m.Damaged {
		of = depDamagedObject
	}
	if s.outages.isOpen(of) {
		return of
	}
	if row == nil || !s.guarded(row) || !hasToken(m.Payload) {
		return depNone
	}
	for _, of := range [...]dependency{depTokenIssuer, depStore} { // the issuer verifies it, the store knows whether it was used
		if s.outages.isOpen(of) && (of == depTokenIssuer || !row.Urgent()) {
			return of
		}
	}
	return depNone
}

// handleMessage carries out one message. A refusal is kept for `status`, and the message is done.
func (s *shell) handleMessage(ctx workflow.Context, m *state.Message) error {
	var err error
	if known, ok := s.messages[m.Verb]; ok {
		err = known.handle(ctx, m.Payload)
	} else {
		err = s.performSignal(ctx, m)
	}
	if err != nil && !isOutage(err) {
		s.recordRefusal(m.Verb, m.Payload, errorText(err), m.At)
	}
	return err
}

// flushFullAudit writes audit lines to the store while so many messages are carried out at once that lines would be lost. If all lines are
// of this workflow task, it ends the task first.
func (s *shell) flushFullAudit() {
	if len(s.mailbox.Audit) < state.MaxAudit/10 || s.storingAudit || s.outages.isOpen(depAuditLog) {
		return
	}
	if len(s.committedLines()) == 0 && workflow.Sleep(s.ctx, time.Millisecond) != nil {
		return
	}
	if err := s.storeAudit(s.ctx); err != nil {
		s.backOff(depAuditLog, err)
	}
}

// recordRefusal records a refused signal for `status`, within a size limit.
func (s *shell) recordRefusal(name string, raw json.RawMessage, why string, at time.Time) {
	var act protocol.RequestMeta
	_ = json.Unmarshal(raw, &act) // the sender, if it can be read
	s.mailbox.RecordRefusal(verb.Clip(name, verb.MaxName), verb.Clip(act.By, verb.MaxName), clip(why), at)
	s.woken = true
}
