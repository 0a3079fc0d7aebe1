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

// Activities are the activities that workflows call by name (entities/protocol). They are safe for concurrent use. New creates it.
type Activities struct {
	Store     *store.Store
	Client    client.Client // to notify services of publications and changes
	Factories map[entities.RuntimeKind]Factory
	// Installation is the permanent id of the installation. Epoch is its epoch: claims of a lower one are rejected.
	Installation string
	Epoch        int64
	// Runtime is the runtime that this remote worker serves; empty: it serves the common queue.
	Runtime string
	// Tasks belongs to the worker's connection; nil: each attempt that makes changes waits for its first heartbeat.
	Tasks *Tasks
	// Commands is where checks and extensions run, and resolves references to secrets in this worker.
	Commands custom.Worker
	// Roots are the directories of applications on this worker.
	Roots Roots
	// Sops are the keys of this worker for data that SOPS encrypted. Nil: none.
	Sops *sops.Keys
	// Payloads is the codec of the client. Nil: no encryption.
	Payloads *codec.Codec
	// ClockOffset returns how far the clock of this worker is ahead of the server's, negative if it is behind. Nil: it is not measured.
	ClockOffset func() time.Duration
	// Metrics counts the work of this worker. New sets it to discard.
	Metrics client.MetricsHandler

	hints     *hints
	issuers   issuers       // keys of recently used token issuers
	schedules scheduleCache // recent schedules of checks that had news

	pauses             ttlCache[[]protocol.ScopePause]      // active pauses, by application and runtime
	runtimeDefinitions ttlCache[entities.RuntimeDefinition] // newest declarations of runtimes, by name
	publishedDirs      ttlCache[string]                     // directories that applications were published from, by application
	configProgress     ttlCache[[]protocol.Configured]      // progress of configuration changes, by application and incarnation
	plans              ttlCache[planned]                    // plans that run or are waited for, by digest of their inputs
	newestManifests    ttlCache[numberedManifest]           // incarnations, by application
	newestHashes       ttlCache[string]                     // hashes of the newest incarnations, by application
	addonsByHash       ttlCache[addons]                     // by hash of the incarnation
	planFollowers      planFollowers                        // plans that this worker follows
	prepareRate        recentRate
	latencies          latencyTracker

	readingSlots keyedSemaphore // by application and runtime
	checkSlots   keyedSemaphore // by application
	writes       writeLimit

	mu             sync.Mutex
	connections    map[string]connection    // by runtime and digest of its definition
	runningApplies map[string]chan struct{} // running applies, by instance or extension; closed at their end
}

// New creates activities. Close ends their background work.
func New(store *store.Store, c client.Client, factories map[entities.RuntimeKind]Factory) *Activities {
	a := &Activities{
		Store: store, Client: c, Factories: factories, Metrics: client.MetricsNopHandler,
		readingSlots: keyedSemaphore{total: maxReadings, perKey: maxRuntimeReadings}, checkSlots: keyedSemaphore{total: maxChecks, perKey: maxApplicationChecks},
	}
	a.hints = newHints(a)
	a.hints.clockOffset = a.clockOffset
	return a
}

// Close stops the processing of hints from runtimes.
func (a *Activities) Close() {
	a.hints.stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, conn := range a.connections {
		if conn.stop != nil {
			conn.stop()
		}
	}
	a.connections = nil
}

