package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	ordering "github.com/converge-engine/converge/entities/order"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/sops"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
)

// Factory creates the adapter of one kind of runtime from a definition.
type Factory func(entities.RuntimeDefinition) (runtimes.Runtime, error)

// Activities are the activities that workflows call by name (entities/protocol). It is safe for concurrent use. New creates it.
type Activities struct {
	Store     *store.Store
	Client    client.Client // to notify services of publications and changes
	Factories map[entities.RuntimeKind]Factory
	// Installation is the permanent id of the installation. Epoch is its epoch: claims of a lower one are rejected.
	Installation string
	Epoch        int64
	// Runtime is the runtime that this remote worker serves; empty: it serves the common queue.
	Runtime string
	// Eager belongs to the worker's connection; nil: each attempt that makes changes waits for its first heartbeat.
	Eager *Eager
	// Commands is where checks and extensions run, and resolves references to secrets in this worker.
	Commands custom.Worker
	// Roots are the directories of applications on this worker.
	Roots Roots
	// Sops are the keys of this worker for data that SOPS encrypted. Nil: none.
	Sops *sops.Keys
	// Payloads is the codec of the client. Nil: no encryption.
	Payloads *codec.Codec
	// Metrics counts the work of this worker. New sets it to discard.
	Metrics client.MetricsHandler

	hints   *hints
	issuers issuers // keys of recently used token issuers
	recall  recall  // recent schedules of checks that had news

	holds     lately[[]protocol.ScopePause]      // active pauses, by application and runtime
	owners    lately[entities.RuntimeDefinition] // newest declarations of runtimes, by name
	published lately[string]                     // directories that applications were published from, by application
	progress  lately[[]protocol.Configured]      // progress of configuration changes, by application and incarnation
	plans     lately[planned]                    // plans that run or are waited for, by digest of their inputs
	newest    lately[numbered]                   // incarnations, by application
	inForce   lately[string]                     // hashes of the newest incarnations, by application
	addonsIn  lately[addons]                     // by hash of the incarnation
	follows   follows                            // plans that this worker follows
	prepared  rush
	prompt    prompt

	readings places // by application and runtime
	checks   places // by application

	mu      sync.Mutex
	lines   map[string]connection    // by runtime and digest of its definition
	applies map[string]chan struct{} // running applies, by instance or extension; closed at their end
}

// New creates activities. Close ends their background work.
func New(store *store.Store, c client.Client, factories map[entities.RuntimeKind]Factory) *Activities {
	a := &Activities{
		Store: store, Client: c, Factories: factories, Metrics: client.MetricsNopHandler,
		readings: places{all: readingPlaces, each: runtimePlaces}, checks: places{all: checkPlaces, each: askerPlaces},
	}
	a.hints = newHints(a)
	return a
}

// Close stops the processing of hints from runtimes.
func (a *Activities) Close() {
	a.hints.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, line := range a.lines {
		if line.stop != nil {
			line.stop()
		}
	}
	a.lines = nil
}

// connection is a runtime ready for use, with its definition.
type connection struct {
	runtimes.Runtime
	definition entities.RuntimeDefinition
	watches    bool   // it reports changes (runtimes.Watcher)
	mirrors    bool   // it has a cache of the watched state (runtimes.Mirror)
	stop       func() // stops the watch
}

// observable reports whether the runtime can be observed at all (C1).
func (c connection) observable() bool {
	return c.definition.Custom == nil || c.definition.Custom.Fetch != nil
}

// connect returns the runtime of that definition. It is created once per worker, definition and directory. Definitions are immutable, so
// a changed one has another digest.
func (a *Activities) connect(ctx context.Context, name, digest string) (connection, error) {
	definition, err := a.Store.Runtime(ctx, name, digest)
	if err == nil {
		definition, err = a.placed(ctx, definition)
	}
	if err != nil {
		return connection{}, fmt.Errorf("runtime %s: %w", name, err)
	}
	key := name + "/" + digest + "/" + definition.Dir
	a.mu.Lock()
	line, ok := a.lines[key]
	a.mu.Unlock()
	if ok {
		return line, nil
	}
	factory, ok := a.Factories[definition.Kind]
	if !ok {
		return connection{}, fmt.Errorf("runtime %s: this worker has no runtimes of kind %q", name, definition.Kind)
	}
	runtime, err := factory(definition)
	if err != nil {
		return connection{}, fmt.Errorf("runtime %s: %w", name, err)
	}
	line = connection{Runtime: runtime, definition: definition}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lines == nil {
		a.lines = map[string]connection{}
	}
	if made, ok := a.lines[key]; ok { // another activity created it in the meantime
		return made, nil
	}
	if w, ok := runtime.(runtimes.Watcher); ok {
		line.stop = w.Watch(func(owner runtimes.Owner) { a.hints.hint(owner, name) })
		line.watches = line.stop != nil
		_, mirror := runtime.(runtimes.Mirror)
		line.mirrors = line.watches && mirror
	}
	a.lines[key] = line
	return line, nil
}

