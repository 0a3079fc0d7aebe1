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
	parallel    = 16               // services asked at a time
)

// newAct is what every act of this caller carries.
func (f *Factory) newAct(reason string) protocol.Act {
	return protocol.Act{By: f.by(), RequestID: newRequestID(), Reason: reason, Token: f.proof()}
}

// noToken has an act go without a token although there is a login.
const noToken = "none"

// proof is a token for one act: one that was given, or else one of the login. Why there is none stops the act.
func (f *Factory) proof() string {
	token := first(f.token, f.Env("CONVERGE_TOKEN"))
	if f.byLogin() {
		token, f.unproven = f.loginToken(context.Background())
	}
	if token == noToken {
		return ""
	}
	return token
}

// byLogin: nobody said which token verbs go with, so that it is one of the login, if there is one.
func (f *Factory) byLogin() bool { return first(f.token, f.Env("CONVERGE_TOKEN")) == "" }

// givesToken tells whether a token was given, which serves one request.
func (f *Factory) givesToken() bool {
	token := first(f.token, f.Env("CONVERGE_TOKEN"))
	return token != "" && token != noToken
}

// vain: it was refused since it came with a token of the login, which nothing there can verify.
func (f *Factory) vain(err error) bool {
	return f.byLogin() && err != nil && strings.Contains(err.Error(), protocol.NoIdentity)
}

// withoutToken is a payload as somebody sends it who cannot prove who they are.
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

// act sends an act to a service and waits for the answer. A lost connection is tried again under
// the same request id.
func (f *Factory) act(ctx context.Context, n serviceName, verb, requestID string, payload, into any) error {
	err := f.send(ctx, n.id(), verb, requestID, payload, into)
	switch {
	case errors.Is(err, errNotFound):
		return f.missing(ctx, n)
	case transient(err):
		return fmt.Errorf("%s %s: %w; whether it was accepted is not known: see converge status %s, and converge doctor where that does not answer", verb, n, err, n)
	}
	return err
}

// send sends an act to a workflow, as often as it takes.
func (f *Factory) send(ctx context.Context, workflowID, verb, requestID string, payload, into any) error {
	if f.unproven != nil {
		return f.unproven
	}
	api, err := f.client(ctx)
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, actTimeout)
		err = api.Update(limited, workflowID, verb, requestID, payload, into)
		cancel()
		if attempt < actAttempts && f.vain(err) {
			if payload, err = withoutToken(payload); err != nil {
				return err
			}
			f.note("%s knows no issuer of tokens: asked as %s, without your login", workflowID, f.by())
			continue
		}
		if !errors.Is(err, errLost) || attempt == actAttempts {
			return err
		}
		f.note("%v; trying again", err)
		if f.Sleep(ctx, time.Second) != nil {
			return err
		}
	}
}

// query asks one service.
func (f *Factory) query(ctx context.Context, n serviceName, what string, into any) error {
	api, err := f.client(ctx)
	if err != nil {
		return err
	}
	if err = api.Query(ctx, n.id(), what, into); errors.Is(err, errNotFound) {
		return f.missing(ctx, n)
	}
	return err
}

func (f *Factory) status(ctx context.Context, n serviceName) (s protocol.Status, err error) {
	err = f.query(ctx, n, protocol.QueryStatus, &s)
	return s, err
}

// progress is what workers do for a service at this moment. That it is not known is no reason to say less of the rest.
func (f *Factory) progress(ctx context.Context, n serviceName) []protocol.Progress {
	api, err := f.client(ctx)
	if err != nil {
		return nil
	}
	all, _ := api.Progress(ctx, n.id())
	return all
}

// services names what a target stands for. An application without services is an error that says
// what there is.
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

// each calls do for every service, some at a time, and returns the results in the services' order
// and all errors together.
func each[T any](ctx context.Context, names []serviceName, do func(context.Context, serviceName) (T, error)) ([]T, error) {
	results := make([]T, len(names))
	failed := make([]error, len(names))
	var g errgroup.Group
	g.SetLimit(parallel)
	for i, n := range names {
		g.Go(func() error {
			results[i], failed[i] = do(ctx, n)
			return nil
		})
	}
	_ = g.Wait() // errors are kept in order
	return results, together(failed)
}

// together joins errors; beyond a few it counts them, since one cause tends to hit everybody.
func together(all []error) error {
	const shown = 3
	var out []error
	more := 0
	for _, err := range all {
		switch {
		case err == nil:
		case len(out) < shown:
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
