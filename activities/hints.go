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
	maxHintGap   = 30 * time.Second       // maximum of the gap, which doubles while they fail
	hintReadings = 8                      // concurrent readings per runtime
	// notifyGap is the least time between two notifications of the workflow that differ only in details. A change that matters wakes it
	// anyway.
	notifyGap = 5 * time.Second
	// unreadyGrace is how long a steady instance may be unready before its workflow is notified. Pods come and go, and most are ready again
	// within it.
	unreadyGrace = 30 * time.Second
	// hintDeferral is how long a hint is left to the worker that observed the instance last. It doubles up to maxHintDeferral while the
	// workflow is woken and no observation follows.
	hintDeferral    = 5 * time.Second
	maxHintDeferral = 10 * time.Minute
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
// state from another worker, or from before this worker started, is in the store (hints_records.go). A change without any hint is found by
// the observation that the server repeats.
type hints struct {
	observe      observeFunc
	wake         func(ctx context.Context, owner runtimes.Owner, runtime string) error
	records      records
	onOutcome    func(outcome string) // called with the outcome of each hint
	gap          time.Duration
	unreadyGrace time.Duration
	deferral     time.Duration
	acquireSlot  func(key string, now time.Time) (release func(), retryAfter time.Duration) // acquires a slot for a reading
	polling      polling
	clockOffset  func() (offset time.Duration, measured bool) // of this worker

	ctx    context.Context //nolint:containedctx // of the worker: hints come from goroutines that have none
	end    context.CancelFunc
	writes sync.WaitGroup

	mu        sync.Mutex
	stopped   bool
	slots     map[string]chan struct{} // reading slots per runtime
	instances map[runtimes.Owner]*trackedInstance
}

// trackedInstance is the tracked state of an instance that may get hints.
type trackedInstance struct {
	known            *observed    // state that the workflow knows from this worker; nil: none, or the workflow was woken, observes or applies
	generation       int          // number of the last observation or apply that began
	observing        bool         // the workflow observes or applies; hints that come meanwhile wait for its end
	removedAt        time.Time    // time of its removal on this worker; zero: not removed, or it exists again
	hinted           bool         // a hint came since the last reading began
	running          bool         // a goroutine follows the hints
	lastNotification notification // last notification of the workflow by this worker
	unreadySince     time.Time    // since when only its readiness differs from the known state; zero: something else differs, or nothing
	remoteReads      int          // readings that used the state from another worker, since the last observation here
	afterApply       bool         // known is from an apply, and an observation is about to follow
	deferred         *time.Timer  // starts following hints, unless the workflow observes first
	storedRecord     recordState  // state of the record in the store
	poll             pollState    // polling of a steady instance, without a hint
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
		observe: a.observeInstance, wake: a.wake, acquireSlot: a.readingSlots.acquire, records: (*storeRecords)(a), onOutcome: a.recordHint, gap: hintGap, unreadyGrace: unreadyGrace, deferral: hintDeferral,
		slots: map[string]chan struct{}{}, instances: map[runtimes.Owner]*trackedInstance{},
	}
	h.polling.peers.me = rand.Text()
	h.ctx, h.end = context.WithCancel(context.Background())
	return h
}

// stop ends the following of hints. It waits for writes in progress.
func (h *hints) stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.end()
	h.writes.Wait()
	h.stopPolling()
}

// shape is the part of a reading that a decision or a user needs at once. The number of ready replicas and the active versions during a
// rollout are left to the observation, or a rollout would wake the workflow at each step.
type shape = protocol.ReadingSummary

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

// isTemporarilyUnready reports whether a stable instance became unready and nothing else changed. That is usually temporary.
func isTemporarilyUnready(s, now shape) bool {
	if !s.Stable || now.Stable {
		return false
	}
	s.Stable, s.AsDeclared = false, true
	return s == now
}

func ownerOf(r protocol.ObserveRequest, id entities.InstanceID) runtimes.Owner {
	return runtimes.Owner{Application: r.Application, Service: r.Service, ID: id}
}

