package workflows

import (
	"encoding/json"
	"slices"
	"strings"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// verbLease is a message that the service writes into its own inbox: a call to a Runtime workflow,
// made in order and tried again until it arrives, in the next run too.
const verbLease = "lease-call"

// internalSignals come from other workflows; they are kept and carried out as verbs are.
var internalSignals = [...]string{protocol.Publish, protocol.SignalHold, protocol.SignalGranted, protocol.SignalHeld}

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
	if slices.Contains(internalSignals[:], name) || slices.Contains(serviceVerbs[:], name) {
		s.keep(name, raw)
	} else {
		s.refuse(name, raw, "no such verb; expected one of "+strings.Join(serviceVerbs[:], ", "), workflow.Now(s.ctx))
	}
	return true
}

// receive carries out the inbox in order. What needs something outside that does not answer stays
// at its place and is tried again; everything else goes on (a dead store must not hold up a pause).
func (s *service) receive() {
	s.outages.pass(workflow.Now(s.ctx))
	if len(s.state.Inbox) == 0 {
		return
	}
	if err := s.lock.Lock(s.ctx); err != nil {
		return
	}
	defer s.lock.Unlock()
	var awaited [outsides]bool
	stay := 0 // messages at the front that wait for something outside
	for stay < len(s.state.Inbox) {
		if away, waits := s.waitsFor(s.state.Inbox[stay]); waits {
			awaited[away] = true
			stay++
			continue
		}
		if err := s.receiveOne(stay); isAway(err) {
			away := awayOf(err)
			s.backOff(away, err)
			awaited[away] = true
			stay++
			continue
		}
		// Meanwhile messages may have been added, at the end only.
		s.state.Inbox = append(s.state.Inbox[:stay:stay], s.state.Inbox[stay+1:]...)
	}
	for _, o := range [...]outside{theStore, theIssuer, theRuntimes} {
		if !awaited[o] {
			s.outages[o] = outage{}
		}
	}
}

// waitsFor tells what a message needs that did not answer the last time it was asked.
func (s *service) waitsFor(m entities.Message) (outside, bool) {
	switch {
	case m.Verb == verbLease:
		return theRuntimes, s.outages.open(theRuntimes)
	case s.outages.open(theStore) && (m.Verb == protocol.Publish || m.Verb == protocol.Release):
		return theStore, true
	case s.outages.open(theIssuer) && hasToken(m.Payload):
		return theIssuer, true
	}
	return 0, false
}

// receiveOne carries out one signal; what is refused is kept for `status`, and is done with.
func (s *service) receiveOne(n int) error {
	m := s.state.Inbox[n]
	var err error
	switch m.Verb {
	case protocol.Publish:
		err = s.publish(m.Payload)
	case protocol.SignalHold:
		err = s.hold(m.Payload)
	case protocol.SignalGranted:
		err = s.granted(m.Payload)
	case protocol.SignalHeld:
		err = s.held(m.Payload)
	case verbLease:
		err = s.callRuntime(m.Payload)
	default:
		err = s.signalled(n)
	}
	if err != nil && !isAway(err) {
		s.refuse(m.Verb, s.state.Inbox[n].Payload, errorText(err), m.At)
	}
	return err
}

// signalled carries out a verb that came as a signal. A token is looked at once: who it proves stays
// with the message, the token does not, so that it may expire while the message waits for the store.
func (s *service) signalled(n int) error {
	m := s.state.Inbox[n]
	r, err := decode(m.Verb, m.Payload)
	if err != nil {
		return refused(err)
	}
	who := m.Who
	if who == nil {
		proven, err := s.identify(s.ctx, r)
		if err != nil {
			return err
		}
		who = &proven
	}
	if r.Token != "" {
		s.state.Inbox[n].Payload, s.state.Inbox[n].Who = withoutToken(m.Payload, who.Name), who
	}
	_, err = s.perform(s.ctx, r, *who)
	return err
}
