package activities

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file verifies the content of signals, because anyone who can reach a service can send one (G1).

// storeTimeout is how long to wait for the store before the workflow that sent the announcement is queried.
const storeTimeout = 200 * time.Millisecond

// InForce returns the active pause of a wider scope for a service. It reads the store first. If the store has no pause or does not
// answer, it queries the paused workflow.
func (a *Activities) InForce(ctx context.Context, r protocol.InForceRequest) (protocol.ScopePause, error) {
	answer := protocol.ScopePause{Scope: r.Scope}
	stored, err := a.storedPause(ctx, r)
	if err == nil && stored != nil {
		answer.Pause = ownPause(stored, r)
		return answer, nil
	}
	var paused struct {
		Pause *entities.Pause `json:"pause"`
	}
	queryErr := (services{a}).query(ctx, workflowOf(r), &paused)
	if errors.Is(queryErr, checks.ErrNoService) { // it is not paused, or its pause is in the store
		queryErr = err
	}
	answer.Pause = ownPause(paused.Pause, r)
	return answer, queryErr
}

// ownPause returns the part of a pause for the calling service.
func ownPause(p *entities.Pause, r protocol.InForceRequest) *entities.Pause {
	if r.Service == "" {
		return p
	}
	return p.WithOwnPermit(protocol.ServiceID(r.Application, r.Service))
}

// ownPauses returns the parts of pauses for a service.
func ownPauses(pauses []protocol.ScopePause, service string) []protocol.ScopePause {
	for n := range pauses {
		pauses[n].Pause = pauses[n].Pause.WithOwnPermit(service)
	}
	return pauses
}

func (a *Activities) storedPause(ctx context.Context, r protocol.InForceRequest) (*entities.Pause, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	var runtimes []string
	if name, of := strings.CutPrefix(r.Scope, entities.ScopeRuntime); of {
		runtimes = []string{name}
	}
	pauses, err := a.Store.Pauses(ctx, r.Application, runtimes)
	if at := slices.IndexFunc(pauses, func(p protocol.ScopePause) bool { return p.Scope == r.Scope }); at >= 0 {
		return pauses[at].Pause, err
	}
	return nil, err
}

// workflowOf returns the id of the workflow that was paused.
func workflowOf(r protocol.InForceRequest) string {
	switch {
	case r.Scope == entities.ScopeApplication:
		return protocol.ApplicationID(r.Application)
	case r.Scope == entities.ScopeInstallation:
		return protocol.InstallationID()
	}
	return protocol.RuntimeID(strings.TrimPrefix(r.Scope, entities.ScopeRuntime))
}

// Granted reports whether a runtime has granted a lease.
func (a *Activities) Granted(ctx context.Context, l protocol.LeaseSignal) (protocol.GrantedAnswer, error) {
	var status protocol.RuntimeStatus
	err := (services{a}).query(ctx, protocol.RuntimeID(l.Runtime), &status)
	if errors.Is(err, checks.ErrNoService) {
		err = nil
	}
	granted := slices.ContainsFunc(status.Held, func(h entities.Lease) bool { return h.ID == l.ID })
	return protocol.GrantedAnswer{Granted: granted}, err
}
