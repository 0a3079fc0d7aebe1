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
	hintGap      = 500 * time.Millisecond // between two readings of one instance that follow hints
	lastHintGap  = 30 * time.Second       // maximum of the gap, which doubles while they fail
	hintReadings = 8                      // concurrent readings per runtime
	// newsGap is the least time between two notifications of the workflow that differ only in details. A change that matters wakes it
	// anyway.
	newsGap = 5 * time.Second
	// lasting is how long a steady instance may be unready before its workflow is notified. Pods come and go, and most are ready again
	// within it.
	lasting = 30 * time.Second
	// hintLeave is how long a hint is left to the worker that observed the instance last. It doubles up to lastHintLeave while the
	// workflow is woken and no observation follows.
	hintLeave     = 5 * time.Second
	lastHintLeave = 10 * time.Minute
)

// The outcomes of a hint: no relevant change, the workflow was woken, or the reading or the wake failed.
const (
	hintSame   = "same"
	hintWoke   = "woke"
	hintFailed = "failed"
)

// hints turn the changes that runtimes report into wakes of the affected services. A hint says only that something may have changed. The
// instance is observed again, from the runtime's watch cache, and compared with the state that the workflow knows. Only a difference that
// affects a decision wakes the workflow.
//
// A hint comes once, so it is kept until a reading that began after it settles it. A hint that comes during an observation or an apply is
// followed afterwards; one whose reading or wake fails is retried. The state that the workflow learned from this worker is in memory. The
// state from another worker, or from before this worker started, is in the store (hints_known.go). A change without any hint is found by
// the observation that the server repeats.
type hints struct {
	observe observeOne
	wake    func(ctx context.Context, owner runtimes.Owner, runtime string) error
	records records
	came    func(outcome string) // called with the outcome of each hint
	gap     time.Duration
	lasting time.Duration
	leave   time.Duration
	place   func(who string, now time.Time) (leave func(), away time.Duration) // acquires a slot for a reading
	rounds  rounds

	ctx    context.Context //nolint:containedctx // of the worker: hints come from goroutines that have none
	end    context.CancelFunc
	writes sync.WaitGroup

	mu     sync.Mutex
	ended  bool
	slots  map[string]chan struct{} // reading slots per runtime
	owners map[runtimes.Owner]*interest
}

// interest is the tracked state of an instance that may get hints.
type interest struct {
	known     *observed    // state that the workflow knows from this worker; nil: none, or the workflow was woken, or is observing or applying
	turn      int          // number of the last observation or apply that began
	observing bool         // the workflow observes or applies; hints that come meanwhile wait for its end
	gone      time.Time    // time of its removal on this worker; zero: not removed, or it exists again
	hinted    bool         // a hint came since the last reading began
	running   bool         // a goroutine follows the hints
	last      notification // last notification of the workflow by this worker
	passing   time.Time    // since when only its readiness differs from the known state; zero: something else differs, or nothing
	looks     int          // looks that used the state from another worker, since the last observation here
	applied   bool         // known is from an apply, and an observation is about to follow
	later     *time.Timer  // starts following hints, unless the workflow observes first
	kept      keeping      // state of the record in the store
	again     rereading    // polling of a steady instance, without a hint
}

// notification is the content and time of a notification of a workflow.
type notification struct {
	shape shape
	at    time.Time
}

// observed is the result of an observation, and the request to repeat it.
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

// stop ends the following of hints. It waits for writes in progress.
func (h *hints) stop() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.end()
	h.writes.Wait()
	h.leaveRounds()
}

// shape is the part of a reading that a decision or a user needs at once. The number of ready replicas and the active versions during a
// rollout are left to the observation, or a rollout would wake the workflow at each step.
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

// passes reports whether a stable instance became unready and nothing else changed. That is usually temporary.
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

// begin is called before an observation or an apply, so that no change is missed between its reading and settle. It returns the turn to
// pass to settle.
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

// of returns the tracked state of an instance and creates it if needed. The caller holds h.mu.
func (h *hints) of(owner runtimes.Owner) *interest {
	i := h.owners[owner]
	if i == nil {
		i = &interest{}
		h.owners[owner] = i
	}
	return i
}

// settle is called after an observation with the state that the workflow knows or is about to receive. With nil, the instance is read
// again and compared with the state known before. It has no effect if a later observation or apply has begun, because the workflow gave
// up the slow one.
func (h *hints) settle(owner runtimes.Owner, turn int, found *observed) {
	h.settled(owner, turn, found, false)
}

// settled is settle. With applied, the state is the reading at the end of an apply, and an observation follows.
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

// applied is settle after an apply whose final reading is sent to the workflow. A nil reading means that the effect of the apply is
// unknown. hinted says whether the runtime sends hints.
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

