// Package publish makes the configuration in a directory the newest incarnation of its application: load, compile, store, and one update to
// the Application workflow. `converge config publish` does it once, `converge dev` whenever a file is saved.
//
// It decides nothing: the workflow accepts or refuses. It prints nothing.
package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

const (
	answerTimeout = 30 * time.Second // of the workflow; a worker must be running
	// A server waits five seconds for a worker that had the workflow cached and is gone, and then tries another one.
	queryTimeout    = 15 * time.Second
	announceTimeout = 10 * time.Second
	writers         = 16 // to the store in parallel
)

// Options configure a publication.
type Options struct {
	Client    client.Client
	Namespace string // of the client, to wait until the server knows its search attributes; empty: do not wait
	Dir       string
	StoreURL  string // a URL or a directory
	By        string // the publisher
	Token     string // proves By; empty: no proof
	// Sign adds a token that is issued for this one act to the payload of a verb; nil: Token serves.
	Sign   func(ctx context.Context, workflowID, verb string, payload any) (any, error)
	Causes []string // the causes, for the incarnation's record
	// Origin is the source of the configuration; the default is the directory. Root is the directory outside of which nothing is read;
	// empty: everything that the user can read.
	Origin protocol.Origin
	Root   string
	// Commits are the commits since the last publication; the default are those of the work tree of the directory, if it is in one.
	Commits *protocol.Commits
	// AllowCommands runs the commands that the configuration declares for compile time.
	AllowCommands bool
	TakeOver      bool // although the application came from another directory so far
	DryRun        bool // compile and compare only
	// Before is called with the result before the publication; an error prevents it. May be nil.
	Before func(Result) error
	// Fake accepts runtimes of kind fake: tests and simulations.
	Fake bool
}

// ErrRefused is an update that the Application workflow did not accept: another directory, or an incarnation newer than the one compiled
// against.
var ErrRefused = errors.New("refused")

// Publish makes the configuration in o.Dir the newest incarnation. Errors in it are a *Rejected; a refusal of the workflow is ErrRefused. A
// repeated call publishes nothing twice.
func Publish(ctx context.Context, o Options) (Result, error) {
	store, err := store.Open(ctx, o.StoreURL)
	if err != nil {
		return Result{}, err
	}
	defer store.Close() // no writer is left
	p := &publication{options: o, store: store}
	if err := p.compile(ctx); err != nil {
		return Result{}, err
	}
	if err := p.compare(ctx); err != nil || o.DryRun {
		return p.result, err
	}
	if p.result.Unchanged && !o.TakeOver && len(p.result.Started) == 0 {
		return p.result, p.rewriteNewest(ctx)
	}
	if o.Before != nil {
		if err := o.Before(p.result); err != nil {
			return Result{}, err
		}
	}
	if err := p.write(ctx, p.changed); err != nil {
		return Result{}, fmt.Errorf("publish %s: %w", p.application, err)
	}
	if err := p.writeCommits(ctx); err != nil {
		return Result{}, fmt.Errorf("publish %s: %w", p.application, err)
	}
	if err := p.announce(ctx); err != nil {
		return Result{}, fmt.Errorf("publish %s: %w", p.application, err)
	}
	return p.result, nil
}

// publication is one run of Publish.
type publication struct {
	options     Options
	store       *store.Store
	application string
	compiled    *compile.Compiled
	imported    []config.Imported
	dir         string // absolute
	specs       map[string]entities.Spec
	manifest    incarnation.Manifest
	before      protocol.ApplicationStatus
	runtimes    runtimeChanges
	rules       protocol.Rules // of the installation
	result      Result
	// changed and started are service keys, as in workflows and the store: first names.
	changed, started []string
	origin           protocol.Origin
	commits          string // their digest in the store
}

