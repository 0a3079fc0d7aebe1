package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/client/read"
)

// checkName refuses an invalid service name before the server is queried.
func checkName(kind, name string) error {
	if !connection.IsName(name) {
		return fmt.Errorf("%q is not a valid name of %s; expected lower-case letters, digits and hyphens", name, kind)
	}
	return nil
}

// applicationHere is the application that the working directory is part of, or "".
func (f *Factory) applicationHere() string {
	dir, err := f.WorkDir()
	if err != nil {
		return ""
	}
	name, _ := publish.FindApplication(dir)
	return name
}

// parseService reads SVC. The application is optional inside a directory that defines it.
func (f *Factory) parseService(arg string) (connection.ServiceName, error) {
	app, svc, ok := strings.Cut(arg, "/")
	if !ok {
		svc = arg
		if app = f.applicationHere(); app == "" {
			return connection.ServiceName{}, fmt.Errorf("%q: expected application/service; the application may be omitted only inside a directory that defines it", arg)
		}
	}
	n := connection.ServiceName{Application: app, Service: svc}
	return n, errors.Join(checkName("an application", app), checkName("a service", svc))
}

// target is the argument of a verb for SVC or APP.
type target struct {
	connection.ServiceName
	all bool // every service of the application
	// applicationOmitted means that the user left out the application, so it is the one of the working directory.
	applicationOmitted bool
}

// parseTarget reads SVC or APP. A word with a slash is a service. Inside a directory that defines an application, a word without a
// slash is that application or one of its services; elsewhere it is an application.
func (f *Factory) parseTarget(arg string) (target, error) {
	if strings.HasPrefix(arg, "runtime/") {
		return target{}, fmt.Errorf("%s is a runtime; expected a service or an application; see: converge runtime --help", arg)
	}
	if strings.Contains(arg, "/") {
		n, err := f.parseService(arg)
		return target{ServiceName: n}, err
	}
	if app := f.applicationHere(); app != "" && app != arg {
		n, err := f.parseService(arg)
		return target{ServiceName: n, applicationOmitted: true}, err
	}
	return target{ServiceName: connection.ServiceName{Application: arg}, all: true}, checkName("an application", arg)
}

// resolveTarget returns another application than that of the working directory, if the word names one and is no service here.
func (f *Factory) resolveTarget(ctx context.Context, t target) (target, error) {
	if !t.applicationOmitted {
		return t, nil
	}
	api, err := f.client(ctx)
	if err != nil {
		return t, err
	}
	all, err := api.Services(ctx, "")
	if err != nil || slices.Contains(all, t.ServiceName) {
		return t, err
	}
	known := read.Applications(all)
	if !slices.Contains(known, t.Service) {
		if known, err = api.Applications(ctx); err != nil || !slices.Contains(known, t.Service) { // all of its services may be unmanaged
			return t, err
		}
	}
	return target{ServiceName: connection.ServiceName{Application: t.Service}, all: true}, nil
}

// notFoundError explains that a service does not exist, and suggests similar names.
func (f *Factory) notFoundError(ctx context.Context, n connection.ServiceName) error {
	api, err := f.client(ctx)
	if err != nil {
		return err
	}
	return read.NotFound(ctx, api, n)
}

// of is the target as package read has it.
func (t target) of() read.Target {
	if t.all {
		return read.Target{Application: t.Application}
	}
	return read.Target(t.ServiceName)
}
