package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// This file sets one value after the other. Each is a commit of its own. The next step begins when the services that the last one
// changed have converged (D25).

// stepRun are several edits, in order.
type stepRun struct {
	*setOptions
	source origin.Source
	editor origin.Editor
	edit   origin.Edit // the path is empty
	steps  []setStep

	store *store.Store
	// manifest belongs to the tree that was compiled last; application is the one that it configures.
	manifest, application string
}

// Results of a step.
const (
	stepDone     = "done"
	stepAlready  = "already" // the value was already set
	stepFailed   = "failed"
	stepReverted = "reverted"
	stepNotBegun = "not begun"
)

// setStep is one edit and its result.
type setStep struct {
	Path string `json:"path"`
	origin.Edited
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

func (s setStep) String() string {
	text := s.Path + ": " + s.State
	if s.Commit != "" {
		text += fmt.Sprintf(", changed %q to %q in commit %s", s.Before, s.After, s.Commit[:12])
	}
	return text + entities.Because(s.Why)
}

// run executes one step after the other. The first failure ends it.
func (s *stepRun) run(ctx context.Context) (err error) {
	for _, path := range append([]string{s.path}, s.then...) {
		s.steps = append(s.steps, setStep{Path: path, State: stepNotBegun})
	}
	defer s.close()
	for n := range s.steps {
		if n > 0 && s.steps[n-1].State == stepDone {
			err = s.f.Sleep(ctx, s.pause)
		}
		if err == nil {
			err = s.step(ctx, &s.steps[n])
		}
		if err != nil {
			break
		}
		if err := s.printStep(s.steps[n]); err != nil {
			return err
		}
	}
	if err == nil {
		return nil
	}
	if s.revert && ctx.Err() == nil {
		s.revertCommits(ctx)
	}
	for _, one := range s.steps {
		if one.State != stepDone && one.State != stepAlready {
			err = errors.Join(err, s.printStep(one))
		}
	}
	return err
}

func (s *stepRun) printStep(one setStep) error {
	if s.f.structured() {
		return s.f.screen().StreamDocument(one)
	}
	return s.f.screen().Lines(one.String())
}

func (s *stepRun) close() {
	if s.store != nil {
		s.store.Close() // only read
	}
}

// step makes one edit, and waits until the services that it changes have converged. It also waits for an edit that already exists,
// because an earlier run may have been interrupted.
func (s *stepRun) step(ctx context.Context, one *setStep) error {
	one.State = stepFailed
	fail := func(err error) error {
		one.Why = err.Error()
		if coded := new(exitErr); errors.As(err, &coded) && coded.err == nil { // the error is already printed
			one.Why = "its changes have not converged"
		}
		return err
	}
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	if err := s.open(ctx); err != nil {
		return fail(err)
	}
	before, err := s.status(ctx)
	if err != nil {
		return fail(err)
	}
	if err := s.commit(ctx, one); err != nil {
		return fail(err)
	}
	now, err := s.awaitPublished(ctx, one.Commit, before.Newest)
	if err != nil {
		return fail(err)
	}
	names, err := s.changedServices(ctx, *one, before, now)
	if err == nil {
		err = s.converge(ctx, names, now.Newest)
	}
	if err != nil {
		return fail(err)
	}
	if one.State = stepDone; one.Commit == "" {
		one.State = stepAlready
	}
	return nil
}

// open reads the source once, to determine its application and its store.
func (s *stepRun) open(ctx context.Context) error {
	if s.store != nil {
		return nil
	}
	tree, err := s.source.Fetch(ctx, nil)
	if err != nil {
		return err
	}
	s.application = publish.ApplicationIn(tree.Dir)
	if s.setOptions.store, err = s.f.storeFor(ctx, tree, s.setOptions.store); err != nil {
		return err
	}
	s.store, err = store.Open(ctx, s.setOptions.store)
	return err
}

func (s *stepRun) status(ctx context.Context) (protocol.ApplicationStatus, error) {
	api, err := s.f.client(ctx)
	if err != nil {
		return protocol.ApplicationStatus{}, err
	}
	c, _ := api.Temporal()
	status, err := publish.Status(ctx, c, s.application)
	if err == nil && status.Newest == 0 {
		err = fmt.Errorf("%s is not published yet: converge config publish, or converge config watch", s.application)
	}
	return status, err
}

// compile checks a tree, and records the configuration of its services.
func (s *stepRun) compile(ctx context.Context, tree origin.Tree) error {
	compiled, err := s.f.compileTree(ctx, tree, s.setOptions.store, s.allowCommands)
	if err != nil {
		return err
	}
	specs, err := compiled.Specs()
	s.manifest = incarnation.ManifestOf(specs).Digest()
	return err
}

// commit makes the edit, and publishes it if requested.
func (s *stepRun) commit(ctx context.Context, one *setStep) (err error) {
	e := s.edit
	e.Path, e.Check = one.Path, s.compile
	e.Message = first(s.message, fmt.Sprintf("Set %s to %s", one.Path, s.value))
	var changed *origin.ChangedError
	if one.Edited, err = s.editor.Edit(ctx, e); errors.As(err, &changed) && changed.Actual == s.value {
		one.Before, one.After, one.Commit, err = s.value, s.value, "", nil
	}
	if err != nil {
		return err
	}
	if one.Commit == "" {
		tree, err := s.source.Fetch(ctx, nil)
		if err != nil {
			return err
		}
		if err := s.compile(ctx, tree); err != nil {
			return err
		}
	}
	return s.publishStep(ctx)
}

func (s *stepRun) publishStep(ctx context.Context) error {
	if !s.publish {
		return nil
	}
	return (&publishOptions{f: s.f, source: s.setOptions.source, store: s.setOptions.store, allowCommands: s.allowCommands}).run(ctx)
}

// awaitPublished waits until the incarnation of a commit is in force, or until the configuration in force is the same anyway.
func (s *stepRun) awaitPublished(ctx context.Context, commit string, after int64) (protocol.ApplicationStatus, error) {
	for noted := false; ; noted = true {
		now, err := s.status(ctx)
		switch {
		case err != nil && !connection.Transient(err):
			return now, err
		case err == nil && now.Pin != nil:
			return now, fmt.Errorf("%s is pinned to incarnation %d, so that nothing newer takes effect", s.application, now.Pin.Incarnation.Number)
		case err == nil && now.NotifiedOf == now.Manifest && (now.Manifest == s.manifest || s.includesCommit(ctx, now, commit, after)):
			return now, nil
		}
		if !noted && !s.publish {
			s.f.note("waiting for converge config watch to publish it")
		}
		if s.f.Sleep(ctx, minPollInterval) != nil {
			return now, s.timeoutError(ctx, "it was not published")
		}
	}
}

// includesCommit reports whether a commit is in an incarnation that is newer than another one.
func (s *stepRun) includesCommit(ctx context.Context, now protocol.ApplicationStatus, commit string, after int64) bool {
	for _, i := range now.Incarnations {
		if commit == "" || i.Number <= after {
			continue
		}
		c, _ := s.store.Commits(ctx, i.Commits) // a lost list contains no commits
		if i.Origin.Commit == commit || slices.ContainsFunc(c.All, func(c protocol.Commit) bool { return c.SHA == commit }) {
			return true
		}
	}
	return false
}

// timeoutError returns the error of a context that ended.
func (s *stepRun) timeoutError(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &exitErr{outcome.TimedOut, fmt.Errorf("%s within %s", what, s.timeout)}
	}
	return exit(exitInterrupted)
}

