package activities

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
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
	hintReadings = 8                      // under way at a time, of one runtime
	// newsGap is how soon details follow what the workflow was notified of, where a change that matters wakes
	// it anyway.
	newsGap = 5 * time.Second
	// lasting is how long something steady may be not ready before anybody is told: pods come and go, and most are back by then.
	lasting = 30 * time.Second
	// hintLeave is how long whoever has observed an instance, another worker perhaps, is left to follow a hint. It doubles
	// up to lastHintLeave while the workflow is woken and nobody observes.
	hintLeave     = 5 * time.Second
	lastHintLeave = 10 * time.Minute
)

// What comes of a hint: nothing that matters is otherwise, the workflow was woken, or it could not be told.
const (
	hintSame   = "same"
	hintWoke   = "woke"
	hintFailed = "failed"
)

// hints turn what runtimes learn of changes by themselves into wakes of the services concerned. A
// hint says only that something may be different, so the instance is observed again, from what the
// runtime has watched, and compared with what the workflow knows; only a difference that
// the decision would see wakes the workflow.
//
// A hint comes once, so it is kept until a reading that began after it has settled it: one that comes during an
// observation or an apply is followed afterwards, and one whose reading or wake fails is tried again. What the workflow
// knows from here is in memory; what it knows from another worker, or knew before this one started, is in the store
// (hints_known.go). What no worker hears of at all, the observation that the server repeats finds.
type hints struct {
	observe observeOne
	wake    func(ctx context.Context, owner runtimes.Owner, runtime string) error
	records records
	came    func(outcome string) // of a hint that was followed
	gap     time.Duration
	lasting time.Duration
	leave   time.Duration
	place   func(who string, now time.Time) (leave func(), away time.Duration) // for a reading
	rounds  rounds

	ctx    context.Context //nolint:containedctx // of the worker: hints come from goroutines that have none
	end    context.CancelFunc
	writes sync.WaitGroup

	mu     sync.Mutex
	ended  bool
	slots  map[string]chan struct{} // for readings, of each runtime
	owners map[runtimes.Owner]*interest
}

// interest is what is known here of an instance that hints may come for.
type interest struct {
	known     *observed    // by the workflow, from here; nil: nothing, or it was woken, or is observing or applying
	turn      int          // of the observation or apply that began last
	observing bool         // by the workflow, or applying: what comes meanwhile waits for its end
	gone      time.Time    // when it was removed from here; zero: it was not, or it is there again
	hinted    bool         // since the last reading began
	running   bool         // a goroutine follows the hints
	last      notification // of the workflow from here
	passing   time.Time    // since when nothing but its readiness is not as known; zero: something else, or nothing
	looks     int          // for what the workflow knows from elsewhere, since it last observed here
	applied   bool         // what is known is from an apply that an observation is about to follow
	later     *time.Timer  // begins to follow hints, unless the workflow observes before
	kept      keeping      // of what is known in the store
	again     rereading    // of what is steady, without a hint
}

// notification is what a workflow was notified of, and when.
type notification struct {
	shape shape
	at    time.Time
}

// observed is what an observation found, and how to observe again.
type observed struct {
	request protocol.ObserveRequest // without its instances
	ref     protocol.InstanceRef
	shape   shape
}

func newHints(a *Activities) *hints {
	h := &hints{
		observe: a.observeOne, wake: a.wake, place: a.readings.take, records: (*watchedRecords)(a), came: a.hinted, gap: hintGap, lasting: lasting, leave: hintLeave,
		slots: map[string]chan struct{}{}, owners: map[runtimes.Owner]*interest{},
	}
	h.rounds.peers.me = rand.Text()
	h.ctx, h.end = context.WithCancel(context.Background())
	return h
}

// stop ends the following of hints. What is being written is written.
func (h *hints) stop() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.end()
	h.writes.Wait()
	h.leaveRounds()
}

// shape is what of a reading the decision, or a person, sees at once. How many replicas are ready so far, and
// which versions are active meanwhile, is left to the observation: a rollout would wake the workflow
// at each of them.
type shape = protocol.Seen

