package activities

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// This file contains the polling of steady instances by workers (F9). The server has no part in a reading that finds no change. Each
// instance is assigned to one worker of its queue. Workers derive the assignment from the presence records in the store and do not call
// one another. While they disagree, two workers may poll an instance for a while.

const (
	workerHeartbeatInterval = 15 * time.Second
	maxMissedHeartbeats     = 3                      // heartbeats without a new number after which a worker counts as gone
	heartbeatsPerListing    = 20                     // heartbeats between two listings of all instances to poll
	pollAlignment           = 200 * time.Millisecond // instances that are due within it are polled together
	// gossipRounds is the number of heartbeats that repeat a list of recorded instances, so a missed one loses nothing.
	gossipRounds = 8
	// maxGossip limits the length of that list. Beyond it the other workers discard everything that they remember.
	maxGossip = 2000
)

// polling is this worker's polling of steady instances.
type polling struct {
	enabled  bool
	interval time.Duration // between heartbeats; zero: workerHeartbeatInterval
	peers    peers
	gossip   gossip
	monitor  *remoteWorkerMonitor  // monitors the workers of remote runtimes; nil: this worker belongs to a remote runtime
	monitors *remoteWorkerMonitors // the monitors of this worker, if it belongs to a remote runtime; nil: it needs none

	clockIsOff bool // the last heartbeat said that the clock of this worker is off
}

// pollState is the poll state of one instance.
type pollState struct {
	interval    time.Duration
	timer       *time.Timer
	due         bool
	observedAt  time.Time // last time the workflow observed it on this worker
	remoteState *observed // state that the workflow knew from another worker at the last reading
}

// usesHints reports whether the runtime sends hints about changes. Changes that do not affect a decision are left to the workflow's
// observations.
func (o *observed) usesHints() bool { return o.ref.KnownDigest == "" }

// isPolled reports whether workers poll the instance.
func isPolled(r protocol.ObserveRequest) bool {
	return r.Steady && r.Interval >= protocol.MinPollInterval
}

// steadyRequest returns the request for the next reading: that of a steady instance, if the request has an interval for the steady state.
func steadyRequest(r protocol.ObserveRequest) protocol.ObserveRequest {
	if r.SteadyPollInterval > 0 {
		r.Steady, r.Interval, r.SteadyPollInterval = true, r.SteadyPollInterval, 0
	}
	return r
}

// isPolling reports whether this worker polls steady instances.
func (h *hints) isPolling() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.polling.enabled && !h.stopped
}

// isReliable reports whether this worker polls and a monitor would notice its end. If so, the server need not poll.
func (h *hints) isReliable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.polling.enabled && !h.stopped && (h.polling.monitors == nil || time.Now().Before(h.polling.monitors.reliableUntil))
}

// startPoll starts the polling of an instance that the workflow observed on this worker. The caller holds h.mu. This worker polls it
// for a while even if it is assigned to another one, because that one may not know of it yet.
func (h *hints) startPoll(owner runtimes.Owner, i *trackedInstance) {
	if i.known == nil || !isPolled(i.known.request) {
		return
	}
	i.poll.observedAt = time.Now()
	if i.poll.timer != nil {
		i.poll.timer.Stop()
		i.poll.timer = nil
	}
	h.startTimer(owner, i, i.known.request.Interval)
}

// finishWithoutReading is called after an observation without a result. The instance is polled at its interval unless an observation comes
// first.
func (h *hints) finishWithoutReading(owner runtimes.Owner, generation int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.instances[owner]; i != nil && i.generation == generation {
		i.observing = false
		if i.poll.interval > 0 {
			h.startTimer(owner, i, i.poll.interval)
		}
	}
}

// schedulePoll schedules the next reading of a steady instance after its interval.
func (h *hints) schedulePoll(owner runtimes.Owner, i *trackedInstance, generation int, found *observed) {
	h.ifCurrent(i, generation, func() {
		if !isPolled(found.request) {
			return
		}
		if i.known != found {
			i.known, i.poll.remoteState = nil, found
		}
		h.storeRecord(owner, i) // retries a write that failed before
		h.startTimer(owner, i, found.request.Interval)
	})
}