// begin is called before an observation or an apply, so that no change is missed between its reading and settle. It returns the generation
// to pass to settle.
func (h *hints) begin(owner runtimes.Owner) (generation int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.tracked(owner)
	i.generation++
	i.known, i.observing, i.hinted, i.unreadySince, i.remoteReads, i.afterApply, i.removedAt = nil, true, false, time.Time{}, 0, false, time.Time{}
	i.poll.remoteState, i.poll.due = nil, false
	if i.deferred != nil {
		i.deferred.Stop()
		i.deferred = nil
	}
	return i.generation
}

// tracked returns the tracked state of an instance and creates it if needed. The caller holds h.mu.
func (h *hints) tracked(owner runtimes.Owner) *trackedInstance {
	i := h.instances[owner]
	if i == nil {
		i = &trackedInstance{}
		h.instances[owner] = i
	}
	return i
}

// settle is called after an observation with the state that the workflow knows or is about to receive. With nil, the instance is read
// again and compared with the state known before. It has no effect if a later observation or apply has begun, because the workflow gave
// up the slow one.
func (h *hints) settle(owner runtimes.Owner, generation int, found *observed) {
	h.finish(owner, generation, found, false)
}

// finish is settle. With afterApply, the state is the reading at the end of an apply, and an observation follows.
func (h *hints) finish(owner runtimes.Owner, generation int, found *observed, afterApply bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.instances[owner]
	if i == nil || i.generation != generation {
		return
	}
	i.known, i.observing, i.afterApply = found, false, afterApply
	i.hinted = i.hinted || found == nil
	h.storeRecord(owner, i)
	h.startPoll(owner, i)
	h.follow(owner, i, "")
}

// finishApply is settle after an apply whose final reading is sent to the workflow. A nil reading means that the effect of the apply is
// unknown. sendsHints says whether the runtime sends hints.
func (h *hints) finishApply(r protocol.ApplyRequest, generation int, reading *entities.Reading, sendsHints bool) {
	owner := runtimes.Owner{Application: r.Application, Service: r.Service, ID: r.Instance.ID}
	switch {
	case reading == nil && sendsHints:
		h.settle(owner, generation, nil)
		return
	case reading == nil:
		h.finishWithoutReading(owner, generation)
		return
	}
	found := &observed{request: steadyRequest(protocol.ObserveRequest{
		Application: r.Application, Service: r.Service, ServiceID: r.ServiceID, Runtime: r.Runtime, RuntimeDigest: r.RuntimeDigest, Timeout: r.FetchTimeout, SteadyPollInterval: r.SteadyPollInterval,
	}), ref: r.Instance, shape: shapeOf(*reading, r.Instance)}
	if !sendsHints {
		found.ref.KnownDigest = reading.Digest()
	}
	h.recordNotification(owner, found.shape)
	h.finish(owner, generation, found, r.SteadyPollInterval == 0)
}

// recordNotification records that the workflow is being notified of this shape.
func (h *hints) recordNotification(owner runtimes.Owner, of shape) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := h.instances[owner]; i != nil {
		i.lastNotification = notification{of, time.Now()}
	}
}

// notifyDelay returns how long to delay news that does not affect a decision, because the workflow has just been notified of the same
// shape; 0: notify now.
func (h *hints) notifyDelay(owner runtimes.Owner, of shape, gap time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.instances[owner]
	if i == nil || i.lastNotification.shape != of {
		return 0
	}
	return max(gap-time.Since(i.lastNotification.at), 0)
}

// hint records that an instance may have changed.
func (h *hints) hint(owner runtimes.Owner, runtime string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.tracked(owner)
	i.hinted = true
	h.follow(owner, i, runtime)
}

// follow starts the observation of an instance after a hint: now, or after the time for which the hint is left to other workers. The
// caller holds h.mu.
func (h *hints) follow(owner runtimes.Owner, i *trackedInstance, runtime string) {
	if i.running || i.observing || !i.hinted || h.stopped {
		return
	}
	begin := func() { i.running = true; go h.run(owner, i, runtime) }
	wait := h.deferralOf(i)
	if wait == 0 {
		begin()
		return
	}
	generation := i.generation
	if i.deferred == nil {
		i.deferred = time.AfterFunc(wait, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			if i.generation != generation {
				return // it was observed in the meantime
			}
			i.deferred = nil
			if !i.running && !i.observing && i.hinted && !h.stopped {
				begin()
			}
		})
	}
}

