package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
)

const (
	actTimeout  = 30 * time.Second // for one answer
	actAttempts = 3                // with one request id: the act happens once
	maxParallel = 16               // concurrent requests to services
)

// newAct returns the fields that every act of this caller carries.
func (f *Factory) newAct(reason string) protocol.RequestMeta {
	return protocol.RequestMeta{By: f.by(), RequestID: newRequestID(), Reason: reason, Token: f.authToken()}
}

// actOn returns these fields for one act on several services: its token is valid for all of them, and for no other.
func (f *Factory) actOn(reason string, names []serviceName) protocol.RequestMeta {
	act := f.newAct(reason)
	if act.Token != "" && len(names) > 1 {
		for _, n := range names {
			act.To = append(act.To, n.service)
		}
	}
	return act
}

// noToken is the value of the token flag that sends an act without a token although a login exists.
const noToken = "none"

// authToken returns the token for one act: the given one, or one from the login. If there is no token, the reason stops the act.
func (f *Factory) authToken() string {
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
func (f *Factory) act(ctx context.Context, n serviceName, verb, requestID string, payload, into any) error {
	err := f.send(ctx, n.id(), verb, requestID, payload, into)
	switch {
	case errors.Is(err, errNotFound):
		return f.notFoundError(ctx, n)
	case transient(err):
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
		if !errors.Is(err, errLost) || attempt == actAttempts {
			return err
		}
		f.note("%v; retrying", err)
		if f.Sleep(ctx, time.Second) != nil {
			return err
		}
	}
}

// query queries one service.
func (f *Factory) query(ctx context.Context, n serviceName, what string, into any) error {
	api, err := f.client(ctx)
	if err != nil {
		return err
	}
	if err = api.Query(ctx, n.id(), what, into); errors.Is(err, errNotFound) {
		return f.notFoundError(ctx, n)
	}
	return err
}

func (f *Factory) status(ctx context.Context, n serviceName) (s protocol.Status, err error) {
	err = f.query(ctx, n, protocol.QueryStatus, &s)
	return s, err
}

// progress returns what workers currently do for a service. An error is ignored: the rest of the output does not depend on it.
func (f *Factory) progress(ctx context.Context, n serviceName) []protocol.Progress {
	api, err := f.client(ctx)
	if err != nil {
		return nil
	}
	all, _ := api.Progress(ctx, n.id())
	return all
}

// services returns the services of a target. An application without services is an error that lists the existing names.
func (f *Factory) services(ctx context.Context, t target) ([]serviceName, error) {
	if !t.all {
		return []serviceName{t.serviceName}, nil
	}
	api, err := f.client(ctx)
	if err != nil {
		return nil, err
	}
	names, err := api.Services(ctx, t.application)
	if err != nil || len(names) > 0 || t.application == "" {
		return names, err
	}
	all, err := api.Services(ctx, "")
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("no application %s with services%s", t.application, suggestion(t.application, applications(all)))
}

func applications(names []serviceName) []string {
	var out []string
	for _, n := range names {
		out = append(out, n.application)
	}
	return slices.Compact(out) // sorted
}

// each calls do for every service, a few at a time. It returns the results in the order of the services, and all errors joined.
func each[T any](ctx context.Context, names []serviceName, do func(context.Context, serviceName) (T, error)) ([]T, error) {
	results := make([]T, len(names))
	failed := make([]error, len(names))
	var g errgroup.Group
	g.SetLimit(maxParallel)
	for i, n := range names {
		g.Go(func() error {
			results[i], failed[i] = do(ctx, n)
			return nil
		})
	}
	_ = g.Wait() // errors are collected in order
	return results, joinErrors(failed)
}

// joinErrors joins errors. It counts them if there are many, because they usually have one cause.
func joinErrors(all []error) error {
	const limit = 3
	var out []error
	more := 0
	for _, err := range all {
		switch {
		case err == nil:
		case len(out) < limit:
			out = append(out, err)
		default:
			more++
		}
	}
	if more > 0 {
		out = append(out, fmt.Errorf("and %d more", more))
	}
	return errors.Join(out...)
}