// startTimer starts the timer of the next poll. The caller holds h.mu.
func (h *hints) startTimer(owner runtimes.Owner, i *trackedInstance, interval time.Duration) {
	if !h.polling.enabled || h.stopped || i.poll.timer != nil {
		return
	}
	i.poll.interval = interval
	i.poll.timer = time.AfterFunc(alignedDelay(time.Now(), spread(interval, owner.Key())), func() { h.pollDue(owner, i) })
}

// alignedDelay returns the wait until the next poll, rounded up to the next multiple of pollAlignment. Polls that are due at about the same
// time share one wake-up; ten thousand services would otherwise wake the worker a hundred times a second.
func alignedDelay(now time.Time, wait time.Duration) time.Duration {
	due := now.Add(wait)
	return wait + pollAlignment - due.Sub(due.Truncate(pollAlignment))
}

// pollDue polls an instance at its interval, if it is assigned to this worker.
func (h *hints) pollDue(owner runtimes.Owner, i *trackedInstance) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.poll.timer = nil
	if i.observing { // the end of that observation restarts the timer
		return
	}
	if i.known != nil && !isPolled(i.known.request) || time.Since(i.poll.observedAt) > 2*heartbeatsPerListing*workerHeartbeatInterval && !h.polling.peers.isMine(owner) {
		h.startTimer(owner, i, i.poll.interval)
		return
	}
	i.hinted, i.poll.due = true, true
	h.follow(owner, i, "")
}

// runPolling polls steady instances and announces this worker until the hints end.
func (h *hints) runPolling() {
	h.mu.Lock()
	h.polling.enabled = true
	h.mu.Unlock()
	interval := cmp.Or(h.polling.interval, workerHeartbeatInterval)
	takeOver := startScan(func() error { h.takeOver(); return nil })
	monitoring := startScan(func() error { return nil })
	lastListing := 0
	var gone []string // workers that are gone and whose instances are not taken over yet
	for n := 0; ; n++ {
		gone = append(gone, h.heartbeat(interval)...)
		if h.polling.monitor != nil && monitoring.isDone() {
			monitoring = startScan(func() error { return h.polling.monitor.check(h.ctx, maxMissedHeartbeats*interval) })
		}
		if takeOver.isDone() {
			if takeOver.err != nil {
				gone, lastListing = append(takeOver.gone, gone...), n-heartbeatsPerListing
			}
			if len(gone) > 0 || n-lastListing >= heartbeatsPerListing {
				part := gone
				takeOver = startScan(func() error { return h.adopt(part) })
				takeOver.gone, gone, lastListing = part, nil, n
			}
		}
		if sleep(h.ctx, interval) != nil {
			return
		}
	}
}

// backgroundScan is a scan of all polled instances in the background. A large scan takes minutes; the worker continues to announce itself
// meanwhile.
type backgroundScan struct {
	gone []string // workers whose instances the scan takes over
	done chan struct{}
	err  error // valid after done is closed
}

func startScan(do func() error) *backgroundScan {
	l := &backgroundScan{done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = do()
	}()
	return l
}