// run observes an instance until no more hints come or its workflow observes it. A failed reading or wake is retried with exponential
// backoff.
func (h *hints) run(owner runtimes.Owner, i *trackedInstance, runtime string) {
	gap := h.gap
	for more := true; more; more = h.hasPending(owner, i, runtime) {
		done := h.checkInstance(owner, i, runtime)
		if gap = min(2*gap, maxHintGap); done {
			gap = h.gap
		}
		_ = sleep(h.ctx, gap)
	}
}

// hasPending reports whether there are hints to follow now.
func (h *hints) hasPending(owner runtimes.Owner, i *trackedInstance, runtime string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	i.running = i.hinted && !i.observing && !h.stopped && h.deferralOf(i) == 0
	h.follow(owner, i, runtime) // schedules the remaining hints
	return i.running
}

// deferralOf returns how long to leave a hint to the observation that follows an apply or to another worker. The caller holds h.mu.
func (h *hints) deferralOf(i *trackedInstance) time.Duration {
	switch {
	case i.afterApply:
		return h.deferral
	case i.known != nil || i.remoteReads == 0:
		return 0
	}
	return min(h.deferral<<min(i.remoteReads-1, 10), maxHintDeferral)
}

// readState is the state at the start of a check.
type readState struct {
	known      *observed // from this worker, or earlier from another one; nil: only the store has it
	generation int
	due        bool // caused by the poll interval, not by a hint
}

// takeHints takes the pending hints. ok is false if the workflow is observing.
func (h *hints) takeHints(i *trackedInstance) (t readState, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.observing {
		return t, false
	}
	t = readState{known: i.known, generation: i.generation, due: i.poll.due}
	if t.known == nil && t.due {
		t.known = i.poll.remoteState
	}
	i.hinted, i.afterApply, i.poll.due = false, false, false
	return t, true
}

// checkInstance reads an instance and wakes its workflow if the reading differs from the state that the workflow knows. If the reading or
// the wake fails, it is not done and the hint stays pending. For a steady instance a failed reading is news.
func (h *hints) checkInstance(owner runtimes.Owner, i *trackedInstance, runtime string) (done bool) {
	t, ok := h.takeHints(i)
	if !ok {
		return true
	}
	retry := func() bool {
		current := h.ifCurrent(i, t.generation, func() { i.hinted, i.poll.due = true, t.due })
		if current {
			h.onOutcome(hintFailed)
		}
		return !current
	}
	found := t.known
	if found == nil {
		var err error
		if found, err = h.loadRecord(owner, i, t.generation); err != nil {
			return retry()
		}
	}
	if found == nil {
		return h.wakeWorkflow(owner, i, t.generation, runtime) || retry()
	}
	if t.due && !isPolled(found.request) {
		return true // it is not steady; its workflow observes it
	}
	same, ok := h.compare(owner, i, t, found)
	switch {
	case !ok:
		return retry()
	case same && !t.due:
		h.onOutcome(hintSame)
	}
	return same || h.wakeWorkflow(owner, i, t.generation, found.request.Runtime) || retry()
}

// compare reads an instance and compares it with the state that the workflow knows. ok is false if the reading failed or the known state
// is not available.
func (h *hints) compare(owner runtimes.Owner, i *trackedInstance, t readState, found *observed) (same, ok bool) {
	h.schedulePoll(owner, i, t.generation, found)
	reading, ok := h.read(found, t.due)
	if !ok || reading.Err != nil && !t.due && found.usesHints() && !isLasting(reading.Err) {
		return false, false
	}
	same = h.isUnchanged(owner, i, found, reading)
	if !same && found == t.known { // another worker may have recorded a newer state
		now, err := h.loadRecord(owner, i, t.generation)
		if err != nil {
			return false, false
		}
		if same = now != nil && h.isUnchanged(owner, i, now, reading); same {
			h.schedulePoll(owner, i, t.generation, now)
		}
	}
	if same {
		h.ifCurrent(i, t.generation, func() { i.remoteReads = min(i.remoteReads, 1) }) // the woken workflow has observed it
	}
	return same, true
}

