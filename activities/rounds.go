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
	beatEvery   = 15 * time.Second
	silentBeats = 3                      // beats without a new number after which a worker counts as gone
	listBeats   = 20                     // beats between two listings of all instances to poll
	dueEvery    = 200 * time.Millisecond // instances that are due within it are polled together
	// toldFor is the number of beats that repeat a list of recorded instances, so a missed beat loses nothing.
	toldFor = 8
	// mostTold limits the length of that list. Beyond it the other workers discard everything that they remember.
	mostTold = 2000
)

// rounds is this worker's polling of steady instances.
type rounds struct {
	on     bool
	every  time.Duration // interval between beats; zero: beatEvery
	peers  peers
	told   told
	guard  *guard  // monitors the workers of remote runtimes; nil: this worker belongs to a remote runtime
	guards *guards // the monitors of this worker, if it belongs to a remote runtime; nil: it needs none
}

// rereading is the poll state of one instance.
type rereading struct {
	every     time.Duration
	timer     *time.Timer
	due       bool
	here      time.Time // last time the workflow observed it on this worker
	elsewhere *observed // state that the workflow knew from another worker at the last reading
}

// hinted reports whether the runtime sends hints about changes. Changes that do not affect a decision are left to the workflow's
// observations.
func (o *observed) hinted() bool { return o.ref.Known == "" }

// rests reports whether workers poll the instance.
func rests(r protocol.ObserveRequest) bool { return r.Steady && r.Interval >= protocol.ShortestRound }

// resting returns the request for the next reading: that of a steady instance, if the request has an interval for the steady state.
func resting(r protocol.ObserveRequest) protocol.ObserveRequest {
	if r.Rest > 0 {
		r.Steady, r.Interval, r.Rest = true, r.Rest, 0
	}
	return r
}

// reads reports whether this worker polls steady instances.
func (h *hints) reads() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rounds.on && !h.ended
}

// reliedOn reports whether this worker polls and a monitor would notice its end. If so, the server need not poll.
func (h *hints) reliedOn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rounds.on && !h.ended && (h.rounds.guards == nil || time.Now().Before(h.rounds.guards.until))
}

// observedHere starts the polling of an instance that the workflow observed on this worker. The caller holds h.mu. This worker polls it
// for a while even if it is assigned to another one, because that one may not know of it yet.
func (h *hints) observedHere(owner runtimes.Owner, i *interest) {
	if i.known == nil || !rests(i.known.request) {
		return
	}
	i.again.here = time.Now()
	if i.again.timer != nil {
		i.again.timer.Stop()
		i.again.timer = nil
	}
	h.arm(owner, i, i.known.request.Interval)
}

// passed is called after an observation without a result. The instance is polled at its interval unless an observation comes first.
func (h *hints) passed(owner runtimes.Owner, turn int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.owners[owner]; i != nil && i.turn == turn {
		i.observing = false
		if i.again.every > 0 {
			h.arm(owner, i, i.again.every)
		}
	}
}

// readAgain schedules the next reading of a steady instance after its interval.
func (h *hints) readAgain(owner runtimes.Owner, i *interest, turn int, found *observed) {
	h.still(i, turn, func() {
		if !rests(found.request) {
			return
		}
		if i.known != found {
			i.known, i.again.elsewhere = nil, found
		}
		h.keep(owner, i) // retries a write that failed before
		h.arm(owner, i, found.request.Interval)
	})
}

// arm starts the timer of the next poll. The caller holds h.mu.
func (h *hints) arm(owner runtimes.Owner, i *interest, every time.Duration) {
	if !h.rounds.on || h.ended || i.again.timer != nil {
		return
	}
	i.again.every = every
	i.again.timer = time.AfterFunc(together(time.Now(), spread(every, owner.Key())), func() { h.isDue(owner, i) })
}

// together returns the wait until the next poll, rounded up to the next multiple of dueEvery. Polls that are due at about the same time
// share one wake-up; ten thousand services would otherwise wake the worker a hundred times a second.
func together(now time.Time, wait time.Duration) time.Duration {
	due := now.Add(wait)
	return wait + dueEvery - due.Sub(due.Truncate(dueEvery))
}

// isDue polls an instance at its interval, if it is assigned to this worker.
func (h *hints) isDue(owner runtimes.Owner, i *interest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.again.timer = nil
	if i.observing { // the end of that observation restarts the timer
		return
	}
	if i.known != nil && !rests(i.known.request) || time.Since(i.again.here) > 2*listBeats*beatEvery && !h.rounds.peers.mine(owner) {
		h.arm(owner, i, i.again.every)
		return
	}
	i.hinted, i.again.due = true, true
	h.follow(owner, i, "")
}

