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
// which cannot report their own end. So workers of the common queue monitor the presence records of these workers. The last
// record stays in the store until the affected services were woken, so a restart loses nothing. If nothing monitors a remote worker, the
// server polls instead.

// remoteWorkerMonitor monitors the workers of remote runtimes.
type remoteWorkerMonitor struct {
	records  remoteRecords
	wake     func(ctx context.Context, owner runtimes.Owner, runtime string) error
	isMine   func(runtimes.Owner) bool      // whether a task is assigned to this worker of the queue
	lastSeen map[string]map[string]sighting // last heartbeats of the remote workers, by runtime
	woken    map[string]map[runtimes.Owner]bool
}

// remoteRecords are the records of the workers of remote runtimes.
type remoteRecords interface {
	// remoteHeartbeats returns their presence records, by runtime and by the name that a worker gives itself.
	remoteHeartbeats(context.Context) (map[string]map[string]store.Heartbeat, error)
	// ownersOn lists the instances with a record of the workers of a runtime.
	ownersOn(ctx context.Context, runtime string) ([]runtimes.Owner, error)
	// removeRemoteHeartbeat removes the presence record of a worker.
	removeRemoteHeartbeat(ctx context.Context, runtime, worker string) error
}

// check wakes the services on runtimes whose workers have all been silent for the timeout. The services then find that no worker takes
// their tasks.
func (g *remoteWorkerMonitor) check(ctx context.Context, timeout time.Duration) error {
	heartbeats, err := g.records.remoteHeartbeats(ctx)
	if err != nil {
		return err
	}
	seen, now := map[string]map[string]sighting{}, time.Now()
	var failed []error
	for runtime, workers := range heartbeats {
		seen[runtime] = map[string]sighting{}
		alive := false
		for worker, b := range workers {
			s := g.lastSeen[runtime][worker].updated(b, now)
			seen[runtime][worker], alive = s, alive || now.Sub(s.at) < timeout
		}
		if alive {
			delete(g.woken, runtime)
		}
		if !alive && g.isMine(runtimes.Owner{Application: runtime}) {
			failed = append(failed, g.wakeServices(ctx, runtime, workers))
		}
	}
	g.lastSeen = seen
	return errors.Join(failed...)
}

// wakeServices wakes the services on a runtime and then removes the last presence records of its workers. A failed wake is retried, without
// waking the others twice. The record of a worker that has come back in the meantime stays.
func (g *remoteWorkerMonitor) wakeServices(ctx context.Context, runtime string, last map[string]store.Heartbeat) error {
	owners, err := g.records.ownersOn(ctx, runtime)
	if err != nil {
		return err
	}
	if g.woken == nil {
		g.woken = map[string]map[runtimes.Owner]bool{}
	}
	if g.woken[runtime] == nil {
		g.woken[runtime] = map[runtimes.Owner]bool{}
	}
	woken, failed := g.woken[runtime], error(nil)
	for _, owner := range owners {
		owner.ID.Name = "" // the wake-up signal addresses the channel, not the instance
		if woken[owner] {
			continue
		}
		if err := g.wake(ctx, owner, runtime); err != nil && !errors.Is(err, errServiceGone) {
			failed = err
			continue
		}
		woken[owner] = true
		if err := sleep(ctx, takeOverInterval); err != nil {
			return err
		}
	}
	current, err := g.records.remoteHeartbeats(ctx)
	if err = cmp.Or(failed, err); err != nil {
		return err
	}
	delete(g.woken, runtime)
	for worker, b := range last {
		if current[runtime][worker].Number == b.Number {
			err = errors.Join(err, g.records.removeRemoteHeartbeat(ctx, runtime, worker))
		}
	}
	return err
}

// remoteWorkerMonitors are the workers of the common queue that monitor this worker of a remote runtime.
type remoteWorkerMonitors struct {
	lastSeen      map[string]sighting
	reliableUntil time.Time // they are relied on until then
}

// requireMonitors marks this worker as one of a remote runtime. The server relies on its polling only while it is monitored.
func (h *hints) requireMonitors() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.polling.monitors = &remoteWorkerMonitors{}
}

// update processes the presence records of the workers of the common queue.
func (g *remoteWorkerMonitors) update(heartbeats map[string]store.Heartbeat, now time.Time, timeout time.Duration) {
	seen := map[string]sighting{}
	for worker, b := range heartbeats {
		seen[worker] = g.lastSeen[worker].updated(b, now)
		if now.Sub(seen[worker].at) < timeout {
			g.reliableUntil = now.Add(timeout)
		}
	}
	g.lastSeen = seen
}

func (a *storeRecords) monitorHeartbeats(ctx context.Context) (map[string]store.Heartbeat, error) {
	return a.Store.Heartbeats(ctx, protocol.TaskQueue)
}

func (a *storeRecords) remoteHeartbeats(ctx context.Context) (map[string]map[string]store.Heartbeat, error) {
	return a.Store.RemoteHeartbeats(ctx)
}

func (a *storeRecords) ownersOn(ctx context.Context, runtime string) ([]runtimes.Owner, error) {
	return a.recordedOwners(ctx, protocol.RuntimeTaskQueue(runtime))
}

func (a *storeRecords) removeRemoteHeartbeat(ctx context.Context, runtime, worker string) error {
	return a.Store.RemoveHeartbeat(ctx, protocol.RuntimeTaskQueue(runtime), worker)
}
