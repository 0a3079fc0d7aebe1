// Package fake is a runtime in memory, for tests and for `converge simulate`. It obeys at once
// unless a test scripts it otherwise: applies that show after some readings, fail or hang, readings
// that fail or hang, state changed by hand. It counts and records everything that it is asked, and
// notices two applies of one instance that overlap in time, which must never happen.
//
// It keeps no clock of its own: times come from the clock that New is given. It may import
// entities and runtimes only.
package fake

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
	instances map[string]*Instance
	log       []Apply
	overlaps  []string
	changed   chan struct{} // closed, and made anew, at every change: what Await waits for
}

var (
	_ runtimes.Runtime = (*Runtime)(nil)
	_ runtimes.Remover = (*Runtime)(nil)

	_ runtimes.RemovalPlanner = (*Runtime)(nil)
)

// New makes a runtime where nothing runs yet. A nil clock is time.Now.
func New(clock func() time.Time) *Runtime {
	if clock == nil {
		clock = time.Now
	}
	return &Runtime{clock: clock, instances: map[string]*Instance{}, changed: make(chan struct{})}
}

// Apply is one call of Apply, as it went.
type Apply struct {
	Instance string // application/service/instance
	Version  string // full version
	Payload  string // digest
	Key      string
	Restart  bool
	Started  time.Time
	Ended    time.Time // zero while it runs
	Err      string    // empty when it succeeded, or while it runs
}

// At returns the instance of that name, made on first use. The instance is named as people read
// it: "prod", or "prod/eu-3" in a fleet.
func (r *Runtime) At(application, service, instance string) *Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := application + "/" + service + "/" + instance
	p := r.instances[name]
	if p == nil {
		p = &Instance{rt: r, name: name, broken: map[string]string{}}
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

// Overlaps names every apply that started while another one of the same instance was running.
// Anything but empty is a broken engine (A7: at most one at a time).
func (r *Runtime) Overlaps() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.overlaps...)
}

// Await returns nil once done reports true. It asks again after everything that happens to the
// fake, so that a test needs no sleep. It fails when ctx ends first.
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

// touch wakes those who wait, because something changed; r.mu is held.
func (r *Runtime) touch() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Observe implements runtimes.Runtime.
func (r *Runtime) Observe(ctx context.Context, in runtimes.Instance) ([]entities.Object, error) {
	p := r.At(in.Application, in.Service, in.ID.String())
	if err := p.hang(ctx, &p.readGate, func() { p.readings++ }); err != nil {
		return nil, ended(err, p.name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.touch()
	if err := p.failReading(); err != nil {
		return nil, err
	}
	return p.observe(in.Service), nil
}

// Apply implements runtimes.Runtime.
func (r *Runtime) Apply(ctx context.Context, in runtimes.Instance) (runtimes.Output, error) {
	p := r.At(in.Application, in.Service, in.ID.String())
	started := r.clock()
	entry := 0
	err := p.hang(ctx, &p.applyGate, func() { entry = p.begin(in, started) })
	if err != nil {
		err = fmt.Errorf("apply %s to %s: %w", in.FullVersion, p.name, err)
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.touch()
	if err == nil {
		err = p.failApply(in.FullVersion)
	}
	out := runtimes.Output{Command: "fake apply " + in.FullVersion, Started: started, Duration: r.clock().Sub(started)}
	if err != nil {
		out.ExitCode, out.Stderr = 1, err.Error()
	} else {
		p.applied(in.FullVersion)
		p.payload = in.Payload
	}
	p.end(entry, err)
	return out, err
}

// Remove implements runtimes.Remover. A gate that holds applies holds removals too.
func (r *Runtime) Remove(ctx context.Context, in runtimes.Instance) error {
	p := r.At(in.Application, in.Service, in.ID.String())
	if err := p.hang(ctx, &p.applyGate, p.beginRemoval); err != nil {
		return fmt.Errorf("remove %s: %w", p.name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.touch()
	return p.remove()
}

// ended turns the end of an observation's context into the error that a real runtime would give.
func ended(err error, instance string) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return &entities.ReadingError{Code: runtimes.CodeTimeout, Message: "observe " + instance + ": timed out"}
	}
	return fmt.Errorf("observe %s: %w", instance, err)
}