// connection is a runtime ready for use, with its definition.
type connection struct {
	runtimes.Runtime
	definition entities.RuntimeDefinition
	sendsHints bool   // it reports changes (runtimes.Watcher)
	hasCache   bool   // it has a cache of the watched state (runtimes.Mirror)
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
		definition, err = a.withLocalDir(ctx, definition)
	}
	if err != nil {
		return connection{}, fmt.Errorf("runtime %s: %w", name, err)
	}
	key := name + "/" + digest + "/" + definition.Dir
	a.mu.Lock()
	conn, ok := a.connections[key]
	a.mu.Unlock()
	if ok {
		return conn, nil
	}
	factory, ok := a.Factories[definition.Kind]
	if !ok {
		return connection{}, fmt.Errorf("runtime %s: this worker has no runtimes of kind %q", name, definition.Kind)
	}
	runtime, err := factory(definition)
	if err != nil {
		return connection{}, fmt.Errorf("runtime %s: %w", name, err)
	}
	conn = connection{Runtime: runtime, definition: definition}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.connections == nil {
		a.connections = map[string]connection{}
	}
	if existing, ok := a.connections[key]; ok { // another activity created it in the meantime
		return existing, nil
	}
	if w, ok := runtime.(runtimes.Watcher); ok {
		conn.stop = w.Watch(func(owner runtimes.Owner) { a.hints.hint(owner, name) })
		conn.sendsHints = conn.stop != nil
		_, mirror := runtime.(runtimes.Mirror)
		conn.hasCache = conn.sendsHints && mirror
	}
	a.connections[key] = conn
	return conn, nil
}

// instance reads the data that a runtime gets of an instance, including the objects of a bundle. Without a payload digest nothing was
// ever applied there. With keepUnresolved, references to values that no extension reported stay unchanged.
func (a *Activities) instance(ctx context.Context, in runtimes.Request, payload string, keepUnresolved bool) (runtimes.Request, error) {
	in.Installation = a.Installation
	if payload == "" {
		return in, nil
	}
	p, err := a.payload(ctx, in, payload)
	if err != nil {
		return in, fmt.Errorf("payload of %s: %w", in.Owner, err)
	}
	f := a.versionFiller(in.Application, in.Service, in.ID.Channel, in.FullVersion)
	f.keepUnresolved = keepUnresolved
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
func (a *Activities) payload(ctx context.Context, in runtimes.Request, digest string) (entities.Payload, error) {
	p, readErr := a.Store.Payload(ctx, digest)
	if !store.IsDamaged(readErr) && !store.IsNotFound(readErr) {
		return p, readErr
	}
	record, err := a.Store.Version(ctx, in.Application, in.Service, in.FullVersion)
	if store.IsNotFound(err) {
		name, _ := entities.SplitVersion(in.FullVersion)
		return p, fmt.Errorf("%w; to render it again, release the version again: converge release %s/%s %s", readErr, in.Application, in.Service, ordering.BaseVersion(name))
	}
	if err != nil {
		return p, readErr
	}
	rendered, err := a.render(ctx, protocol.PrepareRequest{Service: in.Service}, []entities.InstanceID{in.ID}, record)
	if err != nil || entities.DigestOf(rendered[in.ID]) != digest {
		return p, readErr
	}
	if _, err := a.Store.PutPayload(ctx, rendered[in.ID]); err != nil && !store.IsReadOnly(err) {
		return p, err
	}
	return rendered[in.ID], nil
}

// observe takes one reading, limited in time and size. It never fails: errors are in the reading. It abandons a runtime that ignores its
// deadline.
func (c connection) observe(ctx context.Context, in runtimes.Request, timeout time.Duration) (entities.Reading, runtimes.Output) {
	type result struct {
		objects []entities.Object
		output  runtimes.Output
		err     error
	}
	r, ok := callWithGrace(ctx, timeout, observeGrace, func(ctx context.Context) (r result) {
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

// callWithGrace makes the call. It abandons the call if it ignores its deadline and runs longer than the grace after it. During the grace a
// call that noticed the deadline can still return its reason.
func callWithGrace[T any](ctx context.Context, limit, grace time.Duration, call func(context.Context) T) (out T, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- call(ctx) }()
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

// observeGrace is the grace of an observation after its deadline.
const observeGrace = 10 * time.Second

// maxError limits, in bytes, the text of an error in workflow state.
const maxError = 1000

// clipError is the text of an error for workflow state: its subjects, causes and remedies.
func clipError(err error) string { return runtimes.ClipMessage(err.Error(), maxError) }

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
	bounded.Message = runtimes.ClipMessage(bounded.Message, maxError)
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
