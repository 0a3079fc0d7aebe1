package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file holds what a service and the workflows that it is part of say to each other: pauses of
// an application or a runtime, and leases (C10).

// scopeRuntime begins the scopes of runtimes; the other one is entities.ScopeApplication.
const scopeRuntime = "runtime/"

// hold takes in that a pause of something wider begins or ends (A16).
func (s *service) hold(raw json.RawMessage) error {
	var h protocol.HoldSignal
	if err := decodeStrictly(protocol.SignalHold, raw, &h); err != nil {
		return refused(err)
	}
	name, of := strings.CutPrefix(h.Scope, scopeRuntime)
	switch {
	case h.Scope != entities.ScopeApplication && (!of || name == ""):
		return refused(fmt.Errorf(`"scope" is %q; expected %q or %q`, clip(h.Scope, maxName), entities.ScopeApplication, scopeRuntime+"NAME"))
	case h.Pause != nil && (h.Pause.By == "" || h.Pause.At.IsZero()):
		return refused(errors.New(`"pause" does not say "by" whom and "at" what time; expected both`))
	case h.Pause != nil && of && !s.on(name):
		return nil // it comes with the configuration of a service that goes there later
	}
	s.holdScope(h)
	return nil
}

// on tells whether the service goes to a runtime.
func (s *service) on(runtime string) bool {
	if s.state.Spec == nil {
		return false
	}
	_, on := s.state.Spec.Runtimes[runtime]
	return on
}

func (s *service) holdScope(h protocol.HoldSignal) {
	if h.Pause != nil {
		pause := *h.Pause
		pause.Scope, pause.Channel = h.Scope, ""
		h.Pause = &pause
	}
	s.state.Hold(h.Scope, h.Pause, workflow.Now(s.ctx))
}

// takeHolds takes over the pauses that were in force before the service was, and leaves those of
// runtimes that it is not on any more.
func (s *service) takeHolds(spec *entities.Spec, holds []protocol.HoldSignal) {
	for _, h := range holds {
		s.holdScope(h)
	}
	for _, p := range append([]entities.Pause{}, s.state.Pauses...) {
		name, of := strings.CutPrefix(p.Scope, scopeRuntime)
		if _, on := spec.Runtimes[name]; of && !on {
			s.holdScope(protocol.HoldSignal{Scope: p.Scope})
		}
	}
}

// lease asks for a lease or gives one back, by way of the inbox: what a Runtime workflow is told must
// arrive, in order, however long it takes.
func (s *service) lease(op entities.LeaseOp) {
	if op.GiveBack {
		s.tellRuntime(protocol.LeaseCall{Runtime: op.Runtime, Give: op.ID})
		return
	}
	s.tellRuntime(protocol.LeaseCall{Runtime: op.Runtime, Request: &protocol.LeaseRequest{
		ID: op.ID, Holder: protocol.ServiceID(s.state.Application, s.state.Service),
		What:     fmt.Sprintf("%s/%s %s %s", s.state.Application, s.state.Service, op.Channel, op.Version),
		Rollback: op.Rollback, Limit: op.Limit, Timeout: op.Timeout,
	}})
}

func (s *service) tellRuntime(call protocol.LeaseCall) {
	raw, err := json.Marshal(call)
	if err != nil {
		return // it has no field that could not be written
	}
	s.state.Inbox = append(s.state.Inbox, entities.Message{Verb: verbLease, Payload: raw, At: workflow.Now(s.ctx)})
	s.woken = true
}

func (s *service) callRuntime(raw json.RawMessage) error {
	var call protocol.LeaseCall
	if err := decodeStrictly(verbLease, raw, &call); err != nil {
		return refused(err)
	}
	err := localCall{
		name: protocol.ActivityLease, request: call, patient: 10 * time.Second, silent: runtimeSilent, errType: errRuntime,
	}.do(s.ctx, nil)
	if err == nil {
		s.answers(runtimeSilent)
	}
	return err
}

// granted takes in a lease. One that is not wanted any more goes back at once.
func (s *service) granted(raw json.RawMessage) error {
	l, err := leaseSignal(protocol.SignalGranted, raw)
	if err != nil {
		return refused(err)
	}
	if !s.state.LeaseGranted(l.ID, workflow.Now(s.ctx)) {
		s.answerLease(l, func(runtime string) protocol.LeaseCall { return protocol.LeaseCall{Runtime: runtime, Give: l.ID} })
	}
	return nil
}

// held answers a Runtime workflow that asks whether a lease is still in use.
func (s *service) held(raw json.RawMessage) error {
	l, err := leaseSignal(protocol.SignalHeld, raw)
	if err != nil {
		return refused(err)
	}
	holds := s.state.HoldsLease(l.ID)
	s.answerLease(l, func(runtime string) protocol.LeaseCall {
		if holds {
			return protocol.LeaseCall{Runtime: runtime, Keep: l.ID}
		}
		return protocol.LeaseCall{Runtime: runtime, Give: l.ID}
	})
	return nil
}

func leaseSignal(name string, raw json.RawMessage) (protocol.LeaseSignal, error) {
	var l protocol.LeaseSignal
	if err := decodeStrictly(name, raw, &l); err != nil {
		return l, err
	}
	if l.ID == "" || len(l.ID) > 4*maxName || len(l.Runtime) > maxName {
		return l, fmt.Errorf(`payload of %s: expected the "id" of a lease`, name)
	}
	return l, nil
}

// answerLease answers the runtime that asked, or, when it did not say which it is, all that grant
// leases here: one that does not know the lease does not mind.
func (s *service) answerLease(l protocol.LeaseSignal, call func(runtime string) protocol.LeaseCall) {
	if l.Runtime != "" {
		s.tellRuntime(call(l.Runtime))
		return
	}
	if s.state.Spec == nil {
		return
	}
	for _, name := range entities.SortedKeys(s.state.Spec.Runtimes) {
		if s.state.Spec.Runtimes[name].MaxApplies > 0 {
			s.tellRuntime(call(name))
		}
	}
}
