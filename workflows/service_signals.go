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

// This file holds the signals between a service and the workflows that it belongs to: pauses of an application or a runtime (A16), and
// leases (C10).

// messageLease is a message that the service writes into its own inbox: a call to a Runtime workflow. Calls are made in order and retried
// until they arrive, also in the next run.
const messageLease = "lease-call"

// scopePause receives that a pause of a wider scope begins or ends. The signal is a reason to check whether one is in force (G1).
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
		return refused(errors.New(`"pause" needs "by" and "at"; expected both`))
	case p.Pause != nil && of && !s.on(name):
		return nil // a service that moves there later gets it with its configuration
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

// aMoment is the timeout for another workflow to confirm a signal.
const aMoment = 2 * time.Second

// call calls a workflow that the service belongs to.
func (s *service) call(ctx workflow.Context, of outside, patient time.Duration, activity string, request, answer any) error {
	err := localCall{name: activity, request: request, patient: patient, of: of}.do(ctx, answer)
	if err == nil {
		s.reached(of)
	}
	return err
}

// on reports whether the service deploys to a runtime.
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

// takePauses applies the pauses that were in force before the service existed, and ends those of runtimes that it no longer uses.
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

// lease requests or returns a lease, by way of the inbox: calls to a Runtime workflow must arrive, in order, however long that takes.
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
		return // it has no field that cannot be marshalled
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

// granted accepts a lease if its runtime confirms it (G1). A lease that is no longer needed is returned at once.
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

// held answers a Runtime workflow that queries whether a lease is still in use.
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

// answerLease keeps a lease where it was granted, or gives it back. If the signal names no runtime, it answers all runtimes of the service
// that grant leases; a runtime that does not know the lease ignores it.
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