func shapeOf(reading entities.Reading, ref protocol.InstanceRef) shape {
	c := current(reading, ref.FullVersion)
	s := shape{Version: ref.FullVersion, Known: c.Known, Stable: c.Stable, Drifted: c.Drifted, Failed: c.Failed != "", AsDeclared: c.AsDeclared}
	var foreign []string
	for _, o := range reading.Objects {
		foreign = append(foreign, o.Foreign...)
	}
	if len(foreign) > 0 {
		s.Foreign = entities.DigestOf(strings.Join(foreign, "\n"))
	}
	return s
}

// passes tells whether what was well is not ready, and nothing else is the matter: that passes, as a rule.
func passes(s, now shape) bool {
	if !s.Stable || now.Stable {
		return false
	}
	s.Stable, s.AsDeclared = false, true
	return s == now
}

func ownerOf(r protocol.ObserveRequest, id entities.InstanceID) runtimes.Owner {
	return runtimes.Owner{Application: r.Application, Service: r.Service, ID: id}
}

// begin is called before an observation or an apply, so that no change falls between its reading and settle. It
// returns the turn to settle.
func (h *hints) begin(owner runtimes.Owner) (turn int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.of(owner)
	i.turn++
	i.known, i.observing, i.hinted, i.passing, i.looks, i.applied, i.gone = nil, true, false, time.Time{}, 0, false, time.Time{}
	i.again.elsewhere, i.again.due = nil, false
	if i.later != nil {
		i.later.Stop()
		i.later = nil
	}
	return i.turn
}

// of is the interest in an instance, with h.mu held.
func (h *hints) of(owner runtimes.Owner) *interest {
	i := h.owners[owner]
	if i == nil {
		i = &interest{}
		h.owners[owner] = i
	}
	return i
}

// settle is called after an observation with what the workflow is being told or knows already. When nothing was found, it
// is looked at again from what was known before. One that another observation, or an apply, has passed by (it took long, and the
// workflow gave it up) says nothing any more.
func (h *hints) settle(owner runtimes.Owner, turn int, found *observed) {
	h.settled(owner, turn, found, false)
}

// settled is settle; applied: after an apply, with the reading that it ended with, and an observation follows.
func (h *hints) settled(owner runtimes.Owner, turn int, found *observed, applied bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil || i.turn != turn {
		return
	}
	i.known, i.observing, i.applied = found, false, applied
	i.hinted = i.hinted || found == nil
	h.keep(owner, i)
	h.observedHere(owner, i)
	h.follow(owner, i, "")
}

// applied is settle after an apply that ended with a reading, which the workflow is being told. None: nobody knows what it did. Hinted: by
// the runtime.
func (h *hints) applied(r protocol.ApplyRequest, turn int, reading *entities.Reading, hinted bool) {
	owner := runtimes.Owner{Application: r.Application, Service: r.Service, ID: r.Instance.ID}
	switch {
	case reading == nil && hinted:
		h.settle(owner, turn, nil)
		return
	case reading == nil:
		h.passed(owner, turn)
		return
	}
	found := &observed{request: resting(protocol.ObserveRequest{
		Application: r.Application, Service: r.Service, ServiceID: r.ServiceID, Runtime: r.Runtime, RuntimeDigest: r.RuntimeDigest, Timeout: r.FetchTimeout, Rest: r.Rest,
	}), ref: r.Instance, shape: shapeOf(*reading, r.Instance)}
	if !hinted {
		found.ref.Known = reading.Digest()
	}
	h.notified(owner, found.shape)
	h.settled(owner, turn, found, r.Rest == 0)
}

// notified notes that the workflow is being notified of something of this shape.
func (h *hints) notified(owner runtimes.Owner, of shape) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.owners[owner]; i != nil {
		i.last = notification{of, time.Now()}
	}
}

// early is how long to wait with news that the decision would not see, because the workflow has just
// been notified of the same shape; 0 when it is to be notified now.
func (h *hints) early(owner runtimes.Owner, of shape, gap time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil || i.last.shape != of {
		return 0
	}
	return max(gap-time.Since(i.last.at), 0)
}

// hint takes in that an instance may have changed.
func (h *hints) hint(owner runtimes.Owner, runtime string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.of(owner)
	i.hinted = true
	h.follow(owner, i, runtime)
}

