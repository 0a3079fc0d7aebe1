// Package publish makes the configuration in a directory the newest incarnation of its application:
// load, compile, store, and one update to the Application workflow. `converge apply` does it once,
// `converge dev` whenever a file is saved.
//
// It decides nothing: the workflow accepts or refuses. It prints nothing either.
package publish

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent"
)

const (
	answerTimeout = 30 * time.Second // of the workflow; a worker has to be there
	queryTimeout  = 5 * time.Second
	tellTimeout   = 10 * time.Second
	toldInterval  = 100 * time.Millisecond
	writers       = 16 // to the store at a time
)

// Options say what to publish and on whose behalf.
type Options struct {
	Client   client.Client
	Dir      string
	StoreURL string   // a URL or a directory
	By       string   // who publishes
	Causes   []string // what led to it, for the incarnation's record
	TakeOver bool     // although the application comes from another directory so far
	DryRun   bool     // compile and compare only
	// Fake accepts runtimes of kind fake: tests and simulations.
	Fake bool
}

// Result is what came of it.
type Result struct {
	Application string   `json:"application"`
	Incarnation int64    `json:"incarnation"` // the newest now
	Hash        string   `json:"hash"`
	Unchanged   bool     `json:"unchanged,omitempty"` // it was the newest already
	DryRun      bool     `json:"dryRun,omitempty"`
	Previous    int64    `json:"previous,omitempty"` // the newest before, 0 for none
	Services    []string `json:"services"`
	Changed     []string `json:"changed,omitempty"` // services whose rules or payload differ from before
	Removed     []string `json:"removed,omitempty"` // services no longer declared: orphaned
	Store       string   `json:"store"`
	// Difference is given for a dry run, against what is newest.
	Difference *intent.Difference `json:"difference,omitempty"`
	// Files were read, relative to the directory: what to watch. They are given when compiling
	// succeeded.
	Files []string `json:"-"`
}

// String is the line that ends an apply.
func (r Result) String() string {
	name := fmt.Sprintf("incarnation %d of %s", r.Incarnation, r.Application)
	switch {
	case r.DryRun && r.Unchanged:
		return "nothing would change: " + name + " has this content already"
	case r.DryRun:
		return "not published: " + r.changes() + since(r.Previous)
	case r.Unchanged:
		return "nothing changed: " + name + " stays newest"
	case r.Incarnation == r.Previous: // runtimes are published on their own
		return fmt.Sprintf("runtimes changed: %s told; %s stays newest", count(len(r.Changed), "service"), name)
	}
	return fmt.Sprintf("%s published: %s", name, r.changes())
}

func (r Result) changes() string {
	text := fmt.Sprintf("%s, %d changed", count(len(r.Services), "service"), len(r.Changed))
	if len(r.Removed) > 0 {
		text += fmt.Sprintf(", %d no longer declared", len(r.Removed))
	}
	return text
}

// Rejected says that the configuration has mistakes, so that nothing was published.
type Rejected struct {
	Problems intent.Problems
	Newest   int64 // stays so; 0 when there is none
}

// Error lists the problems and ends with what stays (INTERFACE section 1).
func (r *Rejected) Error() string {
	text := fmt.Sprintf("%s\n%s; nothing published", r.Problems.Error(), count(len(r.Problems), "error"))
	if r.Newest > 0 {
		text += fmt.Sprintf(", incarnation %d stays newest", r.Newest)
	}
	return text
}

// Unwrap gives the problems.
func (r *Rejected) Unwrap() error { return r.Problems }

