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

// receivePause receives that a pause of a wider scope begins or ends. The signal is a reason to check whether one is in force (G1).
func (s *service) receivePause(ctx workflow.Context, raw json.RawMessage) error {
	var p protocol.ScopePause
	if err := verb.DecodeTolerant(protocol.SignalScopePause, raw, &p); err != nil {
		return asRefusal(err)
	}
	name, isRuntime := strings.CutPrefix(p.Scope, entities.ScopeRuntime)
	switch {
	case p.Scope != entities.ScopeApplication && p.Scope != entities.ScopeInstallation && (!isRuntime || name == ""):
		return asRefusal(fmt.Errorf(`"scope" is %q; expected %q, %q or %q`, verb.Clip(p.Scope, verb.MaxName),
			entities.ScopeApplication, entities.ScopeRuntime+"NAME", entities.ScopeInstallation))
	case p.Pause != nil && (p.Pause.By == "" || p.Pause.At.IsZero()):
		return asRefusal(errors.New(`"pause" needs "by" and "at"; expected both`))
	case p.Pause != nil && isRuntime && !s.usesRuntime(name):
		return nil // a service that moves there later gets it with its configuration
	}
	request := protocol.InForceRequest{Application: s.application, Scope: p.Scope, Service: s.service}
	var inForce protocol.ScopePause
	if err := s.callDependency(ctx, depPauseOwner, confirmTimeout, protocol.ActivityInForce, request, &inForce); err != nil {
		return err
	}
	p = inForce
	s.setPause(p)
	return nil
}

// confirmTimeout is the timeout for another workflow to confirm a signal.
const confirmTimeout = 2 * time.Second

// callDependency calls a workflow that the service belongs to.
func (s *service) callDependency(ctx workflow.Context, of dependency, patient time.Duration, activity string, request, answer any) error {
	err := localCall{name: activity, request: request, timeout: patient, dependency: of}.do(ctx, answer)
	if err == nil {
		s.markReached(of)
	}
	return err
}

// usesRuntime reports whether the service deploys to a runtime.
func (s *service) usesRuntime(runtime string) bool {
	if s.state.Spec == nil {
		return false
	}
	_, declared := s.state.Spec.Runtimes[runtime]
	return declared || s.state.UsesRuntime(runtime)
}

func (s *service) setPause(p protocol.ScopePause) {
	var pause *entities.Pause
	if p.Pause != nil && !p.Pause.Excludes(s.application) {
		pause = p.Pause.ForService(protocol.ServiceID(s.application, s.service))
	}
	s.state.SetPause(p.Scope, pause, s.now())
}

// takePauses applies the pauses that were in force before the service existed, and ends those of runtimes that it no longer uses.
func (s *service) takePauses(spec *entities.Spec, pauses []protocol.ScopePause) {
	for _, p := range pauses {
		s.setPause(p)
	}
	for _, p := range append([]entities.Pause{}, s.state.Pauses...) {
		name, isRuntime := strings.CutPrefix(p.Scope, entities.ScopeRuntime)
		if _, used := spec.Runtimes[name]; isRuntime && !used && !s.state.UsesRuntime(name) {
			s.setPause(protocol.ScopePause{Scope: p.Scope})
		}
	}
}

// requestLease requests or returns a lease, by way of the inbox: calls to a Runtime workflow must arrive, in order, however long that
// takes.
func (s *service) requestLease(op state.LeaseOp) {
	if op.Return {
		s.enqueueLeaseCall(protocol.LeaseCall{Runtime: op.Runtime, Return: op.ID})
		return
	}
	s.enqueueLeaseCall(protocol.LeaseCall{Runtime: op.Runtime, Request: &entities.LeaseRequest{
		ID: op.ID, Holder: protocol.ServiceID(s.application, s.service),
		Description: fmt.Sprintf("%s %s %s", s.name, s.state.DisplayName(op.Instance), op.Version),
		Rollback:    op.Rollback, Limit: op.Limit, Timeout: op.Timeout,
	}})
}

func (s *service) enqueueLeaseCall(call protocol.LeaseCall) {
	raw, err := json.Marshal(call)
	if err != nil {
		return // it has no field that cannot be marshalled
	}
	s.enqueue(messageLease, raw)
}

func (s *service) callRuntime(ctx workflow.Context, raw json.RawMessage) error {
	var call protocol.LeaseCall
	if err := verb.DecodeTolerant(messageLease, raw, &call); err != nil {
		return asRefusal(err)
	}
	return s.callDependency(ctx, depRuntimes, requiredCallTimeout, protocol.ActivityLease, call, nil)
}

// acceptLease accepts a lease if its runtime confirms it (G1). A lease that is no longer needed is returned at once.
func (s *service) acceptLease(ctx workflow.Context, raw json.RawMessage) error {
	l, err := leaseSignal(protocol.SignalGranted, raw)
	if err != nil {
		return asRefusal(err)
	}
	if s.state.HoldsLease(l.ID) {
		var answer protocol.GrantedAnswer
		question := protocol.LeaseSignal{ID: l.ID, Runtime: cmp.Or(s.state.LeaseRuntime(l.ID), l.Runtime)}
		if err := s.callDependency(ctx, depRuntimes, confirmTimeout, protocol.ActivityGranted, question, &answer); err != nil {
			return err
		}
		if !answer.Granted {
			return asRefusal(fmt.Errorf("runtime %s has not granted lease %q", question.Runtime, l.ID))
		}
	}
	if !s.state.LeaseGranted(l.ID, s.now()) {
		s.answerLease(l, false)
	}
	return nil
}

// answerHeld answers a Runtime workflow that queries whether a lease is still in use.
func (s *service) answerHeld(_ workflow.Context, raw json.RawMessage) error {
	l, err := leaseSignal(protocol.SignalHeld, raw)
	if err == nil {
		s.answerLease(l, s.state.HoldsLease(l.ID))
	}
	return asRefusal(err)
}

func leaseSignal(name string, raw json.RawMessage) (protocol.LeaseSignal, error) {
	var l protocol.LeaseSignal
	if err := verb.DecodeTolerant(name, raw, &l); err != nil {
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
		call := protocol.LeaseCall{Runtime: name, Return: l.ID}
		if keep {
			call.Return, call.Confirm = "", l.ID
		}
		s.enqueueLeaseCall(call)
	}
}
