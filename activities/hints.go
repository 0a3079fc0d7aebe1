package activities

import (
	"context"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

const (
	hintGap   = 500 * time.Millisecond // between two looks at one instance that hints ask for
	hintLooks = 8                      // under way at a time
	// newsGap is how soon details follow what the workflow was told, where a change that matters wakes
	// it anyway.
	newsGap = 5 * time.Second
)

// hints turn what runtimes learn of changes by themselves into wakes of the services concerned. A
// hint says only that something may be different, so the instance is looked at again, from what the
// runtime has watched, and compared with what the workflow's observation found last; only a
// difference that the decision would see wakes the workflow. All of this may be lost: the
// observation that the server repeats is what correctness rests on.
type hints struct {
	look func(context.Context, protocol.ObserveRequest, protocol.InstanceRef) entities.Reading
	wake func(ctx context.Context, owner runtimes.Owner, runtime string)
	gap  time.Duration

	ctx   context.Context //nolint:containedctx // of the worker: hints come from goroutines that have none
	stop  context.CancelFunc
	slots chan struct{}

	mu     sync.Mutex
	owners map[runtimes.Owner]*interest
}

// interest is what is known here of an instance that hints may come for.
type interest struct {
	known   *sighting // nil: told already, or about to be looked at by an observation
	turn    int       // of the observation or apply that began last
	looking bool      // by an observation: what comes meanwhile waits for its end
	hinted  bool      // since the last look began
	running bool      // a goroutine follows the hints
	told    telling   // the last reading that the workflow got from here
}

// telling is what a workflow was told, and when.
type telling struct {
	shape string
	at    time.Time
}

// sighting is what an observation found, and how to look again.
type sighting struct {
	request protocol.ObserveRequest // without its instances
	ref     protocol.InstanceRef
	shape   string
	until   time.Time // when another observation must have come, if anybody is still interested
}

func newHints(a *Activities) *hints {
	h := &hints{
		look: a.lookAt, wake: a.wake, gap: hintGap,
		slots: make(chan struct{}, hintLooks), owners: map[runtimes.Owner]*interest{},
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h
}

// shapeOf is what of a reading the decision sees at once. How many replicas are ready so far, and
// which versions are active meanwhile, is left to the observation: a rollout would wake the workflow
// at each of them.
func shapeOf(seen entities.Reading, ref protocol.InstanceRef) string {
	i := entities.Instance{Reading: seen, Known: seen.Digest(), Fresh: true}
	c := entities.ServiceInstance{Instance: &i}.Fetch(&entities.Target{FullVersion: ref.FullVersion})
	return entities.DigestOf(ref.FullVersion, c.Known, c.Stable, c.Drifted, c.Failed != "")
}

func ownerOf(r protocol.ObserveRequest, channel string) runtimes.Owner {
	return runtimes.Owner{Application: r.Application, Service: r.Service, Channel: channel}
}

// begin is called before an observation looks, so that no change falls between its look and settle. It
// returns the turn to settle.
func (h *hints) begin(owner runtimes.Owner) (turn int) { return h.set(owner, true) }

// forget is called when an apply begins: it ends with a look of its own.
func (h *hints) forget(owner runtimes.Owner) { h.set(owner, false) }

func (h *hints) set(owner runtimes.Owner, looking bool) (turn int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil {
		i = &interest{}
		h.owners[owner] = i
	}
	i.turn++
	i.known, i.looking, i.hinted = nil, looking, false
	return i.turn
}

// settle is called after an observation looked. Without a sighting nobody is to be woken: the workflow
// is being told, or an apply is under way. One that another observation, or an apply, has passed by (its
// look took long, and the workflow gave it up) says nothing any more.
func (h *hints) settle(owner runtimes.Owner, turn int, found *sighting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil || i.turn != turn {
		return
	}
	i.known, i.looking = found, false
	if found != nil && i.hinted {
		h.follow(owner, i)
	}
}

// tell notes that the workflow is being told something of this shape.
func (h *hints) tell(owner runtimes.Owner, shape string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.owners[owner]; i != nil {
		i.told = telling{shape, time.Now()}
	}
}

// early is how long to wait with news that the decision would not see, because the workflow has just
// been told of the same shape; 0 when it is to be told now.
func (h *hints) early(owner runtimes.Owner, shape string, gap time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil || i.told.shape != shape {
		return 0
	}
	return max(gap-time.Since(i.told.at), 0)
}

// hint takes in that an instance may have changed. One that was never observed here belongs to a
// worker that is gone, or has not begun: its workflow is woken once, to look for itself.
func (h *hints) hint(owner runtimes.Owner, runtime string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil {
		h.owners[owner] = &interest{}
		go h.in(func() { h.wake(h.ctx, owner, runtime) })
		return
	}
	i.hinted = true
	h.follow(owner, i)
}

// follow begins to look after an instance, with h.mu held.
func (h *hints) follow(owner runtimes.Owner, i *interest) {
	if i.running || i.looking || i.known == nil {
		return
	}
	i.running = true
	go h.run(owner, i)
}

// run looks at an instance until no more hints come, or its workflow has been woken.
func (h *hints) run(owner runtimes.Owner, i *interest) {
	for {
		h.mu.Lock()
		found := i.known
		if !i.hinted || i.looking || found == nil || h.ctx.Err() != nil {
			i.running = false
			h.mu.Unlock()
			return
		}
		i.hinted = false
		if time.Now().After(found.until) {
			i.known, i.running = nil, false
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		h.in(func() { h.compare(owner, i, found) })
		select {
		case <-h.ctx.Done():
		case <-time.After(h.gap):
		}
	}
}

func (h *hints) compare(owner runtimes.Owner, i *interest, found *sighting) {
	seen := h.look(h.ctx, found.request, found.ref)
	if seen.Err != nil || shapeOf(seen, found.ref) == found.shape {
		return // that nothing is known is for the observation to find out and to repeat
	}
	h.mu.Lock()
	again := i.known == found
	if again {
		i.known = nil
	}
	h.mu.Unlock()
	if again {
		h.wake(h.ctx, owner, found.request.Runtime)
	}
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

// wake asks a service's workflow to look at a channel now, by the verb that people have for it.
func (a *Activities) wake(ctx context.Context, owner runtimes.Owner, runtime string) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	request := protocol.ScopeRequest{Act: protocol.Act{By: "watch of " + runtime}, Channel: owner.Channel}
	// Refused, absent or unreachable: the observation finds out by itself.
	_ = a.Client.SignalWorkflow(ctx, protocol.ServiceID(owner.Application, owner.Service), "", protocol.Refresh, request)
}

const wakeTimeout = 10 * time.Second
