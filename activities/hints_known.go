package activities

import (
	"context"
	"reflect"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// This file keeps what workflows know of watched instances in the store. So a worker that starts, or that takes over from
// one that is gone, finds what has changed since, and a worker can follow hints at what another one observes, without
// asking the workflow, which would cost history.

// takeOverPace is the time between two looks of a worker that starts.
const takeOverPace = 5 * time.Millisecond

// records are where what workflows know is kept, for the workers that reach a runtime.
type records interface {
	put(context.Context, runtimes.Owner, protocol.Watched) error
	// get returns nil when nothing is known.
	get(context.Context, runtimes.Owner) (*protocol.Watched, error)
	remove(context.Context, runtimes.Owner) error
	all(context.Context) ([]runtimes.Owner, error)
	// beat says what a worker says of itself, and beats what all of the queue say.
	beat(ctx context.Context, worker string, b store.Beat) error
	beats(context.Context) (map[string]store.Beat, error)
	leave(ctx context.Context, worker string) error
	// guards is what the workers of the common queue say of themselves, which look after those of remote runtimes.
	guards(context.Context) (map[string]store.Beat, error)
}

// keeping is what is in the store of what is known of an instance.
type keeping struct {
	stands  *protocol.Watched // nil: not known
	writing bool
}

// record is what is kept of what was found: without what differs from reading to reading and decides nothing.
func (o *observed) record() protocol.Watched {
	r, ref := o.request, o.ref
	if !rests(r) {
		r.Interval = 0
	}
	r.Instances = []protocol.InstanceRef{ref}
	return protocol.Watched{Request: r, Seen: o.shape}
}

// keep has the store know what the workflow does, with h.mu held. One that cannot be written is with the next.
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

// recall is what the workflow knows from elsewhere. Nil: nothing was written down.
func (h *hints) recall(owner runtimes.Owner, i *interest, turn int) (*observed, error) {
	w, err := h.records.get(h.ctx, owner)
	if err != nil {
		return nil, err
	}
	h.still(i, turn, func() {
		if i.looks == 0 || !reflect.DeepEqual(i.kept.stands, w) { // somebody observes
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

// forget is called when an instance is about to be removed: nobody is to be told that it goes.
func (h *hints) forget(ctx context.Context, owner runtimes.Owner) {
	h.begin(owner) // nothing settles it, until it is observed again
	h.mu.Lock()
	i := h.of(owner)
	i.kept.stands, i.gone = nil, time.Now()
	h.mu.Unlock()
	_ = h.records.remove(ctx, owner) // a record that stays costs a look
	h.rounds.told.add(owner)         // or another worker would believe that it is there
}

// takeOver looks once at all that is known to the workers of this queue, and was not observed here yet: who knew of a
// change may be gone.
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

// TakeOver has this worker look at what others watched, and read its part of what is steady: it is called once it serves.
func (a *Activities) TakeOver() {
	records := (*watchedRecords)(a)
	if a.Runtime == "" {
		a.hints.rounds.guard = &guard{records: records, wake: a.wake, mine: a.hints.rounds.peers.mine}
	} else {
		a.hints.guarded()
	}
	go a.hints.goRounds()
}

// watchedRecords keeps them in the store, by the queue of this worker.
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

// knownTo lists what is known to the workers of a queue.
func (a *watchedRecords) knownTo(ctx context.Context, queue string) ([]runtimes.Owner, error) {
	keys, err := a.Store.WatchedBy(ctx, queue)
	var owners []runtimes.Owner
	for _, key := range keys {
		owners = append(owners, ownerOfKey(key))
	}
	return owners, err
}
