// Package fakeruntime is a runtime in memory, for tests. Its applies take effect at once, unless a test scripts
// it otherwise: applies that take some readings, fail or hang, readings that fail or hang, state changed by hand. It counts and
// records every call, and detects two applies of one instance that overlap in time, which must never happen.
//
// It has no clock of its own: times come from the clock that is passed to New. It may import entities and runtimes only.
package fakeruntime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Runtime is the fake. All its methods, and those of its instances, are safe for concurrent use.
type Runtime struct {
	clock func() time.Time

	mu        sync.Mutex
	instances map[string]*ScriptedInstance
	log       []Apply
	overlaps  []string
	changed   chan struct{} // closed and replaced at every change: Await waits for it
}

var (
	_ runtimes.Runtime = (*Runtime)(nil)
	_ runtimes.Remover = (*Runtime)(nil)

	_ runtimes.RemovalPlanner = (*Runtime)(nil)
)

// New makes a runtime on which nothing runs yet. A nil clock is time.Now.
func New(clock func() time.Time) *Runtime {
	if clock == nil {
		clock = time.Now
	}
	return &Runtime{clock: clock, instances: map[string]*ScriptedInstance{}, changed: make(chan struct{})}
}

// Apply is the record of one call of Apply.
type Apply struct {
	Instance string // application/service/instance
	Version  string // full version
	Payload  string // digest
	Key      string
	Restart  bool
	Started  time.Time
	Ended    time.Time // zero while it runs
	Err      string    // empty after a success, or while it runs
}

// At returns the instance of that name, made at its first use. The name is that for people: "prod", or "prod/eu-3" in a fleet.
func (r *Runtime) At(application, service, instance string) *ScriptedInstance {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := application + "/" + service + "/" + instance
	p := r.instances[name]
	if p == nil {
		p = &ScriptedInstance{rt: r, name: name, broken: map[string]string{}}
		r.instances[name] = p
	}
	return p
}

// Applies returns the log of all applies in the order in which they started.
func (r *Runtime) Applies() []Apply {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Apply(nil), r.log...)
}

// Overlaps names every apply that started while another one of the same instance was running. If it is not empty, the engine is
// broken (A7: at most one at a time).
func (r *Runtime) Overlaps() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.overlaps...)
}

// Await returns nil once done reports true. It calls done after every event of the fake, so that a test needs no sleep. It fails
// when ctx ends first.
func (r *Runtime) Await(ctx context.Context, done func() bool) error {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notifyChanged wakes the waiting callers after a change; r.mu is held.
func (r *Runtime) notifyChanged() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Observe implements runtimes.Runtime.
func (r *Runtime) Observe(ctx context.Context, in runtimes.Request) ([]entities.Object, error) {
	p := r.At(in.Application, in.Service, in.ID.String())
	if err := p.hang(ctx, &p.readGate, func() { p.readings++ }); err != nil {
		return nil, observeError(err, p.name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.notifyChanged()
	if err := p.failReading(); err != nil {
		return nil, err
	}
	return p.observe(in.Service), nil
}

// Apply implements runtimes.Runtime.
func (r *Runtime) Apply(ctx context.Context, in runtimes.Request) (runtimes.Output, error) {
	p := r.At(in.Application, in.Service, in.ID.String())
	started := r.clock()
	entry := 0
	err := p.hang(ctx, &p.applyGate, func() { entry = p.begin(in, started) })
	if err != nil {
		err = fmt.Errorf("apply %s to %s: %w", in.FullVersion, p.name, err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.notifyChanged()
	if err == nil {
		err = p.failApply(in.FullVersion)
	}
	out := runtimes.Output{Command: "fake apply " + in.FullVersion, Started: started, Duration: r.clock().Sub(started)}
	if err != nil {
		out.ExitCode, out.Stderr = 1, err.Error()
	} else {
		p.startMove(in.FullVersion)
		p.payload = in.Payload
	}
	p.end(entry, err)
	return out, err
}

// Remove implements runtimes.Remover. A gate that holds applies holds removals too.
func (r *Runtime) Remove(ctx context.Context, in runtimes.Request) error {
	p := r.At(in.Application, in.Service, in.ID.String())
	if err := p.hang(ctx, &p.applyGate, p.beginRemoval); err != nil {
		return fmt.Errorf("remove %s: %w", p.name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.notifyChanged()
	return p.remove()
}

// observeError converts the end of an observation's context to the error of a real runtime.
func observeError(err error, instance string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &entities.ReadingError{Code: runtimes.CodeTimeout, Message: "observe " + instance + ": timed out", NoAnswer: true}
	}
	return fmt.Errorf("observe %s: %w", instance, err)
}
