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

// This file has somebody notice that a remote runtime has no worker any more (F9). What is steady there its own workers read, and who is
// gone says nothing; so workers of the common queue, its guards, look at what these say of themselves. What the last of them said stays in
// the store until the services concerned were woken, whoever is restarted meanwhile. A remote worker that no guard looks after leaves
// readings to the server.

// guard looks after the workers of remote runtimes.
type guard struct {
	records remotes
	wake    func(ctx context.Context, owner runtimes.Owner, runtime string) error
	mine    func(runtimes.Owner) bool      // of the workers of this queue, who sees to something
	heard   map[string]map[string]sighting // of their workers, by runtime
	told    map[string]map[runtimes.Owner]bool
}

// remotes are what workers of remote runtimes keep.
type remotes interface {
	// remote is what they say of themselves, by runtime and by what they call themselves.
	remote(context.Context) (map[string]map[string]store.Beat, error)
	// on lists what is known to those of a runtime.
	on(ctx context.Context, runtime string) ([]runtimes.Owner, error)
	// over forgets what one said.
	over(ctx context.Context, runtime, worker string) error
}

// look wakes the services on runtimes whose workers have all said nothing new for so long: they find out for themselves that nobody is there.
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

// tell wakes the services on a runtime, and then forgets what its workers said last. Whoever could not be woken is tried again, and nobody is woken
// twice for that. A worker that has come back meanwhile is believed.
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
		owner.ID.Name = "" // services are woken by the channel
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

// guards are the workers of the common queue that look after this one, which is of a remote runtime.
type guards struct {
	heard map[string]sighting
	until time.Time // that they are relied on
}

// guarded makes this worker one of a remote runtime, whose readings count while it is looked after.
func (h *hints) guarded() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rounds.guards = &guards{}
}

// heardOf takes in what the workers of the common queue say of themselves.
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