// instance reads the data that a runtime gets of an instance, including the objects of a bundle. Without a payload digest nothing was
// ever applied there. With open, references to values that no extension reported stay unchanged.
func (a *Activities) instance(ctx context.Context, in runtimes.Instance, payload string, open bool) (runtimes.Instance, error) {
	in.Installation = a.Installation
	if payload == "" {
		return in, nil
	}
	p, err := a.payload(ctx, in, payload)
	if err != nil {
		return in, fmt.Errorf("payload of %s: %w", in.Owner, err)
	}
	f := a.ofVersion(in.Application, in.Service, in.ID.Channel, in.FullVersion)
	f.open = open
	p.Fill(func(text string) string { return f.text(ctx, text) })
	if f.err != nil {
		return in, fmt.Errorf("payload of %s: %w", in.Owner, f.err)
	}
	if f.used != nil && in.Key != "" {
		in.Key += "/" + entities.DigestOf(f.used) // other values make other content
	}
	if b := p.Bundled(); b != nil {
		bundle, err := a.Store.Bundle(ctx, b.Bundle)
		if err == nil {
			b.Objects, err = bundle.Objects(b.Values)
		}
		if err != nil {
			return in, fmt.Errorf("objects of %s: %w", in.Owner, err)
		}
	}
	in.Payload = &p
	return in, nil
}

// payload reads a payload. It renders a lost or damaged one again, if the meaning of the version is known.
func (a *Activities) payload(ctx context.Context, in runtimes.Instance, digest string) (entities.Payload, error) {
	p, lost := a.Store.Payload(ctx, digest)
	if !store.IsDamaged(lost) && !store.IsNotFound(lost) {
		return p, lost
	}
	record, err := a.Store.Version(ctx, in.Application, in.Service, in.FullVersion)
	if store.IsNotFound(err) {
		name, _ := entities.SplitVersion(in.FullVersion)
		return p, fmt.Errorf("%w; to render it again, release the version again: converge release %s/%s %s", lost, in.Application, in.Service, ordering.Named(name))
	}
	if err != nil {
		return p, lost
	}
	rendered, err := a.render(ctx, protocol.PrepareRequest{Service: in.Service}, []entities.InstanceID{in.ID}, record)
	if err != nil || entities.DigestOf(rendered[in.ID]) != digest {
		return p, lost
	}
	if _, err := a.Store.PutPayload(ctx, rendered[in.ID]); err != nil && !store.IsReadOnly(err) {
		return p, err
	}
	return rendered[in.ID], nil
}

// observe takes one reading, limited in time and size. It never fails: errors are in the reading. It abandons a runtime that ignores its
// deadline.
func (c connection) observe(ctx context.Context, in runtimes.Instance, timeout time.Duration) (entities.Reading, runtimes.Output) {
	type result struct {
		objects []entities.Object
		output  runtimes.Output
		err     error
	}
	r, ok := leftBehind(ctx, timeout, stragglers, func(ctx context.Context) (r result) {
		if l, ok := c.Runtime.(runtimes.Logger); ok {
			r.objects, r.output, r.err = l.ObserveOutput(ctx, in)
		} else {
			r.objects, r.err = c.Observe(ctx, in)
		}
		return r
	})
	if !ok {
		r.err = &entities.ReadingError{Code: "timeout", Message: fmt.Sprintf("no answer within %s", timeout)}
	}
	return reading(r.objects, r.err), r.output
}

// leftBehind calls do. It abandons the call if it ignores its deadline and runs longer than the grace after it. During the grace a call
// that noticed the deadline can still return its reason.
func leftBehind[T any](ctx context.Context, limit, grace time.Duration, do func(context.Context) T) (out T, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- do(ctx) }()
	select {
	case out = <-done:
		return out, true
	case <-ctx.Done():
	}
	select {
	case out = <-done:
		return out, true
	case <-time.After(grace):
		return out, false
	}
}

// stragglers is the grace of an observation after its deadline.
const stragglers = 10 * time.Second

func reading(objects []entities.Object, err error) entities.Reading {
	r := entities.Reading{At: time.Now().UTC()}
	if err == nil {
		r.Objects, r.Omitted = runtimes.Bound(objects)
		return r
	}
	if !errors.As(err, &r.Err) {
		r.Err = &entities.ReadingError{Code: "fetch-failed", Message: err.Error()}
	}
	bounded := *r.Err
	bounded.Message = runtimes.Clip(bounded.Message, 1000)
	r.Err = &bounded
	return r
}

// current returns the current state in a reading with respect to a full version.
func current(r entities.Reading, fullVersion string) entities.Current {
	if r.Err != nil {
		return entities.Current{}
	}
	return entities.FetchObjects(r.Objects, &entities.Target{FullVersion: fullVersion})
}
