package activities

import (
	"context"
	"reflect"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// This file stores the state that workflows know of watched instances. A worker that starts, or that replaces another one, finds the
// changes that happened in between. A worker can also follow hints for an instance that another worker observes. Asking the workflow
// instead would write history.

// takeOverInterval is the time between two checks of a worker that starts.
const takeOverInterval = 5 * time.Millisecond

// records store the state that workflows know, for the workers of a runtime's queue.
type records interface {
	put(context.Context, runtimes.Owner, protocol.WatchedInstance) error
	// get returns nil if there is no record.
	get(context.Context, runtimes.Owner) (*protocol.WatchedInstance, error)
	remove(context.Context, runtimes.Owner) error
	owners(context.Context) ([]runtimes.Owner, error)
	// putHeartbeat writes the presence record of a worker; heartbeats returns those of all workers of the queue.
	putHeartbeat(ctx context.Context, worker string, b store.Heartbeat) error
	heartbeats(context.Context) (map[string]store.Heartbeat, error)
	removeHeartbeat(ctx context.Context, worker string) error
	// monitorHeartbeats returns the presence records of the workers of the common queue, which monitor the workers of remote runtimes.
	monitorHeartbeats(context.Context) (map[string]store.Heartbeat, error)
}

// recordState is the state of an instance's record in the store.
type recordState struct {
	stored  *protocol.WatchedInstance // the stored record; nil: not known
	writing bool
}

// record returns the record of an observation, without the parts that vary between readings and do not affect a decision.
func (o *observed) record() protocol.WatchedInstance {
	r, ref := o.request, o.ref
	if !isPolled(r) {
		r.Interval = 0
	}
	r.Instances = []protocol.InstanceRef{ref}
	return protocol.WatchedInstance{Request: r, Summary: o.shape}
}

// storeRecord writes the state that the workflow knows to the store. A failed write is repeated with the next one. The caller holds h.mu.
func (h *hints) storeRecord(owner runtimes.Owner, i *trackedInstance) {
	if i.known == nil || i.storedRecord.writing || h.stopped {
		return
	}
	record := i.known.record()
	if i.storedRecord.stored != nil && reflect.DeepEqual(*i.storedRecord.stored, record) {
		return
	}
	i.storedRecord.writing = true
	h.writes.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), wakeTimeout)
		defer cancel()
		err := h.records.put(ctx, owner, record)
		h.mu.Lock()
		defer h.mu.Unlock()
		i.storedRecord = recordState{}
		if err == nil {
			i.storedRecord.stored = &record
			h.polling.gossip.add(owner)
			h.storeRecord(owner, i)
		}
	})
}

// loadRecord returns the state that the workflow knows from another worker, or nil if there is no record.
func (h *hints) loadRecord(owner runtimes.Owner, i *trackedInstance, generation int) (*observed, error) {
	w, err := h.records.get(h.ctx, owner)
	if err != nil {
		return nil, err
	}
	h.ifCurrent(i, generation, func() {
		if i.remoteReads == 0 || !reflect.DeepEqual(i.storedRecord.stored, w) { // another worker observes it
			i.remoteReads = 1
		}
		i.storedRecord.stored = w
	})
	if w == nil {
		return nil, nil
	}
	found := &observed{request: w.Request, ref: w.Request.Instances[0], shape: w.Summary}
	found.request.Instances = nil
	return found, nil
}

// forget is called when an instance is about to be removed, so that its removal wakes no workflow.
func (h *hints) forget(ctx context.Context, owner runtimes.Owner) {
	h.begin(owner) // no settle takes effect until it is observed again
	h.mu.Lock()
	i := h.tracked(owner)
	i.storedRecord.stored, i.removedAt = nil, time.Now()
	h.mu.Unlock()
	_ = h.records.remove(ctx, owner) // a record that remains costs one reading
	h.polling.gossip.add(owner)      // or another worker would assume that it exists
}

// takeOver checks once each instance that is known to the workers of this queue and was not observed here yet. The worker that knew of
// a change may be gone.
func (h *hints) takeOver() {
	var owners []runtimes.Owner
	for wait := h.gap; ; wait = min(2*wait, maxHintGap) {
		var err error
		if owners, err = h.records.owners(h.ctx); err == nil {
			break
		}
		if sleep(h.ctx, wait) != nil {
			return
		}
	}
	for _, owner := range owners {
		h.mu.Lock()
		if h.instances[owner] == nil {
			i := h.tracked(owner)
			i.hinted = true
			h.follow(owner, i, "")
		}
		h.mu.Unlock()
		if sleep(h.ctx, takeOverInterval) != nil {
			return
		}
	}
}

// TakeOver starts the check of instances that other workers watched and the polling of this worker's share of the steady ones. It is
// called once the worker serves.
func (a *Activities) TakeOver() {
	records := (*storeRecords)(a)
	if a.Runtime == "" {
		a.hints.polling.monitor = &remoteWorkerMonitor{records: records, wake: a.wake, isMine: a.hints.polling.peers.isMine}
	} else {
		a.hints.requireMonitors()
	}
	go a.hints.runPolling()
}

// storeRecords stores the records by the queue of this worker.
type storeRecords Activities

func (a *storeRecords) queue() string {
	if a.Runtime == "" {
		return protocol.TaskQueue
	}
	return protocol.RuntimeTaskQueue(a.Runtime)
}

func (a *storeRecords) put(ctx context.Context, owner runtimes.Owner, w protocol.WatchedInstance) error {
	return a.Store.PutWatched(ctx, a.queue(), owner.Key(), w)
}

func (a *storeRecords) get(ctx context.Context, owner runtimes.Owner) (*protocol.WatchedInstance, error) {
	w, err := a.Store.Watched(ctx, a.queue(), owner.Key())
	if store.IsNotFound(err) || err == nil && ownerOf(w.Request, w.Request.Instances[0].ID) != owner {
		return nil, nil
	}
	return &w, err
}

func (a *storeRecords) remove(ctx context.Context, owner runtimes.Owner) error {
	return a.Store.RemoveWatched(ctx, a.queue(), owner.Key())
}

func (a *storeRecords) owners(ctx context.Context) ([]runtimes.Owner, error) {
	return a.recordedOwners(ctx, a.queue())
}

// recordedOwners lists the instances with a record of the workers of a queue.
func (a *storeRecords) recordedOwners(ctx context.Context, queue string) ([]runtimes.Owner, error) {
	keys, err := a.Store.WatchedInstances(ctx, queue)
	var owners []runtimes.Owner
	for _, key := range keys {
		owners = append(owners, ownerOfKey(key))
	}
	return owners, err
}