// compile loads and compiles, with the runtimes that other applications have published.
func (p *publication) compile(ctx context.Context) error {
	if i, err := p.store.Installation(ctx); err == nil && i.Exported != "" {
		return fmt.Errorf("the installation of the store %s was exported by %s at %s, to continue elsewhere; publish there [exported]",
			p.store.URL(), i.Exported, i.At.Format(time.RFC3339))
	}
	known, err := p.store.Runtimes(ctx)
	if err != nil {
		return fmt.Errorf("read the published runtimes: %w", err)
	}
	digest, err := p.store.SecretDigest(ctx)
	if err != nil {
		return err
	}
	if p.rules, err = p.store.Rules(ctx); err != nil {
		return fmt.Errorf("read the rules of the installation: %w", err)
	}
	config, err := compile.LoadWith(p.options.Dir, config.Options{
		Runtimes: known, RuntimesOf: p.rules.RuntimesOf(), SecretDigest: digest, AllowFake: p.options.Fake, Published: p.store.Imports(ctx),
		Within: p.options.Root, RunCommand: Commands(ctx, p.options.AllowCommands),
	})
	if err == nil {
		p.imported = config.Imported
		p.compiled, err = compile.Compile(config)
	}
	if err != nil {
		return p.rejected(ctx, err)
	}
	p.application, p.dir = p.compiled.Incarnation.Application(), config.Dir
	if err := p.reachable(); err != nil {
		return err
	}
	if p.before, err = Status(ctx, p.options.Client, p.application); err != nil {
		return err
	}
	if err := p.applyRenames(ctx); err != nil {
		return err
	}
	if p.specs, err = p.compiled.Specs(); err != nil {
		return err
	}
	p.runtimes = compareRuntimes(known, p.compiled.Runtimes)
	clear := digest == nil && slices.ContainsFunc(p.compiled.Bundles, bundle.Bundle.Secret)
	p.manifest = incarnation.ManifestOf(p.specs)
	p.result = Result{
		Application: p.application, Hash: p.compiled.Incarnation.Hash(), Services: p.compiled.Incarnation.Services(), Names: p.compiled.Incarnation.ServiceNames(),
		Store: p.store.URL(), DryRun: p.options.DryRun, SecretsInClear: clear,
		Warnings: p.compiled.Warnings,
		Baseline: p.baselineGates(),
	}
	return nil
}

// rejected adds the newest incarnation to errors in the configuration, if the application's name is known.
func (p *publication) rejected(ctx context.Context, err error) error {
	var problems config.Problems
	if !errors.As(err, &problems) {
		return err
	}
	out := &Rejected{Problems: problems}
	if name := ApplicationIn(p.options.Dir); name != "" {
		if before, err := Status(ctx, p.options.Client, name); err == nil {
			out.Newest = before.Newest
		}
	}
	return out
}

// reachable refuses a remote runtime whose worker could not read the store.
func (p *publication) reachable() error { return p.store.CheckReachable(p.compiled.Runtimes) }

// compare reads the newest incarnation and computes the differences.
func (p *publication) compare(ctx context.Context) error {
	before := p.before
	p.result.Previous, p.result.Incarnation = before.Newest, before.Newest
	newest := newestOf(before)
	if before.Newest > 0 {
		p.result.Runtimes = p.runtimes.texts()
	}
	p.result.Unchanged = newest.Hash == p.result.Hash && before.Manifest == p.manifest.Digest() && p.runtimes.published
	last, err := p.store.Manifest(ctx, before.Manifest)
	if !p.options.DryRun {
		stopped, queryErr := p.missingServices(ctx, last)
		if queryErr != nil {
			return answerError(p.options.Client, queryErr, "list the running services of "+p.application)
		}
		p.started, p.result.Started = stopped, p.titles(stopped)
	}
	if p.result.Unchanged && err == nil {
		p.result.Notified = before.NotifiedOf == before.Manifest
		return nil
	}
	p.result.Unchanged = false                                         // a store that lost its content gets it again
	if err != nil && !store.IsNotFound(err) && !store.IsDamaged(err) { // it was in another store so far: then everything counts as changed
		return err
	}
	changed, removed := p.manifest.Since(last)
	p.changed, p.result.Changed, p.result.Removed = changed, p.titles(changed), p.titles(removed)
	if p.result.Loosened, err = p.loosened(ctx, last); err != nil {
		return err
	}
	if err := p.checkRenames(ctx, last); err != nil {
		return err
	}
	if !p.options.DryRun {
		return nil
	}
	p.result.Difference, err = p.difference(ctx, newest.Hash)
	return err
}