// changedServices returns the services that a step changes. If the value was already set, it returns the service that the path names, or
// all.
func (s *stepRun) changedServices(ctx context.Context, one setStep, before, now protocol.ApplicationStatus) (names []connection.ServiceName, err error) {
	to, err := s.store.Manifest(ctx, now.Manifest)
	if err != nil {
		return nil, err
	}
	services := entities.SortedKeys(to)
	if one.Commit != "" {
		from, err := s.store.Manifest(ctx, before.Manifest)
		if err != nil {
			return nil, err
		}
		services, _ = to.Since(from)
	} else if document, of := strings.CutPrefix(one.Path, "Service/"); of {
		name, _, _ := strings.Cut(document, ".")
		services = slices.DeleteFunc(services, func(key string) bool { return now.Names.Title(key) != name })
	}
	for _, service := range services {
		names = append(names, connection.ServiceName{Application: s.application, Service: service})
	}
	return names, nil
}

// converge waits until services use an incarnation and have settled.
func (s *stepRun) converge(ctx context.Context, names []connection.ServiceName, number int64) error {
	for _, n := range names {
		for {
			status, err := s.f.status(ctx, n)
			if err != nil && !connection.Transient(err) {
				return err
			}
			if err == nil && status.Incarnation >= number {
				break
			}
			if s.f.Sleep(ctx, minPollInterval) != nil {
				return s.timeoutError(ctx, n.String()+" was not notified")
			}
		}
	}
	remaining := time.Duration(0)
	if at, bounded := ctx.Deadline(); bounded {
		remaining = time.Until(at)
	}
	return s.f.waitAll(ctx, names, outcome.Goal{}, remaining)
}

// revertCommits reverts the commits, the last one first, each with a new commit.
func (s *stepRun) revertCommits(ctx context.Context) {
	for n := len(s.steps) - 1; n >= 0; n-- {
		one := &s.steps[n]
		if one.Commit == "" {
			continue
		}
		e := s.edit
		e.Path, e.Value, e.Expected, e.Check = one.Path, one.Before, &one.After, s.compile
		e.Message = fmt.Sprintf("Revert %s to %s", one.Path, one.Before)
		reverted, err := s.editor.Edit(ctx, e)
		if err != nil {
			s.f.note("%s was not reverted: %v", one.Path, err)
			continue
		}
		one.State, one.Edited = stepReverted, reverted
	}
	if err := s.publishStep(ctx); err != nil {
		s.f.note("the reverted changes were not published: %v", err)
	}
}