func (l *backgroundScan) isDone() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// stopPolling hands this worker's instances over to the other workers. The last heartbeat of a monitored worker remains until the monitor
// has read it.
func (h *hints) stopPolling() {
	h.mu.Lock()
	enabled, monitored := h.polling.enabled, h.polling.monitors != nil
	h.mu.Unlock()
	if !enabled {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if !monitored {
		_ = h.records.removeHeartbeat(ctx, h.polling.peers.me) // on failure, the other workers detect it by timeout
		return
	}
	last := h.polling.gossip.next()
	last.Last = true
	_ = h.records.putHeartbeat(ctx, h.polling.peers.me, last)
}

// heartbeat writes this worker's presence record with the instances that it recorded recently, and processes the records of the other
// workers. It returns the workers that are gone since the last heartbeat. While the store is unavailable nothing changes.
func (h *hints) heartbeat(interval time.Duration) (gone []string) {
	ctx, cancel := context.WithTimeout(h.ctx, wakeTimeout)
	defer cancel()
	if err := h.records.putHeartbeat(ctx, h.polling.peers.me, h.describe(h.polling.gossip.next())); err != nil {
		return nil
	}
	h.updateMonitors(ctx, maxMissedHeartbeats*interval)
	heartbeats, err := h.records.heartbeats(ctx)
	if err != nil {
		return nil
	}
	changed, gone := h.polling.peers.update(heartbeats, time.Now(), maxMissedHeartbeats*interval)
	for _, worker := range gone { // a worker that was only slow writes its record again
		_ = h.records.removeHeartbeat(ctx, worker)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changed {
		if c.all {
			for _, i := range h.instances {
				h.invalidate(i)
			}
			break
		}
		for _, key := range c.keys {
			if i := h.instances[ownerOfKey(key)]; i != nil {
				h.invalidate(i)
			}
		}
	}
	return gone
}

// updateMonitors finds out which monitors would notice the end of this worker. It is called after this worker has written its heartbeat.
func (h *hints) updateMonitors(ctx context.Context, timeout time.Duration) {
	if h.polling.monitors == nil {
		return
	}
	heartbeats, err := h.records.monitorHeartbeats(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.polling.monitors.update(heartbeats, time.Now(), timeout)
	}
}

// invalidate discards the cached state of an instance because another worker has recorded a newer one. The next check reads it from the
// store. The caller holds h.mu.
func (h *hints) invalidate(i *trackedInstance) {
	i.clearRemoved()
	i.storedRecord.stored = nil
	if !i.observing {
		i.known, i.poll.remoteState = nil, nil
	}
}

// clearRemoved clears the removal mark of an instance: another worker has recorded it, so it may exist again. The caller holds h.mu.
func (i *trackedInstance) clearRemoved() {
	if !i.removedAt.IsZero() {
		i.removedAt, i.observing = time.Time{}, false
	}
}

// removedTTL is the time after which a removed instance is forgotten. Its last hints have arrived before that.
const removedTTL = 10 * time.Minute

// dropRemoved forgets instances that were removed some time ago and have no record in the store.
func (h *hints) dropRemoved(owners []runtimes.Owner) {
	recorded := map[runtimes.Owner]bool{}
	for _, owner := range owners {
		recorded[owner] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for owner, i := range h.instances {
		if !i.removedAt.IsZero() && !recorded[owner] && time.Since(i.removedAt) > removedTTL {
			delete(h.instances, owner)
		}
	}
}

// adopt polls instances that are assigned to this worker and have no poller yet: they are new, or their worker is gone.
func (h *hints) adopt(gone []string) error {
	listed := time.Now()
	owners, err := h.records.owners(h.ctx)
	if err != nil {
		return err
	}
	h.dropRemoved(owners)
	for _, owner := range owners {
		if !h.polling.peers.isMine(owner) {
			continue
		}
		h.mu.Lock()
		i := h.tracked(owner)
		if !i.removedAt.IsZero() && !i.removedAt.Before(listed) { // the list is older
			h.mu.Unlock()
			continue
		}
		i.clearRemoved()
		fresh := i.poll.timer == nil && i.known == nil
		poll := !i.observing && (fresh || h.polling.peers.wasAssignedTo(owner, gone))
		if poll {
			i.hinted, i.poll.due = true, true
			h.follow(owner, i, "")
		}
		h.mu.Unlock()
		if !poll {
			continue
		}
		if err := sleep(h.ctx, takeOverInterval); err != nil {
			return err
		}
	}
	return nil
}

// gossip lists the instances that this worker recorded recently.
type gossip struct {
	mu      sync.Mutex
	number  int64
	sent    [][]string
	pending []string
}

func (t *gossip) add(owner runtimes.Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pending) <= maxGossip {
		t.pending = append(t.pending, owner.Key())
	}
}

// next returns the next heartbeat.
func (t *gossip) next() store.Heartbeat {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = append(t.sent, t.pending)
	t.sent, t.pending = t.sent[max(0, len(t.sent)-gossipRounds):], nil
	t.number++
	b := store.Heartbeat{Number: t.number}
	for _, keys := range t.sent {
		b.Truncated = b.Truncated || len(keys) > maxGossip
	}
	if !b.Truncated {
		b.Recorded = slices.Clone(t.sent)
	}
	return b
}

// gossipSince returns the instances that were recorded after the heartbeat with that number.
func gossipSince(p store.Heartbeat, number int64) (keys []string, all bool) {
	missed := p.Number - number
	if p.Truncated || missed > int64(len(p.Recorded)) || missed < 0 {
		return nil, true
	}
	for _, some := range p.Recorded[int64(len(p.Recorded))-missed:] {
		keys = append(keys, some...)
	}
	return keys, false
}

// peers are the workers of a queue, by the names that they give themselves.
type peers struct {
	me string

	mu   sync.Mutex
	seen map[string]sighting
	live []string // sorted, includes this worker
}

// sighting is the last heartbeat of a worker and the time at which this worker first saw it. Clocks of other workers are not trusted.
type sighting struct {
	number int64
	at     time.Time
}

// updated returns the sighting of a heartbeat, which may have been seen before.
func (s sighting) updated(b store.Heartbeat, now time.Time) sighting {
	if s.number == b.Number {
		return s
	}
	return sighting{b.Number, now}
}

// recordedChanges lists the instances that another worker recorded.
type recordedChanges struct {
	keys []string
	all  bool
}

// update processes the current heartbeats.
func (p *peers) update(heartbeats map[string]store.Heartbeat, now time.Time, timeout time.Duration) (changed []recordedChanges, gone []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, live := map[string]sighting{}, []string{p.me}
	for name, b := range heartbeats {
		if name == p.me {
			continue
		}
		before := p.seen[name]
		seen[name] = before.updated(b, now)
		if before.number != b.Number {
			if keys, all := gossipSince(b, before.number); all || len(keys) > 0 { // all of them for a new worker
				changed = append(changed, recordedChanges{keys, all})
			}
		}
		switch {
		case b.Last:
			gone = append(gone, name)
		case now.Sub(seen[name].at) < timeout:
			live = append(live, name)
		}
	}
	for _, name := range p.live {
		if !slices.Contains(live, name) && !slices.Contains(gone, name) {
			gone = append(gone, name)
		}
	}
	slices.Sort(live)
	p.seen, p.live = seen, live
	return changed, gone
}

// isMine reports whether an instance, or another task, is assigned to this worker: of all live workers, the one with the highest weight.
// When workers come or go, only their own share moves.
func (p *peers) isMine(owner runtimes.Owner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live) == 0 || heaviest(p.live, owner) == p.me
}

// wasAssignedTo reports whether an instance was assigned to one of these workers before they were gone.
func (p *peers) wasAssignedTo(owner runtimes.Owner, gone []string) bool {
	if len(gone) == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(gone, heaviest(slices.Concat(p.live, gone), owner))
}

func heaviest(workers []string, owner runtimes.Owner) string {
	return slices.MaxFunc(workers, func(a, b string) int {
		return weight(a, owner) - weight(b, owner)
	})
}

func weight(worker string, owner runtimes.Owner) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(owner.Key())) // never fails
	_, _ = h.Write([]byte("/" + worker))
	return int(mixBits(h.Sum32()))
}

// mixBits spreads a difference in a few bits over all bits (the finalizer of MurmurHash3).
func mixBits(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}

func (a *storeRecords) putHeartbeat(ctx context.Context, worker string, b store.Heartbeat) error {
	return a.Store.PutHeartbeat(ctx, a.queue(), worker, b)
}

func (a *storeRecords) heartbeats(ctx context.Context) (map[string]store.Heartbeat, error) {
	return a.Store.Heartbeats(ctx, a.queue())
}

func (a *storeRecords) removeHeartbeat(ctx context.Context, worker string) error {
	return a.Store.RemoveHeartbeat(ctx, a.queue(), worker)
}

// ownerOfKey parses a key (runtimes.Owner.Key).
func ownerOfKey(key string) runtimes.Owner {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) < 4 {
		return runtimes.Owner{}
	}
	return runtimes.Owner{Application: parts[0], Service: parts[1], ID: entities.InstanceID{Channel: parts[2], Name: parts[3]}}
}
