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
	s.held, s.hints = 0, 0
	for _, m := range s.desk.Inbox {
		s.holds(m)
	}
	noted, rest := arrived(s.ctx)
	for _, name := range noted {
		s.take(name)
	}
	for _, name := range rest {
		for s.take(name) {
		}
	}
}

// take receives one signal of that name, if there is one.
func (s *shell) take(name string) bool {
	if reserved(name) {
		s.refuse(name, nil, s.noVerb().Error(), s.now())
		return true
	}
	var came converter.RawValue
	if !workflow.GetSignalChannel(s.ctx, name).ReceiveAsync(&came) {
		return false
	}
	raw := signalPayload(came)
	if name == protocol.SignalWake {
		var w protocol.Wake
		s.hinted = json.Unmarshal(raw, &w) == nil && w.Plan || s.hinted
		s.woken = true
		return true
	}
	if err := s.takes(name, raw); err != nil {
		s.refuse(name, raw, err.Error(), s.now())
		return true
	}
	if m := s.messages[name]; m.take != nil && s.crowded() {
		s.makeDo(name, raw)
		return true
	}
	s.write(name, raw)
	s.untried++
	s.hear(name, raw)
	return true
}

// signalPayload is the JSON payload of a signal. If the payload is not JSON, which the SDK would skip, it is the raw data.
func signalPayload(came converter.RawValue) (raw json.RawMessage) {
	payload := came.Payload()
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &raw); err != nil {
		return payload.GetData()
	}
	return raw
}

func (s *shell) noVerb() error {
	return errors.New("no such verb; expected one of " + strings.Join(verb.Names(s.verbs), ", "))
}

// takes refuses a signal that could never be carried out, and one that exceeds the limits of the inbox.
func (s *shell) takes(name string, raw json.RawMessage) error {
	m, known := s.messages[name]
	if verb.Find(s.verbs, name) == nil && (!known || m.own) {
		return s.noVerb()
	}
	if err := verb.CheckRaw(name, raw); err != nil {
		return err
	}
	if err := verb.CheckForm(name, raw); err != nil {
		return err
	}
	if !known {
		return s.room()
	}
	return nil
}

// room refuses a message if the inbox is full, because all of it goes from run to run. Messages of other workflows are not limited here.
func (s *shell) room() error {
	if len(s.desk.Inbox) < state.MaxInbox && s.held < state.MaxInboxBytes {
		return nil
	}
	return fmt.Errorf("%d signals are queued already, which is the limit; send it again once they are carried out%s", len(s.desk.Inbox), entities.Because(entities.Visible(s.desk.Problem)))
}

// crowded reports whether so many messages of other workflows are queued that a hostile one must have sent them.
func (s *shell) crowded() bool {
	return s.hints >= state.MaxHints || s.held >= 2*state.MaxInboxBytes
}

// makeDo coalesces a hint that exceeds the limits: one message to check is kept instead, if the message type has one.
func (s *shell) makeDo(name string, raw json.RawMessage) {
	look := s.messages[name].look
	if look == "" {
		s.refuse(name, raw, fmt.Sprintf("%d signals of other workflows are queued already, which is the limit", s.hints), s.now())
	} else if !slices.ContainsFunc(s.desk.Inbox, func(m *state.Message) bool { return m.Verb == name && string(m.Payload) == look }) {
		s.write(name, json.RawMessage(look))
	}
}

// write puts a message into the inbox.
func (s *shell) write(name string, raw json.RawMessage) {
	m := &state.Message{Verb: name, Payload: raw, At: s.now()}
	s.holds(m)
	s.desk.Inbox = append(s.desk.Inbox, m)
	s.woken = true
}

// holds counts a message against the limits of the inbox.
func (s *shell) holds(m *state.Message) {
	s.held += len(m.Payload)
	if known, ok := s.messages[m.Verb]; ok && !known.own {
		s.hints++
	}
}

// waits reports whether a message of that name is in the inbox.
func (s *shell) waits(name string) bool {
	return slices.ContainsFunc(s.desk.Inbox, func(m *state.Message) bool { return m.Verb == name })
}

