package activities

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// This file detects that a remote runtime has no worker any more (F9). Steady instances there are polled by the runtime's own workers,
// which cannot report their own end. So workers of the common queue, the guards, monitor the presence records of these workers. The last
// record stays in the store until the affected services were woken, so a restart loses nothing. If no guard monitors a remote worker, the
// server polls instead.

// guard monitors the workers of remote runtimes.
type guard struct {
	records remotes
	wake    func(ctx context.Context, owner runtimes.Owner, runtime string) error
	mine    func(runtimes.Owner) bool      // whether a task is assigned to this worker of the queue
	heard   map[string]map[string]sighting // last beats of the remote workers, by runtime
	told    map[string]map[runtimes.Owner]bool
}

// remotes are the records of the workers of remote runtimes.
type remotes interface {
	// remote returns their presence records, by runtime and by the name that a worker gives itself.
	remote(context.Context) (map[string]map[string]store.Beat, error)
	// on lists the instances with a record of the workers of a runtime.
	on(ctx context.Context, runtime string) ([]runtimes.Owner, error)
	// over removes the presence record of a worker.
	over(ctx context.Context, runtime, worker string) error
}

// look wakes the services on runtimes whose workers have all been silent for that time. The services then find that no worker takes their
// tasks.
func (g *guard) look(ctx context.Context, silent time.Duration) error {
	said, err := g.records.remote(ctx)
	if err != nil {
		return err
	}
	heard, now := map[string]map[string]sighting{}, time.Now()
	var failed []error
	for runtime, beats := range said {
		heard[runtime] = map[string]sighting{}
		there := false
		for worker, b := range beats {
			s := g.heard[runtime][worker].with(b, now)
			heard[runtime][worker], there = s, there || now.Sub(s.at) < silent
		}
		if there {
			delete(g.told, runtime)
		}
		if !there && g.mine(runtimes.Owner{Application: runtime}) {
			failed = append(failed, g.tell(ctx, runtime, beats))
		}
	}
	g.heard = heard
	return errors.Join(failed...)
}

// tell wakes the services on a runtime and then removes the last presence records of its workers. A failed wake is retried, without
// waking the others twice. The record of a worker that has come back in the meantime stays.
func (g *guard) tell(ctx context.Context, runtime string, last map[string]store.Beat) error {
	owners, err := g.records.on(ctx, runtime)
	if err != nil {
		return err
	}
	if g.told == nil {
		g.told = map[string]map[runtimes.Owner]bool{}
	}
	if g.told[runtime] == nil {
		g.told[runtime] = map[runtimes.Owner]bool{}
	}
	told, failed := g.told[runtime], error(nil)
	for _, owner := range owners {
		owner.ID.Name = "" // the wake-up signal addresses the channel, not the instance
		if told[owner] {
			continue
		}
		if err := g.wake(ctx, owner, runtime); err != nil && !errors.Is(err, errNobody) {
			failed = err
			continue
		}
		told[owner] = true
		if err := pauseFor(ctx, takeOverPace); err != nil {
			return err
		}
	}
	now, err := g.records.remote(ctx)
	if err = cmp.Or(failed, err); err != nil {
		return err
	}
	delete(g.told, runtime)
	for worker, b := range last {
		if now[runtime][worker].Number == b.Number {
			err = errors.Join(err, g.records.over(ctx, runtime, worker))
		}
	}
	return err
}

// guards are the workers of the common queue that monitor this worker of a remote runtime.
type guards struct {
	heard map[string]sighting
	until time.Time // they are relied on until then
}

// guarded marks this worker as one of a remote runtime. The server relies on its polling only while it is monitored.
func (h *hints) guarded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rounds.guards = &guards{}
}

// heardOf processes the presence records of the workers of the common queue.
func (g *guards) heardOf(beats map[string]store.Beat, now time.Time, silent time.Duration) {
	heard := map[string]sighting{}
	for worker, b := range beats {
		heard[worker] = g.heard[worker].with(b, now)
		if now.Sub(heard[worker].at) < silent {
			g.until = now.Add(silent)
		}
	}
	g.heard = heard
}

func (a *watchedRecords) guards(ctx context.Context) (map[string]store.Beat, error) {
	return a.Store.Beats(ctx, protocol.TaskQueue)
}

func (a *watchedRecords) remote(ctx context.Context) (map[string]map[string]store.Beat, error) {
	return a.Store.RemoteBeats(ctx)
}

func (a *watchedRecords) on(ctx context.Context, runtime string) ([]runtimes.Owner, error) {
	return a.knownTo(ctx, protocol.RuntimeTaskQueue(runtime))
}

func (a *watchedRecords) over(ctx context.Context, runtime, worker string) error {
	return a.Store.RemoveBeat(ctx, protocol.RuntimeTaskQueue(runtime), worker)
}