func since(previous int64) string {
	if previous == 0 {
		return ", as the first incarnation"
	}
	return fmt.Sprintf(" since incarnation %d", previous)
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ErrRefused is an update that the Application workflow did not accept: another directory, or a
// newer incarnation than the one compiled against.
var ErrRefused = errors.New("refused")

// Publish makes the configuration in o.Dir the newest incarnation. Mistakes in it are a *Rejected,
// what the workflow does not accept is ErrRefused. Running it again publishes nothing twice.
func Publish(ctx context.Context, o Options) (Result, error) {
	store, err := intent.OpenStore(ctx, o.StoreURL)
	if err != nil {
		return Result{}, err
	}
	defer store.Close() // nothing is written any more
	p := &publication{options: o, store: store}
	if err := p.compile(ctx); err != nil {
		return Result{}, err
	}
	if err := p.compare(ctx); err != nil || o.DryRun || p.result.Unchanged {
		return p.result, err
	}
	if err := p.write(ctx); err != nil {
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
	store       *intent.Store
	application string
	compiled    *intent.Compiled
	specs       map[string]entities.Spec
	manifest    intent.Manifest
	before      protocol.ApplicationStatus
	result      Result
}

// compile loads and compiles, with the runtimes that other applications have published.
func (p *publication) compile(ctx context.Context) error {
	known, err := p.store.Runtimes(ctx)
	if err != nil {
		return fmt.Errorf("read the runtimes published so far: %w", err)
	}
	config, err := intent.LoadWith(p.options.Dir, intent.Options{Runtimes: known, AllowFake: p.options.Fake})
	if err == nil {
		p.compiled, err = intent.Compile(config)
	}
	if err != nil {
		return p.rejected(ctx, err)
	}
	p.application = p.compiled.Incarnation.Application()
	if p.specs, err = p.compiled.Specs(); err != nil {
		return err
	}
	if err := p.reachable(); err != nil {
		return err
	}
	p.manifest = intent.ManifestOf(p.specs)
	p.result = Result{
		Application: p.application, Hash: p.compiled.Incarnation.Hash(), Services: p.compiled.Incarnation.Services(),
		Store: p.store.URL(), DryRun: p.options.DryRun, Files: config.Files(),
	}
	return nil
}

// rejected adds to mistakes what stays newest, where the application's name can be told at all.
func (p *publication) rejected(ctx context.Context, err error) error {
	var problems intent.Problems
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
func (p *publication) reachable() error {
	for _, d := range p.compiled.Runtimes {
		if d.Remote && p.store.Local() {
			return fmt.Errorf("runtime %s has a remote worker, which cannot reach the store %s; give one that it can with --store, such as s3://bucket", d.Name, p.store.URL())
		}
	}
	return nil
}

// compare asks for what is newest and says what differs.
func (p *publication) compare(ctx context.Context) error {
	before, err := Status(ctx, p.options.Client, p.application)
	if err != nil {
		return err
	}
	p.before = before
	p.result.Previous, p.result.Incarnation = before.Newest, before.Newest
	newest := newestOf(before)
	p.result.Unchanged = newest.Hash == p.result.Hash && before.Manifest == p.manifest.Digest()
	if p.result.Unchanged {
		return nil
	}
	last, err := p.store.Manifest(ctx, before.Manifest)
	if err != nil && !intent.IsNotFound(err) { // in another store so far: then everything counts as changed
		return err
	}
	p.result.Changed, p.result.Removed = differing(last, p.manifest)
	if !p.options.DryRun {
		return nil
	}
	p.result.Difference, err = p.difference(ctx, newest.Hash)
	return err
}

// difference compares with an incarnation, or with nothing when the store does not have it.
func (p *publication) difference(ctx context.Context, hash string) (*intent.Difference, error) {
	before, err := p.store.Incarnation(ctx, hash)
	if err != nil && !intent.IsNotFound(err) {
		return nil, err
	}
	return intent.Diff(before, p.compiled.Incarnation)
}

// Status is what an application knows of itself; one that does not exist knows nothing.
func Status(ctx context.Context, c client.Client, application string) (protocol.ApplicationStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var s protocol.ApplicationStatus
	value, err := c.QueryWorkflow(ctx, protocol.ApplicationID(application), "", protocol.QueryStatus)
	var absent *serviceerror.NotFound
	switch {
	case errors.As(err, &absent):
		return s, nil
	case err != nil:
		return s, noAnswer(err, "ask application/"+application)
	}
	return s, value.Get(&s)
}

// AwaitTold waits until every service knows what is newest, and returns false when it takes longer
// than within: then no worker reads the store that was written.
func AwaitTold(ctx context.Context, c client.Client, application string, within time.Duration) (bool, error) {
	for deadline := time.Now().Add(within); ; {
		s, err := Status(ctx, c, application)
		if err != nil || s.Told == s.Manifest {
			return err == nil, err
		}
		if !time.Now().Before(deadline) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(toldInterval):
		}
	}
}

func newestOf(s protocol.ApplicationStatus) protocol.Incarnation {
	for _, i := range slices.Backward(s.Incarnations) {
		if i.Number == s.Newest {
			return i
		}
	}
	return protocol.Incarnation{}
}

// differing lists, sorted, the services that changed or are new, and those that are gone.
func differing(from, to intent.Manifest) (changed, removed []string) {
	for service, digest := range to {
		if from[service] != digest {
			changed = append(changed, service)
		}
	}
	for service := range from {
		if _, declared := to[service]; !declared {
			removed = append(removed, service)
		}
	}
	slices.Sort(changed)
	slices.Sort(removed)
	return changed, removed
}

// write puts everything that the incarnation needs into the store. All of it is named by its
// content, so what is not published in the end harms nobody.
func (p *publication) write(ctx context.Context) error {
	for _, d := range p.compiled.Runtimes {
		if err := p.store.ClaimRuntime(ctx, d.Name, d.Owner); err != nil {
			return err
		}
		if _, err := p.store.PutRuntime(ctx, d); err != nil {
			return err
		}
	}
	var g errgroup.Group
	g.SetLimit(writers)
	for _, service := range p.result.Changed {
		g.Go(func() error {
			_, err := p.store.PutSpec(ctx, p.specs[service])
			return err
		})
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

// announce tells the Application workflow, which is started when this is the first time, and makes
// the runtimes current for other applications once that is accepted.
func (p *publication) announce(ctx context.Context) error {
	request, err := p.request(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c := p.options.Client
	handle, err := c.UpdateWithStartWorkflow(ctx, client.UpdateWithStartWorkflowOptions{
		StartWorkflowOperation: c.NewWithStartWorkflowOperation(p.start(), protocol.ApplicationWorkflow,
			protocol.ApplicationInput{Application: p.application}),
		UpdateOptions: client.UpdateWorkflowOptions{
			UpdateID: request.RequestID, UpdateName: protocol.Publish, Args: []any{request},
			WaitForStage: client.WorkflowUpdateStageCompleted,
		},
	})
	var answer protocol.PublishAnswer
	if err == nil {
		err = handle.Get(ctx, &answer)
	}
	if err != nil {
		return noAnswer(err, "announce it")
	}
	p.result.Incarnation, p.result.Unchanged = answer.Incarnation, answer.Unchanged
	for _, d := range p.compiled.Runtimes {
		if _, err := p.store.PublishRuntime(ctx, d); err != nil {
			return err
		}
	}
	p.told(ctx)
	return nil
}

// told waits a while until all services know, so that what comes next (a release, say) finds them
// there. Thousands take longer than anybody waits; they are told all the same.
func (p *publication) told(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		now, err := Status(ctx, p.options.Client, p.application)
		if err != nil || now.Told == p.manifest.Digest() || now.Newest != p.result.Incarnation {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (p *publication) request(ctx context.Context) (protocol.PublishRequest, error) {
	numbers, err := p.store.ListNumbers(ctx, p.application)
	if err != nil {
		return protocol.PublishRequest{}, err
	}
	floor := int64(0)
	if len(numbers) > 0 {
		floor = numbers[len(numbers)-1]
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	return protocol.PublishRequest{
		Act:  protocol.Act{By: p.options.By, RequestID: hex.EncodeToString(id)},
		Hash: p.result.Hash, Manifest: p.manifest.Digest(), Services: len(p.specs), Store: p.store.URL(),
		Origin: OriginOf(ctx, p.options.Dir), Causes: p.options.Causes, After: p.before.Newest, TakeOver: p.options.TakeOver,
		Floor: floor,
	}, nil
}

func (p *publication) start() client.StartWorkflowOptions {
	attribute := temporal.NewSearchAttributeKeyKeyword(protocol.AttrApplication)
	return client.StartWorkflowOptions{
		ID: protocol.ApplicationID(p.application), TaskQueue: protocol.TaskQueue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary:            p.application,
		StaticDetails: fmt.Sprintf("The incarnations of %s, and which services know them.\n\n`converge incarnations %s` · `converge status %s`",
			p.application, p.application, p.application),
		TypedSearchAttributes: temporal.NewSearchAttributes(attribute.ValueSet(p.application)),
	}
}

// noAnswer puts what went wrong with a call into words.
func noAnswer(err error, doing string) error {
	var application *temporal.ApplicationError
	var late *serviceerror.DeadlineExceeded
	switch {
	case errors.As(err, &application) && application.Type() == protocol.ErrRefused:
		return fmt.Errorf("%w: %s", ErrRefused, application.Message())
	case errors.As(err, &application):
		return errors.New(application.Message())
	case errors.As(err, &late), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: no worker answers; start one with: converge worker", doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
