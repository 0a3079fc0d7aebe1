package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
)

const (
	actTimeout  = 30 * time.Second // for one answer
	actAttempts = 3                // with one request id: the act happens once
)

// newAct returns the fields that every act of this caller carries.
func (f *Factory) newAct(reason string) protocol.RequestMeta {
	return protocol.RequestMeta{By: f.by(), RequestID: connection.NewRequestID(), Reason: reason, Token: f.authToken()}
}

// actOn returns these fields for one act on several services: its token is valid for all of them, and for no other.
func (f *Factory) actOn(reason string, names []connection.ServiceName) protocol.RequestMeta {
	act := f.newAct(reason)
	if (act.Token != "" || f.signs()) && len(names) > 1 {
		for _, n := range names {
			act.To = append(act.To, n.Service)
		}
	}
	return act
}

// noToken is the value of the token flag that sends an act without a token although a login exists.
const noToken = "none"

// authToken returns the token for one act: the given one, or one from the login. If there is no token, the reason stops the act.
func (f *Factory) authToken() string {
	if f.signs() { // the token is requested once the act is known
		return ""
	}
	token := first(f.token, f.Env("CONVERGE_TOKEN"))
	if f.usesLogin() {
		token, f.tokenErr = f.loginToken(context.Background())
	}
	if token == noToken {
		return ""
	}
	return token
}

// usesLogin reports whether the caller named no token, so that the login, if there is one, provides it.
func (f *Factory) usesLogin() bool { return first(f.token, f.Env("CONVERGE_TOKEN")) == "" }

// hasExplicitToken reports whether the caller gave a token. Such a token serves one request.
func (f *Factory) hasExplicitToken() bool {
	token := first(f.token, f.Env("CONVERGE_TOKEN"))
	return token != "" && token != noToken
}

// loginUnusable reports whether an act was refused because it carried a token of the login that the service cannot verify.
func (f *Factory) loginUnusable(err error) bool {
	return f.usesLogin() && err != nil && strings.Contains(err.Error(), protocol.NoIdentity)
}

// withoutToken returns a payload without its token, as an unauthenticated caller would send it.
func withoutToken(payload any) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	delete(fields, "token")
	return fields, nil
}

// act sends an act to a service and waits for the answer. After a lost connection it retries with the same request id.
func (f *Factory) act(ctx context.Context, n connection.ServiceName, verb, requestID string, payload, into any) error {
	err := f.send(ctx, n.ID(), verb, requestID, payload, into)
	switch {
	case errors.Is(err, connection.ErrNotFound):
		return f.notFoundError(ctx, n)
	case connection.Transient(err):
		return fmt.Errorf("%s %s: %w; it may have been accepted: see converge status %s, or converge admin doctor if that gets no answer", verb, n, err, n)
	}
	return err
}

// send sends an act to a workflow and retries it as often as necessary.
func (f *Factory) send(ctx context.Context, workflowID, verb, requestID string, payload, into any) error {
	if f.tokenErr != nil {
		return f.tokenErr
	}
	api, err := f.client(ctx)
	if err != nil {
		return err
	}
	if f.signs() {
		if payload, err = f.signed(ctx, api, workflowID, verb, payload); err != nil {
			return err
		}
	}
	for attempt := 1; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, actTimeout)
		err = api.Update(limited, workflowID, verb, requestID, payload, into)
		cancel()
		if attempt < actAttempts && f.loginUnusable(err) {
			if payload, err = withoutToken(payload); err != nil {
				return err
			}
			f.note("%s declares no token issuer: sent as %s, without your login", workflowID, f.by())
			continue
		}
		if !errors.Is(err, connection.ErrLost) || attempt == actAttempts {
			return err
		}
		f.note("%v; retrying", err)
		if f.Sleep(ctx, time.Second) != nil {
			return err
		}
	}
}

// progress returns what workers currently do for a service. An error is ignored: the rest of the output does not depend on it.
func (f *Factory) progress(ctx context.Context, n connection.ServiceName) []protocol.Progress {
	api, err := f.client(ctx)
	if err != nil {
		return nil
	}
	all, _ := api.Progress(ctx, n.ID())
	return all
}

// query queries one service.
func (f *Factory) query(ctx context.Context, n connection.ServiceName, what string, into any) error {
	api, err := f.client(ctx)
	if err != nil {
		return err
	}
	return read.Query(ctx, api, n, what, into)
}

func (f *Factory) status(ctx context.Context, n connection.ServiceName) (s protocol.Status, err error) {
	err = f.query(ctx, n, protocol.QueryStatus, &s)
	return s, err
}

// services returns the services of a target. An application without services is an error that lists the existing names.
func (f *Factory) services(ctx context.Context, t target) ([]connection.ServiceName, error) {
	if !t.all {
		return []connection.ServiceName{t.ServiceName}, nil
	}
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	return read.Services(ctx, api, t.of())
}

// unmanagedStatuses returns the services of a target that are not managed, with the reason.
func (f *Factory) unmanagedStatuses(ctx context.Context, t target) ([]protocol.Status, error) {
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	return read.Unmanaged(ctx, api, t.of())
}

func (f *Factory) applicationStatus(ctx context.Context, application string) (protocol.ApplicationStatus, error) {
	api, err := f.client(ctx)
	if err != nil {
		return protocol.ApplicationStatus{}, err
	}
	return read.Application(ctx, api, application)
}