// notified records that the workflow is being notified of this shape.
func (h *hints) notified(owner runtimes.Owner, of shape) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.owners[owner]; i != nil {
		i.last = notification{of, time.Now()}
	}
}

// early returns how long to delay news that does not affect a decision, because the workflow has just been notified of the same shape; 0:
// notify now.
func (h *hints) early(owner runtimes.Owner, of shape, gap time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.owners[owner]
	if i == nil || i.last.shape != of {
		return 0
	}
	return max(gap-time.Since(i.last.at), 0)
}

// hint records that an instance may have changed.
func (h *hints) hint(owner runtimes.Owner, runtime string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.of(owner)
	i.hinted = true
	h.follow(owner, i, runtime)
}

// follow starts the observation of an instance after a hint: now, or after the time for which the hint is left to other workers. The
// caller holds h.mu.
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
				return // it was observed in the meantime
			}
			i.later = nil
			if !i.running && !i.observing && i.hinted && !h.ended {
				begin()
			}
		})
	}
}

// run observes an instance until no more hints come or its workflow observes it. A failed reading or wake is retried with exponential
// backoff.
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

// goesOn reports whether there are hints to follow now.
func (h *hints) goesOn(owner runtimes.Owner, i *interest, runtime string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.running = i.hinted && !i.observing && !h.ended && h.leaves(i) == 0
	h.follow(owner, i, runtime) // schedules the remaining hints
	return i.running
}

// leaves returns how long to leave a hint to the observation that follows an apply or to another worker. The caller holds h.mu.
func (h *hints) leaves(i *interest) time.Duration {
	switch {
	case i.applied:
		return h.leave
	case i.known != nil || i.looks == 0:
		return 0
	}
	return min(h.leave<<min(i.looks-1, 10), lastHintLeave)
}

// glance is the state at the start of a look.
type glance struct {
	known *observed // from this worker, or earlier from another one; nil: only the store has it
	turn  int
	due   bool // caused by the poll interval, not by a hint
}

// take takes the pending hints. ok is false if the workflow is observing.
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

// look reads an instance and wakes its workflow if the reading differs from the state that the workflow knows. If the reading or the wake
// fails, it is not done and the hint stays pending. For a steady instance a failed reading is news.
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
		return true // it is not steady; its workflow observes it
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

// compare reads an instance and compares it with the state that the workflow knows. ok is false if the reading failed or the known state
// is not available.
func (h *hints) compare(owner runtimes.Owner, i *interest, t glance, found *observed) (same, ok bool) {
	h.readAgain(owner, i, t.turn, found)
	reading, ok := h.read(found, t.due)
	if !ok || reading.Err != nil && !t.due && found.hinted() {
		return false, false
	}
	same = h.same(owner, i, found, reading)
	if !same && found == t.known { // another worker may have recorded a newer state
		now, err := h.recall(owner, i, t.turn)
		if err != nil {
			return false, false
		}
		if same = now != nil && h.same(owner, i, now, reading); same {
			h.readAgain(owner, i, t.turn, now)
		}
	}
	if same {
		h.still(i, t.turn, func() { i.looks = min(i.looks, 1) }) // the woken workflow has observed it
	}
	return same, true
}

// read reads an instance again. After a hint it reads from the watch cache, a few instances at a time. If it is due, or the runtime has
// no watch, it queries the runtime; ok is false if no slot is free.
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

// same reports whether a reading matches the state that the workflow knows, as far as it matters now.
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

// waits reports whether a change must last longer before the workflow is notified. If so, the instance is read again after that time.
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

// still calls do if no observation and no apply has begun since that turn.
func (h *hints) still(i *interest, turn int, do func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.turn != turn {
		return false
	}
	do()
	return true
}

// in calls do in one of the few slots of a runtime, so that a slow cluster neither fills the worker nor delays the hints of other
// clusters.
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

// errNobody means that the service no longer exists.
var errNobody = errors.New("no such service")

// wake signals a service's workflow to observe a channel now. It sends the same signal as the refresh command of users.
func (a *Activities) wake(ctx context.Context, owner runtimes.Owner, runtime string) error {
	by := "watch of " + runtime
	if runtime == "" { // the runtime is unknown
		by = "watch"
	}
	request := protocol.ScopeRequest{Act: protocol.Act{By: by}, Channel: owner.ID.Channel}
	err := a.send(ctx, protocol.ServiceID(owner.Application, owner.Service), protocol.Refresh, request)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return errNobody
	}
	return err
}

// signal signals a workflow, if it exists.
func (a *Activities) signal(ctx context.Context, id, name string, payload any) error {
	err := a.send(ctx, id, name, payload)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil // the workflow no longer exists
	}
	return err
}

func (a *Activities) send(ctx context.Context, id, name string, payload any) error {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	return a.Client.SignalWorkflow(ctx, id, "", name, payload)
}

const wakeTimeout = 10 * time.Second
