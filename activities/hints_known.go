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

// takeOverPace is the time between two looks of a worker that starts.
const takeOverPace = 5 * time.Millisecond

// records store the state that workflows know, for the workers of a runtime's queue.
type records interface {
	put(context.Context, runtimes.Owner, protocol.Watched) error
	// get returns nil if there is no record.
	get(context.Context, runtimes.Owner) (*protocol.Watched, error)
	remove(context.Context, runtimes.Owner) error
	all(context.Context) ([]runtimes.Owner, error)
	// beat writes the presence record of a worker; beats returns those of all workers of the queue.
	beat(ctx context.Context, worker string, b store.Beat) error
	beats(context.Context) (map[string]store.Beat, error)
	leave(ctx context.Context, worker string) error
	// guards returns the presence records of the workers of the common queue, which monitor the workers of remote runtimes.
	guards(context.Context) (map[string]store.Beat, error)
}

// keeping is the state of an instance's record in the store.
type keeping struct {
	stands  *protocol.Watched // the stored record; nil: not known
	writing bool
}

// record returns the record of an observation, without the parts that vary between readings and do not affect a decision.
func (o *observed) record() protocol.Watched {
	r, ref := o.request, o.ref
	if !rests(r) {
		r.Interval = 0
	}
	r.Instances = []protocol.InstanceRef{ref}
	return protocol.Watched{Request: r, Seen: o.shape}
}

// keep writes the state that the workflow knows to the store. A failed write is repeated with the next one. The caller holds h.mu.
func (h *hints) keep(owner runtimes.Owner, i *interest) {
	if i.known == nil || i.kept.writing || h.ended {
		return
	}
	record := i.known.record()
	if i.kept.stands != nil && reflect.DeepEqual(*i.kept.stands, record) {
		return
	}
	i.kept.writing = true
	h.writes.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), wakeTimeout)
		defer cancel()
		err := h.records.put(ctx, owner, record)
		h.mu.Lock()
		defer h.mu.Unlock()
		i.kept = keeping{}
		if err == nil {
			i.kept.stands = &record
			h.rounds.told.add(owner)
			h.keep(owner, i)
		}
	})
}

// recall returns the state that the workflow knows from another worker, or nil if there is no record.
func (h *hints) recall(owner runtimes.Owner, i *interest, turn int) (*observed, error) {
	w, err := h.records.get(h.ctx, owner)
	if err != nil {
		return nil, err
	}
	h.still(i, turn, func() {
		if i.looks == 0 || !reflect.DeepEqual(i.kept.stands, w) { // another worker observes it
			i.looks = 1
		}
		i.kept.stands = w
	})
	if w == nil {
		return nil, nil
	}
	found := &observed{request: w.Request, ref: w.Request.Instances[0], shape: w.Seen}
	found.request.Instances = nil
	return found, nil
}

// forget is called when an instance is about to be removed, so that its removal wakes no workflow.
func (h *hints) forget(ctx context.Context, owner runtimes.Owner) {
	h.begin(owner) // no settle takes effect until it is observed again
	h.mu.Lock()
	i := h.of(owner)
	i.kept.stands, i.gone = nil, time.Now()
	h.mu.Unlock()
	_ = h.records.remove(ctx, owner) // a record that remains costs one reading
	h.rounds.told.add(owner)         // or another worker would assume that it exists
}

// takeOver looks once at each instance that is known to the workers of this queue and was not observed here yet. The worker that knew of
// a change may be gone.
func (h *hints) takeOver() {
	var owners []runtimes.Owner
	for wait := h.gap; ; wait = min(2*wait, lastHintGap) {
		var err error
		if owners, err = h.records.all(h.ctx); err == nil {
			break
		}
		if pauseFor(h.ctx, wait) != nil {
			return
		}
	}
	for _, owner := range owners {
		h.mu.Lock()
		if h.owners[owner] == nil {
			i := h.of(owner)
			i.hinted = true
			h.follow(owner, i, "")
		}
		h.mu.Unlock()
		if pauseFor(h.ctx, takeOverPace) != nil {
			return
		}
	}
}

// TakeOver starts the look at instances that other workers watched and the polling of this worker's share of the steady ones. It is
// called once the worker serves.
func (a *Activities) TakeOver() {
	records := (*watchedRecords)(a)
	if a.Runtime == "" {
		a.hints.rounds.guard = &guard{records: records, wake: a.wake, mine: a.hints.rounds.peers.mine}
	} else {
		a.hints.guarded()
	}
	go a.hints.goRounds()
}

// watchedRecords stores the records by the queue of this worker.
type watchedRecords Activities

func (a *watchedRecords) queue() string {
	if a.Runtime == "" {
		return protocol.TaskQueue
	}
	return protocol.RuntimeTaskQueue(a.Runtime)
}

func (a *watchedRecords) put(ctx context.Context, owner runtimes.Owner, w protocol.Watched) error {
	return a.Store.PutWatched(ctx, a.queue(), owner.Key(), w)
}

func (a *watchedRecords) get(ctx context.Context, owner runtimes.Owner) (*protocol.Watched, error) {
	w, err := a.Store.Watched(ctx, a.queue(), owner.Key())
	if store.IsNotFound(err) || err == nil && ownerOf(w.Request, w.Request.Instances[0].ID) != owner {
		return nil, nil
	}
	return &w, err
}

func (a *watchedRecords) remove(ctx context.Context, owner runtimes.Owner) error {
	return a.Store.RemoveWatched(ctx, a.queue(), owner.Key())
}

func (a *watchedRecords) all(ctx context.Context) ([]runtimes.Owner, error) {
	return a.knownTo(ctx, a.queue())
}

// knownTo lists the instances with a record of the workers of a queue.
func (a *watchedRecords) knownTo(ctx context.Context, queue string) ([]runtimes.Owner, error) {
	keys, err := a.Store.WatchedBy(ctx, queue)
	var owners []runtimes.Owner
	for _, key := range keys {
		owners = append(owners, ownerOfKey(key))
	}
	return owners, err
}
