package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file contains the output and the verbs for a joint release, which is one release of several services of an application (B8). Its
// address is APP@ID.

// jointName addresses a joint release.
type jointName struct{ application, id string }

func (j jointName) String() string { return j.application + entities.IDPrefix + j.id }

// parseJoint reads APP@ID. Ok reports whether the argument has that form.
func parseJoint(arg string) (j jointName, ok bool, err error) {
	app, id, ok := strings.Cut(arg, entities.IDPrefix)
	if !ok || strings.Contains(app, "/") {
		return j, false, nil
	}
	return jointName{app, id}, true, errors.Join(checkName("an application", app), checkName("a release", id))
}

// expandJoint replaces APP@ID in the arguments of a verb by SVC VERSION. The services of the joint release accept its id as a version.
func expandJoint(args []string) []string {
	if len(args) == 0 {
		return args
	}
	j, isJoint, _ := parseJoint(args[0])
	if !isJoint {
		return args
	}
	return append([]string{args[0], entities.IDPrefix + j.id}, args[1:]...)
}

// parseParts reads SVC=VERSION... and the parameters of each service, given as SVC/name=value or SVC/CHANNEL:name=value.
func parseParts(args, params []string) (map[string]protocol.ServiceVersion, error) {
	parts, paramsOf := map[string]protocol.ServiceVersion{}, map[string][]string{}
	for _, word := range args {
		service, version, ok := strings.Cut(word, "=")
		if !ok || version == "" {
			return nil, fmt.Errorf("%q: expected SVC=VERSION, since all services of a joint release share one id", word)
		}
		if _, twice := parts[service]; twice {
			return nil, fmt.Errorf("%s is named twice", service)
		}
		if err := checkName("a service", service); err != nil {
			return nil, err
		}
		parts[service] = protocol.ServiceVersion{Version: version}
	}
	for _, flag := range params {
		service, param, ok := strings.Cut(flag, "/")
		if _, named := parts[service]; !ok || !named {
			return nil, fmt.Errorf("-p %s: expected SVC/name=value or SVC/CHANNEL:name=value, for a service of the release", flag)
		}
		paramsOf[service] = append(paramsOf[service], param)
	}
	for _, service := range entities.SortedKeys(paramsOf) {
		part := parts[service]
		var err error
		if part.Parameters, part.ChannelParameters, err = parseParams(paramsOf[service]); err != nil {
			return nil, err
		}
		parts[service] = part
	}
	return parts, nil
}

// parseJointArgs reads [APP] SVC=VERSION... of a release. The application is optional inside a directory that defines it.
func (o *releaseOptions) parseJointArgs(args []string) error {
	if o.strategy != "" {
		return errors.New("--strategy applies to a release of one service; in a joint release each service uses its own (maestro.strategy)")
	}
	if !strings.Contains(args[0], "=") {
		o.service.Application, o.parts = args[0], args[1:]
		return checkName("an application", args[0])
	}
	if o.service.Application = o.f.applicationHere(); o.service.Application == "" {
		return errors.New("no application given; it may be omitted only inside a directory that defines it")
	}
	o.parts = args
	return nil
}

// runJoint releases the versions of several services, all or none.
func (o *releaseOptions) runJoint(ctx context.Context) error {
	request, err := o.jointRequest()
	if err != nil {
		return err
	}
	var answer protocol.JointAnswer
	w := applicationScope(o.service.Application)
	switch err = o.f.send(ctx, w.id, protocol.Release, request.RequestID, request, &answer); {
	case errors.Is(err, connection.ErrNotFound):
		return fmt.Errorf("release %s: %s", w.name, w.missing)
	case connection.Transient(err):
		return fmt.Errorf("release %s: %w; it may have been accepted: see converge status %s", w.name, err, w.name)
	case err != nil:
		return err
	}
	if err := o.printJoint(answer); err != nil || !o.wait {
		return err
	}
	g := outcome.Goal{Release: answer.ID, Approval: outcome.AwaitsApproval}
	if o.stopAtApproval {
		g.Approval = outcome.EndsAtApprovalNow
	}
	var names []connection.ServiceName
	for _, service := range entities.SortedKeys(answer.Services) {
		names = append(names, connection.ServiceName{Application: o.service.Application, Service: service})
	}
	return o.f.waitAll(ctx, names, g, o.timeout)
}

func (o *releaseOptions) jointRequest() (protocol.JointRequest, error) {
	r := protocol.JointRequest{RequestMeta: o.f.newAct(o.reason), ID: o.id}
	if o.requestID != "" {
		r.RequestID = o.requestID
	}
	if err := o.checkFlags(); err != nil {
		return r, err
	}
	var err error
	r.Services, err = parseParts(o.parts, o.params)
	return r, err
}

func (o *releaseOptions) printJoint(a protocol.JointAnswer) error {
	screen := o.f.screen()
	if o.f.structured() {
		if o.wait {
			return screen.StreamDocument(a)
		}
		return screen.Document(a)
	}
	var parts []string
	for _, service := range entities.SortedKeys(a.Services) {
		parts = append(parts, service+" "+a.Services[service])
	}
	line := fmt.Sprintf("release %s: %s", a.ID, strings.Join(parts, ", "))
	if a.Repeated {
		line += " (accepted before)"
	}
	return screen.Lines(line)
}