// receive carries out the inbox in order. A message that needs an unavailable dependency stays in place and is retried, and with it all
// messages that need the same one. Everything else continues (an unavailable store must not block a pause). Messages that need the store
// are carried out in order of arrival, regardless of other dependencies.
func (s *shell) receive() {
	s.outages.pass(s.now())
	defer func() { s.untried, s.passes = 0, s.passes+1 }()
	if len(s.desk.Inbox) == 0 {
		return
	}
	if err := s.lock.Lock(s.ctx); err != nil {
		return
	}
	defer s.lock.Unlock()
	var awaited [outsides]bool
	done := map[*state.Message]bool{}
	for n := 0; n < len(s.desk.Inbox); n++ { // messages may be appended during the loop
		m := s.desk.Inbox[n]
		if s.line.done[m] {
			done[m] = true
			continue
		}
		if of := s.receiveOne(m); of != nobody {
			awaited[of] = true
			continue
		}
		done[m] = true
		s.makeRoom()
	}
	s.desk.Inbox = slices.DeleteFunc(s.desk.Inbox, func(m *state.Message) bool { return done[m] })
	clear(s.line.done)
	for _, of := range [...]outside{theStore, theIssuer, theRuntimes, theAnnouncer, theDamaged} {
		if awaited[of] {
			continue
		}
		if of == theDamaged && s.outages[of].tries > 0 {
			s.reached(of)
		}
		s.outages[of] = outage{}
	}
}

// receiveOne carries out one message, or returns what it waits for: an unavailable dependency, or the messages before it.
func (s *shell) receiveOne(m *state.Message) outside {
	of := s.needed(m)
	switch {
	case s.outages.open(of):
		return of
	case s.ofStore(m) && s.line.aside:
		return theStore
	case s.ofStore(m) && s.patient(theStore):
		s.carryAside(m)
		return theStore
	}
	err := s.carryOut(s.ctx, m)
	if !isOutage(err) {
		return nobody
	}
	of = outageOf(err)
	m.Damaged = of == theDamaged
	s.backOff(of, err)
	if of == theStore && isCutShort(err) && s.patient(theStore) {
		s.carryAside(m)
	}
	return of
}

// ofStore reports whether a message reads the store.
func (s *shell) ofStore(m *state.Message) bool {
	row := verb.Find(s.verbs, m.Verb)
	return !m.Damaged && (row != nil && row.Store || s.messages[m.Verb].needs == theStore)
}

// needed is the unavailable dependency that a message needs, or nobody.
func (s *shell) needed(m *state.Message) outside {
	of := s.messages[m.Verb].needs
	row := verb.Find(s.verbs, m.Verb)
	if row != nil && row.Store {
		of = theStore
	}
	if m.Damaged {
		of = theDamaged
	}
	if s.outages.open(of) {
		return of
	}
	if row == nil || !s.guarded(row) || !hasToken(m.Payload) {
		return nobody
	}
	for _, of := range [...]outside{theIssuer, theStore} { // the issuer verifies it, the store knows whether it was used
		if s.outages.open(of) && (of == theIssuer || !row.Urgent()) {
			return of
		}
	}
	return nobody
}

// carryOut carries out one message. A refusal is kept for `status`, and the message is done.
func (s *shell) carryOut(ctx workflow.Context, m *state.Message) error {
	var err error
	if known, ok := s.messages[m.Verb]; ok {
		err = known.take(ctx, m.Payload)
	} else {
		err = s.signalled(ctx, m)
	}
	if err != nil && !isOutage(err) {
		s.refuse(m.Verb, m.Payload, errorText(err), m.At)
	}
	return err
}

// makeRoom writes audit lines to the store while so many messages are carried out at once that lines would be lost. If all lines are of
// this workflow task, it ends the task first.
func (s *shell) makeRoom() {
	if len(s.desk.Audit) < state.MaxAudit/10 || s.storing || s.outages.open(theTrail) {
		return
	}
	if len(s.committed()) == 0 && workflow.Sleep(s.ctx, time.Millisecond) != nil {
		return
	}
	if err := s.storeLines(s.ctx); err != nil {
		s.backOff(theTrail, err)
	}
}

// refuse records a refused signal for `status`, within a size limit.
func (s *shell) refuse(name string, raw json.RawMessage, why string, at time.Time) {
	var act protocol.Act
	_ = json.Unmarshal(raw, &act) // the sender, if it can be read
	s.desk.Refuse(verb.Clip(name, verb.MaxName), verb.Clip(act.By, verb.MaxName), clip(why), at)
	s.woken = true
}
