package workflows

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// This file holds what a service and the workflows that it is part of say to each other: pauses of
// an application or a runtime (A16), and leases (C10).

// messageLease is a message that the service writes into its own inbox: a call to a Runtime workflow,
// made in order and tried again until it arrives, in the next run too.
const messageLease = "lease-call"

// scopePause takes in that a pause of something wider begins or ends: a reason to look whether one is in force (G1).
func (s *service) scopePause(ctx workflow.Context, raw json.RawMessage) error {
	var p protocol.ScopePause
	if err := verb.Tolerantly(protocol.SignalScopePause, raw, &p); err != nil {
		return refused(err)
	}
	name, of := strings.CutPrefix(p.Scope, entities.ScopeRuntime)
	switch {
	case p.Scope != entities.ScopeApplication && p.Scope != entities.ScopeInstallation && (!of || name == ""):
		return refused(fmt.Errorf(`"scope" is %q; expected %q, %q or %q`, verb.Clip(p.Scope, verb.MaxName),
			entities.ScopeApplication, entities.ScopeRuntime+"NAME", entities.ScopeInstallation))
	case p.Pause != nil && (p.Pause.By == "" || p.Pause.At.IsZero()):
		return refused(errors.New(`"pause" does not say "by" whom and "at" what time; expected both`))
	case p.Pause != nil && of && !s.on(name):
		return nil // it comes with the configuration of a service that goes there later
	}
	request := protocol.InForceRequest{Application: s.application, Scope: p.Scope, Service: s.service}
	var inForce protocol.ScopePause
	if err := s.call(ctx, theAnnouncer, aMoment, protocol.ActivityInForce, request, &inForce); err != nil {
		return err
	}
	p = inForce
	s.setPause(p)
	return nil
}

// aMoment is how long another workflow may take to say whether what was signalled is so.
const aMoment = 2 * time.Second

// call reaches a workflow that the service is part of.
func (s *service) call(ctx workflow.Context, of outside, patient time.Duration, activity string, request, answer any) error {
	err := localCall{name: activity, request: request, patient: patient, of: of}.do(ctx, answer)
	if err == nil {
		s.reached(of)
	}
	return err
}

// on tells whether the service goes to a runtime.
func (s *service) on(runtime string) bool {
	if s.state.Spec == nil {
		return false
	}
	_, on := s.state.Spec.Runtimes[runtime]
	return on || s.state.Uses(runtime)
}

func (s *service) setPause(p protocol.ScopePause) {
	var pause *entities.Pause
	if p.Pause != nil && !p.Pause.Spares(s.application) {
		pause = p.Pause.For(protocol.ServiceID(s.application, s.service))
	}
	s.state.SetPause(p.Scope, pause, s.now())
}

// takePauses takes over the pauses that were in force before the service was, and leaves those of
// runtimes that it is not on any more.
func (s *service) takePauses(spec *entities.Spec, pauses []protocol.ScopePause) {
	for _, p := range pauses {
		s.setPause(p)
	}
	for _, p := range append([]entities.Pause{}, s.state.Pauses...) {
		name, of := strings.CutPrefix(p.Scope, entities.ScopeRuntime)
		if _, on := spec.Runtimes[name]; of && !on && !s.state.Uses(name) {
			s.setPause(protocol.ScopePause{Scope: p.Scope})
		}
	}
}

// lease asks for a lease or gives one back, by way of the inbox: what a Runtime workflow is asked must
// arrive, in order, however long it takes.
func (s *service) lease(op state.LeaseOp) {
	if op.GiveBack {
		s.writeRuntime(protocol.LeaseCall{Runtime: op.Runtime, Give: op.ID})
		return
	}
	s.writeRuntime(protocol.LeaseCall{Runtime: op.Runtime, Request: &entities.LeaseRequest{
		ID: op.ID, Holder: protocol.ServiceID(s.application, s.service),
		What:     fmt.Sprintf("%s %s %s", s.name, s.state.Shown(op.Instance), op.Version),
		Rollback: op.Rollback, Limit: op.Limit, Timeout: op.Timeout,
	}})
}

func (s *service) writeRuntime(call protocol.LeaseCall) {
	raw, err := json.Marshal(call)
	if err != nil {
		return // it has no field that could not be written
	}
	s.write(messageLease, raw)
}

func (s *service) callRuntime(ctx workflow.Context, raw json.RawMessage) error {
	var call protocol.LeaseCall
	if err := verb.Tolerantly(messageLease, raw, &call); err != nil {
		return refused(err)
	}
	return s.call(ctx, theRuntimes, asLongAs, protocol.ActivityLease, call, nil)
}

// granted takes in a lease, when its runtime says so, too (G1). One that is not wanted any more goes back at once.
func (s *service) granted(ctx workflow.Context, raw json.RawMessage) error {
	l, err := leaseSignal(protocol.SignalGranted, raw)
	if err != nil {
		return refused(err)
	}
	if s.state.HoldsLease(l.ID) {
		var answer protocol.GrantedAnswer
		question := protocol.LeaseSignal{ID: l.ID, Runtime: cmp.Or(s.state.LeaseOn(l.ID), l.Runtime)}
		if err := s.call(ctx, theRuntimes, aMoment, protocol.ActivityGranted, question, &answer); err != nil {
			return err
		}
		if !answer.Granted {
			return refused(fmt.Errorf("runtime %s has not granted lease %q", question.Runtime, l.ID))
		}
	}
	if !s.state.LeaseGranted(l.ID, s.now()) {
		s.answerLease(l, false)
	}
	return nil
}

// held answers a Runtime workflow that asks whether a lease is still in use.
func (s *service) held(_ workflow.Context, raw json.RawMessage) error {
	l, err := leaseSignal(protocol.SignalHeld, raw)
	if err == nil {
		s.answerLease(l, s.state.HoldsLease(l.ID))
	}
	return refused(err)
}

func leaseSignal(name string, raw json.RawMessage) (protocol.LeaseSignal, error) {
	var l protocol.LeaseSignal
	if err := verb.Tolerantly(name, raw, &l); err != nil {
		return l, err
	}
	if l.ID == "" || len(l.ID) > 4*verb.MaxName || len(l.Runtime) > verb.MaxName {
		return l, fmt.Errorf(`payload of %s: expected the "id" of a lease`, name)
	}
	return l, nil
}

// answerLease keeps a lease, or gives it back, where it was granted. When the runtime did not say which it is: at all
// that grant leases here; one that does not know the lease does not mind.
func (s *service) answerLease(l protocol.LeaseSignal, keep bool) {
	runtimes := []string{l.Runtime}
	if l.Runtime == "" {
		runtimes = nil
		if s.state.Spec != nil {
			runtimes = slices.DeleteFunc(entities.SortedKeys(s.state.Spec.Runtimes), func(name string) bool {
				return s.state.Spec.Runtime(name).MaxApplies <= 0
			})
		}
	}
	for _, name := range runtimes {
		call := protocol.LeaseCall{Runtime: name, Give: l.ID}
		if keep {
			call.Give, call.Keep = "", l.ID
		}
		s.writeRuntime(call)
	}
}