// goRounds polls steady instances and announces this worker until the hints end.
func (h *hints) goRounds() {
	h.mu.Lock()
	h.rounds.on = true
	h.mu.Unlock()
	every := cmp.Or(h.rounds.every, beatEvery)
	look := newLooking(func() error { h.takeOver(); return nil })
	guarding := newLooking(func() error { return nil })
	listed := 0
	var gone []string // workers that are gone and whose instances are not taken over yet
	for n := 0; ; n++ {
		gone = append(gone, h.beat(every)...)
		if h.rounds.guard != nil && guarding.isOver() {
			guarding = newLooking(func() error { return h.rounds.guard.look(h.ctx, silentBeats*every) })
		}
		if look.isOver() {
			if look.err != nil {
				gone, listed = append(look.gone, gone...), n-listBeats
			}
			if len(gone) > 0 || n-listed >= listBeats {
				part := gone
				look = newLooking(func() error { return h.adopt(part) })
				look.gone, gone, listed = part, nil, n
			}
		}
		if pauseFor(h.ctx, every) != nil {
			return
		}
	}
}

// looking is a scan of all polled instances in the background. A large scan takes minutes; the worker continues to announce itself
// meanwhile.
type looking struct {
	gone []string // workers whose instances the scan takes over
	over chan struct{}
	err  error // valid after over is closed
}

func newLooking(look func() error) *looking {
	l := &looking{over: make(chan struct{})}
	go func() {
		defer close(l.over)
		l.err = look()
	}()
	return l
}

