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

// Factory makes the adapter of one kind of runtime from a definition.
type Factory func(entities.RuntimeDefinition) (runtimes.Runtime, error)

// Activities are what workflows call by name (entities/protocol). Safe for concurrent use; New makes
// them.
type Activities struct {
	Store     *store.Store
	Client    client.Client // to notify services of publications and changes
	Factories map[entities.RuntimeKind]Factory
	// Installation is its id, for ever. Epoch is its epoch: claims of a lower one are refused.
	Installation string
	Epoch        int64
	// Runtime is that of which this is the remote worker; empty: it serves the common queue.
	Runtime string
	// Eager is that of the worker's connection; nil: each attempt that changes something waits for its first heartbeat.
	Eager *Eager
	// Commands are where checks and extensions run, and what references to secrets stand for in this worker.
	Commands custom.Worker
	// Roots are where this worker has the directories of applications.
	Roots Roots
	// Sops are the keys that this worker has for what SOPS encrypted. Nil: none.
	Sops *sops.Keys
	// Payloads is the codec of the client. Nil: nothing is encrypted.
	Payloads *codec.Codec
	// Metrics is where this worker counts. New: nowhere.
	Metrics client.MetricsHandler

	hints   *hints
	issuers issuers // whose tokens were verified lately
	recall  recall  // of checks that had news a moment ago

	holds     lately[[]protocol.ScopePause]      // pauses in force, by application and runtime
	owners    lately[entities.RuntimeDefinition] // the newest declarations of runtimes, by name
	published lately[string]                     // the directories that applications were published from, by application
	progress  lately[[]protocol.Configured]      // of changes of configuration, by application and incarnation
	plans     lately[planned]                    // that run, or are waited for, by what they are built of
	newest    lately[numbered]                   // incarnations, by application
	inForce   lately[string]                     // hashes of the newest incarnations, by application
	addonsIn  lately[addons]                     // by hash of the incarnation
	follows   follows                            // plans, in this worker
	prepared  rush
	prompt    prompt

	readings places // by application and runtime
	checks   places // by application

	mu      sync.Mutex
	lines   map[string]connection    // by runtime and digest of its definition
	applies map[string]chan struct{} // under way, by instance or extension; closed when it has ended
}

// New makes activities; Close ends what they have going on by themselves.
func New(store *store.Store, c client.Client, factories map[entities.RuntimeKind]Factory) *Activities {
	a := &Activities{
		Store: store, Client: c, Factories: factories, Metrics: client.MetricsNopHandler,
		readings: places{all: readingPlaces, each: runtimePlaces}, checks: places{all: checkPlaces, each: askerPlaces},
	}
	a.hints = newHints(a)
	return a
}

// Close stops taking in hints of runtimes that watch.
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

// connection is a runtime ready for use, and what it was made from.
type connection struct {
	runtimes.Runtime
	definition entities.RuntimeDefinition
	watches    bool   // it learns of changes by itself (runtimes.Watcher)
	mirrors    bool   // and has a copy of what it watches (runtimes.Mirror)
	stop       func() // ends that
}

// observable reports whether the runtime can be observed at all (C1).
func (c connection) observable() bool {
	return c.definition.Custom == nil || c.definition.Custom.Fetch != nil
}

// connect returns the runtime of that definition, made once per worker and place of its directory: definitions are
// immutable, so a changed one has another digest.
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
	if made, ok := a.lines[key]; ok { // by another activity meanwhile
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

// instance reads what a runtime gets to know of an instance, objects of a bundle included. Without a
// payload digest nothing was ever applied there. Open: what no extension reported stays as it is.
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
		in.Key += "/" + entities.DigestOf(f.used) // others are other content
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

// payload reads a payload. One that is lost or damaged is rendered again, as far as what the version means is known.
func (a *Activities) payload(ctx context.Context, in runtimes.Instance, digest string) (entities.Payload, error) {
	p, lost := a.Store.Payload(ctx, digest)
	if !store.IsDamaged(lost) && !store.IsNotFound(lost) {
		return p, lost
	}
	record, err := a.Store.Version(ctx, in.Application, in.Service, in.FullVersion)
	if store.IsNotFound(err) {
		name, _ := entities.SplitVersion(in.FullVersion)
		return p, fmt.Errorf("%w; it is rendered once more when that is released again: converge release %s/%s %s", lost, in.Application, in.Service, ordering.Named(name))
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

// observe takes one reading, bounded in time and size. Whatever goes wrong is in the reading: it never
// fails, it only finds out nothing. A runtime that ignores its deadline is left behind.
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

// leftBehind does something, and leaves it behind when it ignores its deadline and goes on for longer than the grace
// after it: it may have noticed, and be about to say why.
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

// stragglers is how long an observation may take to end once its time is over.
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

// current is what a reading that was taken just now shows with respect to a full version.
func current(r entities.Reading, fullVersion string) entities.Current {
	if r.Err != nil {
		return entities.Current{}
	}
	return entities.FetchObjects(r.Objects, &entities.Target{FullVersion: fullVersion})
}