// follow begins to observe an instance that was hinted at, now or when it was left to others for long enough, with h.mu held.
func (h *hints) follow(owner runtimes.Owner, i *interest, runtime string) {
	if i.running || i.observing || !i.hinted || h.ended {
		return
	}
	begin := func() { i.running = true; go h.run(owner, i, runtime) }
	wait := h.leaves(i)
	if wait == 0 {
		begin()
		return
	}
	turn := i.turn
	if i.later == nil {
		i.later = time.AfterFunc(wait, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if i.turn != turn {
				return // it was observed meanwhile
			}
			i.later = nil
			if !i.running && !i.observing && i.hinted && !h.ended {
				begin()
			}
		})
	}
}

// run observes an instance until no more hints come, or its workflow observes by itself. What failed, the reading or the
// waking, is tried again, ever more slowly.
func (h *hints) run(owner runtimes.Owner, i *interest, runtime string) {
	gap := h.gap
	for goesOn := true; goesOn; goesOn = h.goesOn(owner, i, runtime) {
		done := h.look(owner, i, runtime)
		if gap = min(2*gap, lastHintGap); done {
			gap = h.gap
		}
		_ = pauseFor(h.ctx, gap)
	}
}

// goesOn tells whether there are hints that are to be followed now.
func (h *hints) goesOn(owner runtimes.Owner, i *interest, runtime string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.running = i.hinted && !i.observing && !h.ended && h.leaves(i) == 0
	h.follow(owner, i, runtime) // later
	return i.running
}

// leaves is how long to leave a hint to whoever follows it as well, an observation that comes after an apply, or another
// worker; with h.mu held.
func (h *hints) leaves(i *interest) time.Duration {
	switch {
	case i.applied:
		return h.leave
	case i.known != nil || i.looks == 0:
		return 0
	}
	return min(h.leave<<min(i.looks-1, 10), lastHintLeave)
}

// glance is what a look begins with.
type glance struct {
	known *observed // from here, or from elsewhere a while ago; nil: only the store knows
	turn  int
	due   bool // it was time to read what is steady: nobody hinted
}

// take takes the hints that have come. Not ok: the workflow observes by itself.
func (h *hints) take(i *interest) (t glance, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.observing {
		return t, false
	}
	t = glance{known: i.known, turn: i.turn, due: i.again.due}
	if t.known == nil && t.due {
		t.known = i.again.elsewhere
	}
	i.hinted, i.applied, i.again.due = false, false, false
	return t, true
}

// look wakes the workflow of an instance that is not as the workflow knows it. That it could not be read or woken is
// not done, and stays hinted at; of what is steady, that it cannot be read any more is news.
func (h *hints) look(owner runtimes.Owner, i *interest, runtime string) (done bool) {
	t, ok := h.take(i)
	if !ok {
		return true
	}
	again := func() bool {
		kept := h.still(i, t.turn, func() { i.hinted, i.again.due = true, t.due })
		if kept {
			h.came(hintFailed)
		}
		return !kept
	}
	found := t.known
	if found == nil {
		var err error
		if found, err = h.recall(owner, i, t.turn); err != nil {
			return again()
		}
	}
	if found == nil {
		return h.tell(owner, i, t.turn, runtime) || again()
	}
	if t.due && !rests(found.request) {
		return true // it moves, and its workflow has it followed
	}
	same, ok := h.compare(owner, i, t, found)
	switch {
	case !ok:
		return again()
	case same && !t.due:
		h.came(hintSame)
	}
	return same || h.tell(owner, i, t.turn, found.request.Runtime) || again()
}

// compare reads an instance and compares it with what the workflow knows. Not ok: it could not be read, or it is not known what to
// compare with.
func (h *hints) compare(owner runtimes.Owner, i *interest, t glance, found *observed) (same, ok bool) {
	h.readAgain(owner, i, t.turn, found)
	reading, ok := h.read(found, t.due)
	if !ok || reading.Err != nil && !t.due && found.hinted() {
		return false, false
	}
	same = h.same(owner, i, found, reading)
	if !same && found == t.known { // another worker may have told more since
		now, err := h.recall(owner, i, t.turn)
		if err != nil {
			return false, false
		}
		if same = now != nil && h.same(owner, i, now, reading); same {
			h.readAgain(owner, i, t.turn, now)
		}
	}
	if same {
		h.still(i, t.turn, func() { i.looks = min(i.looks, 1) }) // whoever was woken has seen to it
	}
	return same, true
}

