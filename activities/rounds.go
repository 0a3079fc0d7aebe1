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

// This file has workers read what is steady again and again by themselves (F9): the server has no part in a reading that finds
// what is known. Each instance is read by one worker of its queue, which they find out from what each says of itself in the
// store, without asking one another; by two for a while where they do not agree yet.

const (
	beatEvery   = 15 * time.Second
	silentBeats = 3                      // who says nothing new for so many is gone
	listBeats   = 20                     // until all that there is to read is listed again
	dueEvery    = 200 * time.Millisecond // what falls due within it is read together
	// toldFor is how many beats name what a worker wrote down, so that one that is missed loses nothing.
	toldFor = 8
	// mostTold bounds that; of more, the others believe nothing that they remember.
	mostTold = 2000
)

// rounds are the readings of what is steady by this worker.
type rounds struct {
	on     bool
	every  time.Duration // between beats; zero: beatEvery
	peers  peers
	told   told
	guard  *guard  // of the workers of remote runtimes; nil: it is one of these
	guards *guards // of this worker of a remote runtime; nil: it needs none
}

// rereading is that of one instance.
type rereading struct {
	every     time.Duration
	timer     *time.Timer
	due       bool
	here      time.Time // when the workflow observed it here last
	elsewhere *observed // what the workflow knew from elsewhere, when it was read last
}

// hinted tells whether the runtime hints at changes: what the decision would not see is left to the workflow's observations.
func (o *observed) hinted() bool { return o.ref.Known == "" }

// rests tells whether workers read it again and again.
func rests(r protocol.ObserveRequest) bool { return r.Steady && r.Interval >= protocol.ShortestRound }

// resting is how to read again what was read so: as what is steady is, where that begins by itself.
func resting(r protocol.ObserveRequest) protocol.ObserveRequest {
	if r.Rest > 0 {
		r.Steady, r.Interval, r.Rest = true, r.Rest, 0
	}
	return r
}

// reads tells whether this worker reads what is steady.
func (h *hints) reads() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rounds.on && !h.ended
}

// reliedOn tells whether it does, and its end would be noticed: the server need not have it read then.
func (h *hints) reliedOn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rounds.on && !h.ended && (h.rounds.guards == nil || time.Now().Before(h.rounds.guards.until))
}

// observedHere begins the rounds of what the workflow observed here, with h.mu held. For a while they are here whosever it is: the
// other may not have heard of it.
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

// passed is called after an observation that came to nothing: it is read when its time comes, if nobody observes before.
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

// readAgain has an instance read again after its interval, if it is steady.
func (h *hints) readAgain(owner runtimes.Owner, i *interest, turn int, found *observed) {
	h.still(i, turn, func() {
		if !rests(found.request) {
			return
		}
		if i.known != found {
			i.known, i.again.elsewhere = nil, found
		}
		h.keep(owner, i) // what could not be written down is now
		h.arm(owner, i, found.request.Interval)
	})
}

// arm starts the timer of a round, with h.mu held.
func (h *hints) arm(owner runtimes.Owner, i *interest, every time.Duration) {
	if !h.rounds.on || h.ended || i.again.timer != nil {
		return
	}
	i.again.every = every
	i.again.timer = time.AfterFunc(together(time.Now(), spread(every, owner.Key())), func() { h.isDue(owner, i) })
}

// together is how long it is until something is due, so much later that it is with what else is due then: a worker is woken once
// for all of it, and not a hundred times a second for ten thousand services.
func together(now time.Time, wait time.Duration) time.Duration {
	due := now.Add(wait)
	return wait + dueEvery - due.Sub(due.Truncate(dueEvery))
}

// isDue reads an instance whose time has come, if it is this worker's.
func (h *hints) isDue(owner runtimes.Owner, i *interest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.again.timer = nil
	if i.observing { // what it finds begins anew
		return
	}
	if i.known != nil && !rests(i.known.request) || time.Since(i.again.here) > 2*listBeats*beatEvery && !h.rounds.peers.mine(owner) {
		h.arm(owner, i, i.again.every)
		return
	}
	i.hinted, i.again.due = true, true
	h.follow(owner, i, "")
}