// applyRenames relates the incarnation to the newest one: renamed services stay the same services. It refuses to move services to other
// runtimes, unless the move is declared.
func (p *publication) applyRenames(ctx context.Context) error {
	before, err := p.newest(ctx)
	if err != nil && !store.IsNotFound(err) && !store.IsDamaged(err) {
		return err
	}
	if err != nil { // it was in another store, or nowhere, or is lost: it is written again
		before = nil
	}
	if err := p.compiled.InheritIdentities(before, p.before.Names); err != nil {
		return fmt.Errorf("%w: %w [renamed]", ErrRefused, err)
	}
	if err := p.checkLibraries(before); err != nil {
		return fmt.Errorf("%w: %w [library-differs]", ErrRefused, err)
	}
	if err := p.checkRenameSources(ctx, before); err != nil {
		return err
	}
	if lines := incarnation.UndeclaredMoves(before, p.compiled.Incarnation); len(lines) > 0 {
		return fmt.Errorf("%w: %s [moved-runtime]", ErrRefused, strings.Join(lines, "\n"))
	}
	return nil
}

// newest is the newest incarnation, as far as the store has it; also of an application whose workflow is gone.
func (p *publication) newest(ctx context.Context) (*incarnation.Incarnation, error) {
	newest := newestOf(p.before)
	if p.before.Newest == 0 {
		numbers, err := p.store.ListNumbers(ctx, p.application)
		if err != nil || len(numbers) == 0 {
			return nil, err
		}
		if newest, err = p.store.Number(ctx, p.application, numbers[len(numbers)-1]); err != nil {
			return nil, err
		}
	}
	return p.store.Incarnation(ctx, newest.Hash)
}

// checkRenameSources refuses renames if the previous names cannot be read and services with these names run.
func (p *publication) checkRenameSources(ctx context.Context, before *incarnation.Incarnation) error {
	if before != nil {
		return nil
	}
	for _, from := range p.compiled.Incarnation.UnknownFormerNames() {
		running, err := p.isRunning(ctx, from)
		if err != nil {
			return answerError(p.options.Client, err, "check whether "+from+" runs")
		}
		if running {
			return fmt.Errorf("%w: the store does not have the newest incarnation, which contains %s under its old name; publish it there first, with --take-over, and then under the new name [renamed]",
				ErrRefused, from)
		}
	}
	return nil
}

// titleOf is the display name of a service with that first name.
func (p *publication) titleOf(service string) string {
	if spec, declared := p.specs[service]; declared {
		return spec.Title()
	}
	return p.before.Names.Title(service)
}

func (p *publication) titles(services []string) []string {
	var titles []string
	for _, service := range services {
		titles = append(titles, p.titleOf(service))
	}
	slices.Sort(titles)
	return titles
}

// difference compares with an incarnation, or with nothing if the store does not have it.
func (p *publication) difference(ctx context.Context, hash string) (*incarnation.Difference, error) {
	before, err := p.store.Incarnation(ctx, hash)
	if err != nil && !store.IsNotFound(err) && !store.IsDamaged(err) {
		return nil, err
	}
	return incarnation.Diff(before, p.compiled.Incarnation)
}