// lastingSilence is how long a runtime gives no answer until that is news: a restart of an API server is shorter.
const lastingSilence = 30 * time.Second

// isLasting reports whether a runtime has given no answer for long.
func isLasting(e *entities.ReadingError) bool { return e.NoAnswer && e.Silent >= lastingSilence }

// read reads an instance again. After a hint it reads from the watch cache, a few instances at a time. If it is due, or the runtime has
// no watch, it queries the runtime; ok is false if no slot is free.
func (h *hints) read(found *observed, due bool) (reading entities.Reading, ok bool) {
	of := found.request.Application + "/" + found.request.Runtime
	if found.usesHints() && !due {
		h.withSlot(of, func() { reading, ok = h.observe(h.ctx, found.request, found.ref), true })
		return reading, ok
	}
	release, _ := h.acquireSlot(of, time.Now())
	if release == nil {
		return reading, false
	}
	defer release()
	return h.observe(h.ctx, found.request, found.ref), true
}

// isUnchanged reports whether a reading matches the state that the workflow knows, as far as it matters now.
func (h *hints) isUnchanged(owner runtimes.Owner, i *trackedInstance, found *observed, reading entities.Reading) bool {
	now := shapeOf(reading, found.ref)
	if !found.usesHints() {
		return now == found.shape && reading.Digest() == found.ref.KnownDigest
	}
	return h.withinGrace(owner, i, found, now) || now == found.shape
}

// wakeWorkflow wakes the workflow, unless an observation or an apply has begun since the reading.
func (h *hints) wakeWorkflow(owner runtimes.Owner, i *trackedInstance, generation int, runtime string) bool {
	if !h.ifCurrent(i, generation, func() {}) {
		return true
	}
	err := h.wake(h.ctx, owner, runtime)
	if errors.Is(err, errServiceGone) {
		err = h.records.remove(h.ctx, owner)
	}
	if err != nil {
		return false
	}
	h.onOutcome(hintWoke)
	h.ifCurrent(i, generation, func() { i.known, i.poll.remoteState = nil, nil; i.remoteReads++ })
	return true
}

// withinGrace reports whether a change must last longer before the workflow is notified. If so, the instance is read again after that time.
func (h *hints) withinGrace(owner runtimes.Owner, i *trackedInstance, found *observed, now shape) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !found.request.Steady || !isTemporarilyUnready(found.shape, now) {
		i.unreadySince = time.Time{}
		return false
	}
	if i.unreadySince.IsZero() {
		i.unreadySince = time.Now()
		time.AfterFunc(h.unreadyGrace, func() { h.hint(owner, found.request.Runtime) })
	}
	return time.Since(i.unreadySince) < h.unreadyGrace
}

// ifCurrent calls fn if no observation and no apply has begun since that generation.
func (h *hints) ifCurrent(i *trackedInstance, generation int, fn func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i.generation != generation {
		return false
	}
	fn()
	return true
}

// withSlot calls fn in one of the few slots of a runtime, so that a slow cluster neither fills the worker nor delays the hints of other
// clusters.
func (h *hints) withSlot(runtime string, fn func()) {
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
		fn()
	case <-h.ctx.Done():
	}
}

// errServiceGone means that the service no longer exists.
var errServiceGone = errors.New("no such service")

// wake signals a service's workflow to observe a channel now. It sends the same signal as the refresh command of users.
func (a *Activities) wake(ctx context.Context, owner runtimes.Owner, runtime string) error {
	by := "watch of " + runtime
	if runtime == "" { // the runtime is unknown
		by = "watch"
	}
	request := protocol.ScopeRequest{RequestMeta: protocol.RequestMeta{By: by}, Channel: owner.ID.Channel}
	err := a.send(ctx, protocol.ServiceID(owner.Application, owner.Service), protocol.Refresh, request)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return errServiceGone
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