// read reads an instance again: what was hinted at from what is watched, a few at a time; or else, or when it is due, by asking the runtime,
// for which it may find no place.
func (h *hints) read(found *observed, due bool) (reading entities.Reading, ok bool) {
	of := found.request.Application + "/" + found.request.Runtime
	if found.hinted() && !due {
		h.in(of, func() { reading, ok = h.observe(h.ctx, found.request, found.ref), true })
		return reading, ok
	}
	leave, _ := h.place(of, time.Now())
	if leave == nil {
		return reading, false
	}
	defer leave()
	return h.observe(h.ctx, found.request, found.ref), true
}

// same tells whether a reading is what the workflow knows, as far as it matters so far.
func (h *hints) same(owner runtimes.Owner, i *interest, found *observed, reading entities.Reading) bool {
	now := shapeOf(reading, found.ref)
	if !found.hinted() {
		return now == found.shape && reading.Digest() == found.ref.Known
	}
	return h.waits(owner, i, found, now) || now == found.shape
}

// tell wakes the workflow, unless an observation or an apply has begun since the reading.
func (h *hints) tell(owner runtimes.Owner, i *interest, turn int, runtime string) bool {
	if !h.still(i, turn, func() {}) {
		return true
	}
	err := h.wake(h.ctx, owner, runtime)
	if errors.Is(err, errNobody) {
		err = h.records.remove(h.ctx, owner)
	}
	if err != nil {
		return false
	}
	h.came(hintWoke)
	h.still(i, turn, func() { i.known, i.again.elsewhere = nil, nil; i.looks++ })
	return true
}

// waits tells whether what is seen is to last before anybody is told, and has not yet. It is looked at again by then.
func (h *hints) waits(owner runtimes.Owner, i *interest, found *observed, now shape) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !found.request.Steady || !passes(found.shape, now) {
		i.passing = time.Time{}
		return false
	}
	if i.passing.IsZero() {
		i.passing = time.Now()
		time.AfterFunc(h.lasting, func() { h.hint(owner, found.request.Runtime) })
	}
	return time.Since(i.passing) < h.lasting
}

// still does something if no observation and no apply has begun since that turn.
func (h *hints) still(i *interest, turn int, do func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.turn != turn {
		return false
	}
	do()
	return true
}

// in does something in one of a few places that a runtime has, so that a cluster's bad day neither fills the worker nor holds up another one's hints.
func (h *hints) in(runtime string, do func()) {
	h.mu.Lock()
	slots := h.slots[runtime]
	if slots == nil {
		slots = make(chan struct{}, hintReadings)
		h.slots[runtime] = slots
	}
	h.mu.Unlock()
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
		do()
	case <-h.ctx.Done():
	}
}

// errNobody says that there is no such service any more.
var errNobody = errors.New("no such service")

// wake asks a service's workflow to observe a channel now, by the verb that people have for it.
func (a *Activities) wake(ctx context.Context, owner runtimes.Owner, runtime string) error {
	by := "watch of " + runtime
	if runtime == "" { // nothing is known from where
		by = "watch"
	}
	request := protocol.ScopeRequest{Act: protocol.Act{By: by}, Channel: owner.ID.Channel}
	err := a.send(ctx, protocol.ServiceID(owner.Application, owner.Service), protocol.Refresh, request)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return errNobody
	}
	return err
}

// signal signals a workflow, if it is there.
func (a *Activities) signal(ctx context.Context, id, name string, payload any) error {
	err := a.send(ctx, id, name, payload)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil // nobody is interested any more
	}
	return err
}

func (a *Activities) send(ctx context.Context, id, name string, payload any) error {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	return a.Client.SignalWorkflow(ctx, id, "", name, payload)
}

const wakeTimeout = 10 * time.Second
