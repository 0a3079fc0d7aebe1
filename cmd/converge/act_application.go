package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
)

// scope is a workflow for many services: the workflow of an application, of a runtime or of the installation. missing says why it may
// not exist.
type scope struct{ name, id, missing string }

func applicationScope(name string) scope {
	return scope{name, protocol.ApplicationID(name), "not found"}
}

func runtimeScope(name string) scope {
	return scope{"runtime/" + name, protocol.RuntimeID(name), "not found"}
}

func installationScope() scope {
	return scope{"everything", protocol.InstallationID(), "no worker has served this namespace yet"}
}

// actOnScope sends an act to an application or a runtime and prints its answer.
func (f *Factory) actOnScope(ctx context.Context, w scope, verb string, act protocol.RequestMeta, request any) error {
	var answer protocol.Answer
	err := f.send(ctx, w.id, verb, act.RequestID, request, &answer)
	switch {
	case errors.Is(err, connection.ErrNotFound):
		return fmt.Errorf("%s %s: %s", verb, w.name, w.missing)
	case connection.Transient(err):
		return fmt.Errorf("%s %s: %w; it may have been accepted", verb, w.name, err)
	case err != nil:
		return err
	}
	if f.structured() {
		return f.screen().Document(map[string]string{"name": w.name, "message": answer.Message})
	}
	return f.screen().Lines(answer.Message)
}

// runOnApplication pauses or resumes all services of an application at once, including future ones (A16).
func (o *scopeOptions) runOnApplication(ctx context.Context) error {
	names, err := o.f.servicesOf(ctx, o.target.Application)
	if err != nil {
		return err
	}
	if err := o.f.confirmAll(ctx, o.yes, o.verb, names); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	return o.f.actOnScope(ctx, applicationScope(o.target.Application), o.verb, act, act)
}

// servicesOf returns the running services of an application. The list may be empty, for example while all services are unmanaged. A
// pause of the application still applies to them when they are managed again.
func (f *Factory) servicesOf(ctx context.Context, application string) ([]connection.ServiceName, error) {
	names, err := f.services(ctx, target{ServiceName: connection.ServiceName{Application: application}, all: true})
	if err == nil || connection.Transient(err) {
		return names, err
	}
	api, e := f.client(ctx)
	if e != nil {
		return nil, e
	}
	var status protocol.ApplicationStatus
	if e = api.Query(ctx, protocol.ApplicationID(application), protocol.QueryStatus, &status); e != nil {
		return nil, err
	}
	return nil, nil
}

// checkAll refuses --all together with a name, and --except without --all.
func (o *scopeOptions) checkAll(args []string) error {
	if !o.all {
		return fmt.Errorf("--except requires --all")
	}
	for _, name := range o.except {
		if err := checkName("an application", name); err != nil {
			return fmt.Errorf("--except: %w", err)
		}
	}
	if len(args) > 0 || o.channel != "" {
		return fmt.Errorf("--all takes no arguments and no --channel")
	}
	return nil
}

// runOnEverything pauses or resumes all services of all applications, including future ones (A16).
func (o *scopeOptions) runOnEverything(ctx context.Context) error {
	question := o.verb + " all services of all applications"
	if len(o.except) > 0 {
		question += " except " + strings.Join(o.except, ", ")
	}
	if err := o.checkExcept(ctx); err != nil {
		return err
	}
	if err := o.f.confirm(ctx, o.yes, question); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	if o.verb == protocol.Pause {
		return o.f.actOnScope(ctx, installationScope(), o.verb, act, protocol.PauseAllRequest{RequestMeta: act, Except: o.except})
	}
	return o.f.actOnScope(ctx, installationScope(), o.verb, act, act)
}

// checkExcept checks that the applications that are excluded exist. A misspelt name would pause the application that it should exclude.
func (o *scopeOptions) checkExcept(ctx context.Context) error {
	if len(o.except) == 0 {
		return nil
	}
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	known, err := api.Applications(ctx)
	if err != nil {
		return fmt.Errorf("list applications: %w", err)
	}
	for _, name := range o.except {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--except %s: no such application%s", name, read.Suggestion(name, known))
		}
	}
	return nil
}
