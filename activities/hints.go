package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

const (
	hintGap      = 500 * time.Millisecond // between two readings of one instance that hints ask for
	lastHintGap  = 30 * time.Second       // while they fail: doubled up to this
	hintReadings = 8                      // under way at a time
	// newsGap is how soon details follow what the workflow was notified of, where a change that matters wakes
	// it anyway.
	newsGap = 5 * time.Second
)

// hints turn what runtimes learn of changes by themselves into wakes of the services concerned. A
// hint says only that something may be different, so the instance is observed again, from what the
// runtime has watched, and compared with what the workflow knows from here; only a difference that
// the decision would see wakes the workflow. All of this may be lost: the observation that the server
// repeats is what correctness rests on.
type hints struct {
	observe observeOne
	wake    func(ctx context.Context, owner runtimes.Owner, runtime string) error
	gap     time.Duration

	ctx   context.Context //nolint:containedctx // of the worker: hints come from goroutines that have none
	stop  context.CancelFunc
	slots chan struct{}

	mu     sync.Mutex
	owners map[runtimes.Owner]*interest
}

// interest is what is known here of an instance that hints may come for.
type interest struct {
	known     *observed    // by the workflow; nil: nothing from here, or it was woken, or is observing or applying
	until     time.Time    // when another observation must have come, if anybody is still interested
	turn      int          // of the observation or apply that began last
	observing bool         // by the workflow: what comes meanwhile waits for its end
	hinted    bool         // since the last reading began
	running   bool         // a goroutine follows the hints
	last      notification // of the workflow from here
}

// notification is what a workflow was notified of, and when.
type notification struct {
	shape string
	at    time.Time
}

// observed is what an observation found, and how to observe again.
type observed struct {
	request protocol.ObserveRequest // without its instances
	ref     protocol.InstanceRef
	shape   string
	until   time.Time // as that of interest, which keeps the latest
}

func newHints(a *Activities) *hints {
	h := &hints{
		observe: a.observeOne, wake: a.wake, gap: hintGap,
		slots: make(chan struct{}, hintReadings), owners: map[runtimes.Owner]*interest{},
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// shapeOf is what of a reading the decision sees at once. How many replicas are ready so far, and
// which versions are active meanwhile, is left to the observation: a rollout would wake the workflow
// at each of them.
func shapeOf(reading entities.Reading, ref protocol.InstanceRef) string {
	c := current(reading, ref.FullVersion)
	return entities.DigestOf(ref.FullVersion, c.Known, c.Stable, c.Drifted, c.Failed != "")
}

func ownerOf(r protocol.ObserveRequest, id entities.InstanceID) runtimes.Owner {
	return runtimes.Owner{Application: r.Application, Service: r.Service, ID: id}
}

// begin is called before an observation, so that no change falls between its reading and settle. It
// returns the turn to settle.
func (h *hints) begin(owner runtimes.Owner) (turn int) { return h.set(owner, true) }

// forget is called when an apply begins: it ends with a reading of its own.
func (h *hints) forget(owner runtimes.Owner) { h.set(owner, false) }

func (h *hints) set(owner runtimes.Owner, observing bool) (turn int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil {
		i = &interest{}
		h.owners[owner] = i
	}
	i.turn++
	i.known, i.observing, i.hinted = nil, observing, false
	return i.turn
}

// settle is called after an observation with what the workflow is being told or knows already. Without
// anything found nobody is to be woken. One that another observation, or an apply, has passed by (it took long, and the
// workflow gave it up) says nothing any more.
func (h *hints) settle(owner runtimes.Owner, turn int, found *observed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil || i.turn != turn {
		return
	}
	i.known, i.observing = found, false
	if found == nil {
		return
	}
	if found.until.After(i.until) {
		i.until = found.until
	}
	if i.hinted {
		h.follow(owner, i)
	}
}

// notified notes that the workflow is being notified of something of this shape.
func (h *hints) notified(owner runtimes.Owner, shape string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.owners[owner]; i != nil {
		i.last = notification{shape, time.Now()}
	}
}

// early is how long to wait with news that the decision would not see, because the workflow has just
// been notified of the same shape; 0 when it is to be notified now.
func (h *hints) early(owner runtimes.Owner, shape string, gap time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil || i.last.shape != shape {
		return 0
	}
	return max(gap-time.Since(i.last.at), 0)
}

// hint takes in that an instance may have changed. One that was never observed here belongs to a
// worker that is gone, or has not begun: its workflow is woken once, to observe it.
func (h *hints) hint(owner runtimes.Owner, runtime string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil {
		h.owners[owner] = &interest{}
		go h.in(func() { _ = h.wake(h.ctx, owner, runtime) }) // the observation finds out by itself
		return
	}
	i.hinted = true
	h.follow(owner, i)
}

// follow begins to observe an instance, with h.mu held.
func (h *hints) follow(owner runtimes.Owner, i *interest) {
	if i.running || i.observing || i.known == nil {
		return
	}
	i.running = true
	go h.run(owner, i)
}

// run observes an instance until no more hints come, or its workflow has been woken. What failed, the reading or the
// waking, is tried again, ever more slowly: a hint comes only once.
func (h *hints) run(owner runtimes.Owner, i *interest) {
	gap := h.gap
	for found := h.hinted(i); found != nil; found = h.hinted(i) {
		failed := false
		h.in(func() { failed = !h.compare(owner, i, found) })
		if gap = min(2*gap, lastHintGap); !failed {
			gap = h.gap
		}
		select {
		case <-h.ctx.Done():
		case <-time.After(gap):
		}
	}
}

// hinted takes the hints that have come, and returns what to compare with; nil: nobody follows them any more.
func (h *hints) hinted(i *interest) *observed {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := i.known
	if found != nil && time.Now().After(i.until) {
		i.known = nil
	}
	i.running = i.hinted && !i.observing && i.known != nil && h.ctx.Err() == nil
	if !i.running {
		return nil
	}
	i.hinted = false
	return found
}

// compare wakes the workflow of an instance that is not as the workflow knows it. That it could not be read or woken is
// not done, and stays hinted at.
func (h *hints) compare(owner runtimes.Owner, i *interest, found *observed) (done bool) {
	reading := h.observe(h.ctx, found.request, found.ref)
	if reading.Err == nil && shapeOf(reading, found.ref) == found.shape {
		return true
	}
	if reading.Err == nil && h.still(i, found, func() {}) && h.wake(h.ctx, owner, found.request.Runtime) == nil {
		h.still(i, found, func() { i.known = nil })
		return true
	}
	return !h.still(i, found, func() { i.hinted = true })
}

// still does something if no observation and no apply has begun since an instance was found like that.
func (h *hints) still(i *interest, found *observed, do func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.known != found {
		return false
	}
	do()
	return true
}

// in does something in one of a few places, so that a cluster's bad day does not fill the worker.
func (h *hints) in(do func()) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
		do()
	case <-h.ctx.Done():
	}
}

// wake asks a service's workflow to observe a channel now, by the verb that people have for it.
func (a *Activities) wake(ctx context.Context, owner runtimes.Owner, runtime string) error {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	request := protocol.ScopeRequest{Act: protocol.Act{By: "watch of " + runtime}, Channel: owner.ID.Channel}
	err := a.Client.SignalWorkflow(ctx, protocol.ServiceID(owner.Application, owner.Service), "", protocol.Refresh, request)
	if absent := new(serviceerror.NotFound); errors.As(err, &absent) {
		return nil // nobody is interested any more
	}
	return err
}

const wakeTimeout = 10 * time.Second