// Status is the status of an application; it is empty if the application does not exist.
func Status(ctx context.Context, c client.Client, application string) (protocol.ApplicationStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var s protocol.ApplicationStatus
	err := protocol.QueryWhole(func(q protocol.PartsQuery) (raw json.RawMessage, err error) {
		var answer *client.QueryWorkflowWithOptionsResponse
		err = connection.Ask(ctx, func() (err error) {
			answer, err = c.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
				WorkflowID: protocol.ApplicationID(application), QueryType: protocol.QueryStatus, Args: []any{q},
				QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_OPEN, // a terminated workflow has no current state
			})
			return err
		})
		switch {
		case err != nil:
			return nil, err
		case answer.QueryRejected.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED:
			return nil, fmt.Errorf("an operator has paused its workflow; continue with: temporal workflow unpause --workflow-id %s", protocol.ApplicationID(application))
		case answer.QueryRejected != nil:
			return nil, errWorkflowEnded
		}
		err = answer.QueryResult.Get(&raw)
		return raw, err
	}, &s)
	var absent *serviceerror.NotFound
	switch {
	case errors.As(err, &absent), errors.Is(err, errWorkflowEnded):
		return s, nil
	case err != nil:
		return s, answerError(c, err, "query application/"+application)
	}
	return s, nil
}

var errWorkflowEnded = errors.New("the workflow has ended")

func newestOf(s protocol.ApplicationStatus) protocol.Incarnation {
	for _, i := range slices.Backward(s.Incarnations) {
		if i.Number == s.Newest {
			return i
		}
	}
	return protocol.Incarnation{}
}

// rewriteNewest writes lost or damaged objects of the newest incarnation again, as the errors about them promise. Intact objects are read
// and kept.
func (p *publication) rewriteNewest(ctx context.Context) error {
	if err := p.write(ctx, p.compiled.Incarnation.ServiceKeys()); err != nil {
		return fmt.Errorf("write the newest incarnation of %s again: %w", p.application, err)
	}
	return nil
}

// write puts everything that the incarnation needs for these services into the store. All of it is content-addressed, so it affects nothing
// if it is not published in the end.
func (p *publication) write(ctx context.Context, services []string) error {
	for _, d := range p.compiled.Runtimes {
		if err := p.store.ClaimRuntime(ctx, d.Name, d.Owner); err != nil {
			return err
		}
		if _, err := p.store.PutRuntime(ctx, d); err != nil {
			return err
		}
	}
	if err := p.writeDefinitions(ctx, services); err != nil {
		return err
	}
	if err := p.writeDirectory(ctx); err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(writers)
	for _, service := range services {
		g.Go(func() error {
			_, err := p.store.PutSpec(ctx, p.specs[service])
			return err
		})
	}
	for _, bundle := range p.compiled.Bundles {
		g.Go(func() error { return p.store.PutBundle(ctx, bundle) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if _, err := p.store.PutIncarnation(ctx, p.compiled.Incarnation); err != nil {
		return err
	}
	_, err := p.store.PutManifest(ctx, p.manifest)
	return err
}

// writeDirectory records from which directory the application is published, unless a record exists. For an application that moves, the
// record is written after acceptance.
func (p *publication) writeDirectory(ctx context.Context) error {
	if _, err := p.store.Directory(ctx, p.application); !store.IsNotFound(err) && !store.IsDamaged(err) {
		return err
	}
	return p.store.PutDirectory(ctx, p.application, p.dir)
}

// writeDefinitions stores the definitions of checks, of extensions and of the commands of plans, before the specs and the incarnation that
// refer to them.
func (p *publication) writeDefinitions(ctx context.Context, services []string) error {
	var g errgroup.Group
	g.SetLimit(writers)
	for _, service := range services {
		for _, definition := range p.compiled.Checks(service) {
			g.Go(func() error {
				_, err := p.store.PutCheck(ctx, definition)
				return err
			})
		}
		for _, definition := range p.compiled.Extensions(service) {
			g.Go(func() error {
				_, err := p.store.PutExtension(ctx, definition)
				return err
			})
		}
	}
	for _, definition := range p.compiled.PlanDefinitions() {
		g.Go(func() error {
			_, err := p.store.PutExtension(ctx, definition)
			return err
		})
	}
	return g.Wait()
}