// partsOf returns the services of a joint release. They come from the application, or, if it no longer knows the release, from the
// services that still do.
func (f *Factory) partsOf(ctx context.Context, j jointName) ([]connection.ServiceName, error) {
	application, err := f.applicationStatus(ctx, j.application)
	if err != nil && !errors.Is(err, connection.ErrNotFound) {
		return nil, err
	}
	var names []connection.ServiceName
	for _, r := range application.Releases {
		if r.ID != j.id {
			continue
		}
		if r.Phase == protocol.JointAborted {
			return nil, fmt.Errorf("joint release %s was refused: %s", j, r.Why)
		}
		for _, service := range entities.SortedKeys(r.Services) {
			names = append(names, connection.ServiceName{Application: j.application, Service: service})
		}
		return names, nil
	}
	services, err := f.services(ctx, target{ServiceName: connection.ServiceName{Application: j.application}, all: true})
	if err != nil {
		return nil, err
	}
	all, err := read.Each(ctx, services, f.status)
	for _, s := range all {
		if _, ok := outcome.ReleaseByID(s, j.id); ok {
			names = append(names, read.NameOf(s))
		}
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no service of %s has a release %s; finished releases are forgotten after a while", j.application, j.id)
	}
	return names, err
}

// statusOfParts queries the services of a joint release, and reduces each status to its part of the release.
func (f *Factory) statusOfParts(ctx context.Context, j jointName) ([]protocol.Status, error) {
	names, err := f.partsOf(ctx, j)
	if err != nil {
		return nil, err
	}
	all, err := read.Each(ctx, names, f.status)
	all = slices.DeleteFunc(all, func(s protocol.Status) bool { return s.Service == "" })
	for n := range all {
		all[n].Releases = slices.DeleteFunc(all[n].Releases, func(r protocol.ReleaseStatus) bool { return r.ID != j.id })
	}
	return all, err
}

// partsText shows the progress of each part of a joint release, one line per service.
func partsText(j jointName, all []protocol.Status) (lines []string) {
	for _, s := range all {
		part := "not started"
		if len(s.Releases) > 0 {
			r := s.Releases[0]
			var phases []string
			for _, c := range s.Channels {
				if p, ok := r.Phases[c.Name]; ok {
					phases = append(phases, c.Name+" "+p)
				}
			}
			part = r.Version + ": " + strings.Join(phases, ", ")
		}
		lines = append(lines, fmt.Sprintf("RELEASE %s %s %s", j.id, s.Service, part))
	}
	return lines
}

// exitSeverity orders exit codes from gravest to mildest. The exit code of several services is the gravest one.
var exitSeverity = [...]int{exitInterrupted, outcome.Error, outcome.Failed, outcome.Person, outcome.TimedOut}

// waitAll waits for several services, all at once, reports how each ended, and returns the gravest exit code. Only the number of concurrent
// queries is limited: a service that waited for its turn would be noticed late, and its timeout would begin late.
func (f *Factory) waitAll(ctx context.Context, names []connection.ServiceName, g outcome.Goal, timeout time.Duration) error {
	type ended struct {
		out outcome.Outcome
		err error
	}
	if _, err := f.client(ctx); err != nil {
		return err
	}
	all := make([]ended, len(names))
	limit := make(chan struct{}, read.MaxParallel)
	var waits sync.WaitGroup
	for n, name := range names {
		waits.Go(func() {
			w := follower{f: f, api: limitedAPI{f.api, limit}, name: name, goal: g, timeout: timeout, onStatus: func(protocol.Status) error { return nil }}
			_, all[n].out, all[n].err = w.followOnceOpen(ctx)
		})
	}
	waits.Wait()
	codes := map[int]bool{}
	for n, e := range all {
		code, why := e.out.Code, e.out.Why
		var coded *exitErr
		switch {
		case errors.As(e.err, &coded):
			code, why = coded.code, coded.Error()
		case e.err != nil:
			code, why = outcome.Error, e.err.Error()
		}
		codes[code] = true
		if err := f.printOutcome(names[n], code, why, e.out.Next); err != nil {
			return err
		}
	}
	for _, code := range exitSeverity {
		if codes[code] {
			return exit(code)
		}
	}
	return nil
}

// limitedAPI limits the queries that run concurrently.
type limitedAPI struct {
	connection.API
	limit chan struct{}
}

func (l limitedAPI) Query(ctx context.Context, id, query string, into any) error {
	select {
	case l.limit <- struct{}{}:
		defer func() { <-l.limit }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return l.API.Query(ctx, id, query, into)
}

func (f *Factory) printOutcome(n connection.ServiceName, code int, why, next string) error {
	if f.structured() {
		return f.screen().StreamDocument(map[string]any{"service": n.String(), "exit": code, "why": why})
	}
	text := why + "."
	if next != "" {
		text += " " + next
	}
	if code != outcome.Done {
		text += " See: converge explain " + n.String()
	}
	return f.screen().Lines(text)
}

// followOnceOpen follows a release as soon as the service has it, which is a moment after it was committed.
func (w *follower) followOnceOpen(ctx context.Context) (protocol.Status, outcome.Outcome, error) {
	for range maxOpenPolls {
		var s protocol.Status
		err := w.api.Query(ctx, w.name.ID(), protocol.QueryStatus, &s)
		if _, ok := outcome.ReleaseByID(s, w.goal.Release); ok || w.goal.Release == "" || err != nil && !connection.Transient(err) {
			break
		}
		if w.f.Sleep(ctx, minPollInterval) != nil {
			break
		}
	}
	return w.follow(ctx)
}

// maxOpenPolls limits how often followOnceOpen looks for the release.
const maxOpenPolls = int(time.Minute / minPollInterval)