func (l *looking) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// leaveRounds hands this worker's instances over to the other workers. The last beat of a monitored worker remains until the monitor has
// read it.
func (h *hints) leaveRounds() {
	h.mu.Lock()
	on, guarded := h.rounds.on, h.rounds.guards != nil
	h.mu.Unlock()
	if !on {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if !guarded {
		_ = h.records.leave(ctx, h.rounds.peers.me) // on failure, the other workers detect it by timeout
		return
	}
	last := h.rounds.told.next()
	last.Left = true
	_ = h.records.beat(ctx, h.rounds.peers.me, last)
}

// beat writes this worker's presence record with the instances that it recorded recently, and processes the records of the other workers.
// It returns the workers that are gone since the last beat. While the store is unavailable nothing changes.
func (h *hints) beat(every time.Duration) (gone []string) {
	ctx, cancel := context.WithTimeout(h.ctx, wakeTimeout)
	defer cancel()
	if err := h.records.beat(ctx, h.rounds.peers.me, h.rounds.told.next()); err != nil {
		return nil
	}
	h.lookForGuards(ctx, silentBeats*every)
	beats, err := h.records.beats(ctx)
	if err != nil {
		return nil
	}
	changed, gone := h.rounds.peers.saw(beats, time.Now(), silentBeats*every)
	for _, worker := range gone { // a worker that was only slow writes its record again
		_ = h.records.leave(ctx, worker)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range changed {
		if c.all {
			for _, i := range h.owners {
				h.disbelieve(i)
			}
			break
		}
		for _, key := range c.keys {
			if i := h.owners[ownerOfKey(key)]; i != nil {
				h.disbelieve(i)
			}
		}
	}
	return gone
}

// lookForGuards finds out which monitors would notice the end of this worker. It is called after this worker has written its beat.
func (h *hints) lookForGuards(ctx context.Context, silent time.Duration) {
	if h.rounds.guards == nil {
		return
	}
	beats, err := h.records.guards(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.rounds.guards.heardOf(beats, time.Now(), silent)
	}
}

// disbelieve discards the cached state of an instance because another worker has recorded a newer one. The next look reads it from the
// store. The caller holds h.mu.
func (h *hints) disbelieve(i *interest) {
	i.isThere()
	i.kept.stands = nil
	if !i.observing {
		i.known, i.again.elsewhere = nil, nil
	}
}

// isThere clears the removal mark of an instance: another worker has recorded it, so it may exist again. The caller holds h.mu.
func (i *interest) isThere() {
	if !i.gone.IsZero() {
		i.gone, i.observing = time.Time{}, false
	}
}

// forgottenAfter is the time after which a removed instance is forgotten. Its last hints have arrived before that.
const forgottenAfter = 10 * time.Minute

// clear forgets instances that were removed some time ago and have no record in the store.
func (h *hints) clear(owners []runtimes.Owner) {
	there := map[runtimes.Owner]bool{}
	for _, owner := range owners {
		there[owner] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for owner, i := range h.owners {
		if !i.gone.IsZero() && !there[owner] && time.Since(i.gone) > forgottenAfter {
			delete(h.owners, owner)
		}
	}
}

// adopt polls instances that are assigned to this worker and have no poller yet: they are new, or their worker is gone.
func (h *hints) adopt(gone []string) error {
	owners, err := h.records.all(h.ctx)
	if err != nil {
		return err
	}
	h.clear(owners)
	for _, owner := range owners {
		if !h.rounds.peers.mine(owner) {
			continue
		}
		h.mu.Lock()
		i := h.of(owner)
		i.isThere()
		fresh := i.again.timer == nil && i.known == nil
		reads := !i.observing && (fresh || h.rounds.peers.was(owner, gone))
		if reads {
			i.hinted, i.again.due = true, true
			h.follow(owner, i, "")
		}
		h.mu.Unlock()
		if !reads {
			continue
		}
		if err := pauseFor(h.ctx, takeOverPace); err != nil {
			return err
		}
	}
	return nil
}

// told lists the instances that this worker recorded recently.
type told struct {
	mu     sync.Mutex
	number int64
	past   [][]string
	now    []string
}

func (t *told) add(owner runtimes.Owner) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.now) <= mostTold {
		t.now = append(t.now, owner.Key())
	}
}

// next returns the next beat.
func (t *told) next() store.Beat {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.past = append(t.past, t.now)
	t.past, t.now = t.past[max(0, len(t.past)-toldFor):], nil
	t.number++
	b := store.Beat{Number: t.number}
	for _, keys := range t.past {
		b.All = b.All || len(keys) > mostTold
	}
	if !b.All {
		b.Told = slices.Clone(t.past)
	}
	return b
}

// toldSince returns the instances that were recorded after the beat with that number.
func toldSince(p store.Beat, number int64) (keys []string, all bool) {
	missed := p.Number - number
	if p.All || missed > int64(len(p.Told)) || missed < 0 {
		return nil, true
	}
	for _, some := range p.Told[int64(len(p.Told))-missed:] {
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

// sighting is the last beat of a worker and the time at which this worker first saw it. Clocks of other workers are not trusted.
type sighting struct {
	number int64
	at     time.Time
}

// with returns the sighting of a beat, which may have been seen before.
func (s sighting) with(b store.Beat, now time.Time) sighting {
	if s.number == b.Number {
		return s
	}
	return sighting{b.Number, now}
}

// written lists the instances that another worker recorded.
type written struct {
	keys []string
	all  bool
}

// saw processes the current beats.
func (p *peers) saw(beats map[string]store.Beat, now time.Time, silent time.Duration) (changed []written, gone []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, live := map[string]sighting{}, []string{p.me}
	for name, b := range beats {
		if name == p.me {
			continue
		}
		before := p.seen[name]
		seen[name] = before.with(b, now)
		if before.number != b.Number {
			if keys, all := toldSince(b, before.number); all || len(keys) > 0 { // all of them for a new worker
				changed = append(changed, written{keys, all})
			}
		}
		switch {
		case b.Left:
			gone = append(gone, name)
		case now.Sub(seen[name].at) < silent:
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

// mine reports whether an instance, or another task, is assigned to this worker: of all live workers, the one with the highest weight.
// When workers come or go, only their own share moves.
func (p *peers) mine(owner runtimes.Owner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live) == 0 || heaviest(p.live, owner) == p.me
}

// was reports whether an instance was assigned to one of these workers before they were gone.
func (p *peers) was(owner runtimes.Owner, gone []string) bool {
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
	return int(mixed(h.Sum32()))
}

// mixed spreads a difference in a few bits over all bits (the finalizer of MurmurHash3).
func mixed(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}

func (a *watchedRecords) beat(ctx context.Context, worker string, b store.Beat) error {
	return a.Store.PutBeat(ctx, a.queue(), worker, b)
}

func (a *watchedRecords) beats(ctx context.Context) (map[string]store.Beat, error) {
	return a.Store.Beats(ctx, a.queue())
}

func (a *watchedRecords) leave(ctx context.Context, worker string) error {
	return a.Store.RemoveBeat(ctx, a.queue(), worker)
}

// ownerOfKey parses a key (runtimes.Owner.Key).
func ownerOfKey(key string) runtimes.Owner {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) < 4 {
		return runtimes.Owner{}
	}
	return runtimes.Owner{Application: parts[0], Service: parts[1], ID: entities.InstanceID{Channel: parts[2], Name: parts[3]}}
}