// goRounds reads what is steady until the hints end, and says meanwhile that this worker is there.
func (h *hints) goRounds() {
	h.mu.Lock()
	h.rounds.on = true
	h.mu.Unlock()
	every := cmp.Or(h.rounds.every, beatEvery)
	look := newLooking(func() error { h.takeOver(); return nil })
	guarding := newLooking(func() error { return nil })
	listed := 0
	var gone []string // whose part was not looked at yet
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

// looking is a look through all that workers read. It takes minutes where that is much, and the worker says meanwhile that it is there.
type looking struct {
	gone []string // of whom it takes over
	over chan struct{}
	err  error // once it is over
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

// leaveRounds has the others read what was this worker's. Of one that is guarded its last word stays, until the guard has seen it.
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
		_ = h.records.leave(ctx, h.rounds.peers.me) // else they find out
		return
	}
	last := h.rounds.told.next()
	last.Left = true
	_ = h.records.beat(ctx, h.rounds.peers.me, last)
}

// beat says that this worker is there and what it wrote down lately, and takes in what the others say. It returns who is gone
// since the last beat. While the store is away everything stays as it is.
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
	for _, worker := range gone { // one that was only slow says so again
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

// lookForGuards finds out who would notice if this worker were gone, which has just said that it is there.
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

// disbelieve has the next look ask the store what the workflow knows, with h.mu held: another worker wrote that down.
func (h *hints) disbelieve(i *interest) {
	i.isThere()
	i.kept.stands = nil
	if !i.observing {
		i.known, i.again.elsewhere = nil, nil
	}
}

// isThere: what was removed from here may be there again, since another worker wrote something of it down; with h.mu held.
func (i *interest) isThere() {
	if !i.gone.IsZero() {
		i.gone, i.observing = time.Time{}, false
	}
}

// forgottenAfter is when nothing is kept in mind any more of what was removed: its last hints have come by then.
const forgottenAfter = 10 * time.Minute

// clear forgets what was removed a while ago, of which nothing is written down.
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

// adopt reads what is this worker's and nobody read so far: it is new, or its worker is gone.
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

// told is what this worker wrote down lately.
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

// next is the next beat.
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

// toldSince are the instances that were written down after the beat of that number.
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

// peers are the workers of a queue, by what they call themselves.
type peers struct {
	me string

	mu   sync.Mutex
	seen map[string]sighting
	live []string // sorted, with this one
}

// sighting is the last beat of a worker, and when it was first seen here: clocks of others are believed nothing.
type sighting struct {
	number int64
	at     time.Time
}

// with is the sighting of a beat, which may have been seen before.
func (s sighting) with(b store.Beat, now time.Time) sighting {
	if s.number == b.Number {
		return s
	}
	return sighting{b.Number, now}
}

// written is what another worker wrote down.
type written struct {
	keys []string
	all  bool
}

// saw takes in the beats that are there.
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
			if keys, all := toldSince(b, before.number); all || len(keys) > 0 { // of one that is new: all that it told
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

// mine tells whether this worker is the one of all that are there that sees to something, such as reading an instance: the one of the
// highest weight, so that only what is of who comes or goes moves.
func (p *peers) mine(owner runtimes.Owner) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live) == 0 || heaviest(p.live, owner) == p.me
}

// was tells whether an instance was read by one of these before they were gone.
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

// mixed spreads what differs in few bits over all of them (the end of MurmurHash3).
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

// ownerOfKey is the owner of a key (runtimes.Owner.Key).
func ownerOfKey(key string) runtimes.Owner {
	parts := strings.SplitN(key, "/", 4)
	if len(parts) < 4 {
		return runtimes.Owner{}
	}
	return runtimes.Owner{Application: parts[0], Service: parts[1], ID: entities.InstanceID{Channel: parts[2], Name: parts[3]}}
}
