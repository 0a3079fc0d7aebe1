package activities

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// Observe observes instances of one service, each separately and with its own deadline, so that a hung one is reported alone and delays
// no other (A7). It completes when a reading differs from the known state. Otherwise it asks the server for another attempt after the
// interval, which writes no history.
func (a *Activities) Observe(ctx context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
	news, cached, err := a.observeOn(ctx, r)
	return protocol.ObserveAnswer{Readings: news, ServedFromWatchCache: len(cached) > 0}, err
}

// ObserveAll is Observe for several runtimes. It skips a runtime whose reading slots are all taken.
func (a *Activities) ObserveAll(ctx context.Context, r protocol.ObserveAllRequest) (protocol.ObserveAllAnswer, error) {
	if r.Immediate && slices.ContainsFunc(r.Requests, func(of protocol.ObserveRequest) bool { return !a.latencies.isFast(of.RuntimeDigest, time.Now()) }) {
		return protocol.ObserveAllAnswer{}, errNotLocal
	}
	news, cached, err := a.observeOn(ctx, r.Requests...)
	if err == nil && r.Immediate && !allRead(news, r.Requests) {
		return protocol.ObserveAllAnswer{}, errNotLocal
	}
	return protocol.ObserveAllAnswer{Readings: news, ServedFromWatchCache: cached}, err
}

// errNotLocal means that not all instances can be read locally. The workflow then observes all of them with an activity.
var errNotLocal = errors.New("not all instances can be read locally")

// allRead reports whether all requested instances were read without an error.
func allRead(readings map[entities.InstanceID]entities.Reading, requests []protocol.ObserveRequest) bool {
	for _, r := range requests {
		for _, ref := range r.Instances {
			if reading, ok := readings[ref.ID]; !ok || reading.Err != nil {
				return false
			}
		}
	}
	return true
}

// observeOn observes instances on some runtimes until there is news. It also returns the runtimes that have the state cached.
func (a *Activities) observeOn(ctx context.Context, requests ...protocol.ObserveRequest) (news map[entities.InstanceID]entities.Reading, cached []string, err error) {
	info := activity.GetInfo(ctx)
	if info.Attempt == 1 { // the workflow has just made a decision
		a.planFollowers.notify(info.WorkflowExecution.ID)
	}
	var busyRuntime string       // a runtime without a free reading slot
	var retryAfter time.Duration // delay until the next attempt; zero: the interval
	all := observations{}
	for _, r := range requests {
		release, wait := a.readingSlots.acquire(r.Application+"/"+r.Runtime, time.Now())
		if release == nil {
			busyRuntime, retryAfter = r.Runtime, max(retryAfter, spread(wait, info.WorkflowExecution.ID))
			continue
		}
		defer release()
		all = append(all, a.startObservation(ctx, r))
		all[len(all)-1].setRelease(release)
	}
	if len(all) == 0 {
		return nil, nil, limitReached("readings of runtime "+busyRuntime, retryAfter)
	}
	news = observeAll(ctx, all.observe, all.requests()...)
	dropExcess(news, entities.SortedIDs(news))
	if ctx.Err() != nil { // the worker is stopping: incomplete readings are discarded
		all.end(false)
		return nil, nil, ctx.Err()
	}
	retryAfter = max(retryAfter, all.delayDetails(news))
	if len(news) > 0 || requests[0].Interval == 0 {
		all.notified(news)
		all.end(true)
		return news, all.cachedRuntimes(), nil
	}
	all.end(true)
	if retryAfter == 0 {
		retryAfter = spread(all.interval(info.Attempt), info.WorkflowExecution.ID)
	}
	return nil, nil, unchangedError(retryAfter)
}

// observations are concurrent observations of one service on different runtimes.
type observations []*trackedObservation

func (all observations) requests() []protocol.ObserveRequest {
	out := make([]protocol.ObserveRequest, 0, len(all))
	for _, w := range all {
		out = append(out, w.request)
	}
	return out
}

func (all observations) observe(ctx context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
	at := slices.IndexFunc(all, func(w *trackedObservation) bool { return w.request.Runtime == r.Runtime })
	return all[at].observe(ctx, ref)
}

func (all observations) cachedRuntimes() (runtimes []string) {
	for _, w := range all {
		if w.hasCache {
			runtimes = append(runtimes, w.request.Runtime)
		}
	}
	return runtimes
}

func (all observations) delayDetails(news map[entities.InstanceID]entities.Reading) (wait time.Duration) {
	for _, w := range all {
		wait = max(wait, w.delayDetails(news))
	}
	return wait
}

func (all observations) interval(attempt int32) time.Duration {
	shortest := all[0].interval(attempt)
	for _, w := range all[1:] {
		shortest = min(shortest, w.interval(attempt))
	}
	return shortest
}

func (all observations) notified(news map[entities.InstanceID]entities.Reading) {
	for _, w := range all {
		w.notified(news)
	}
}

func (all observations) end(complete bool) {
	for _, w := range all {
		w.end(complete)
	}
}

// unchangedError returns an error that makes the server retry later. The retry writes no history.
func unchangedError(wait time.Duration) error {
	return temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{
		NextRetryDelay: wait, Category: temporal.ApplicationErrorCategoryBenign,
	})
}

func (a *Activities) observeInstance(ctx context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
	conn, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if err != nil {
		return notReadyReading("runtime", err)
	}
	in, err := a.instance(ctx, runtimes.Request{
		Owner: ownerOf(r, ref.ID), ServiceID: r.ServiceID, FullVersion: ref.FullVersion, Restarted: ref.Restarted, ReportOnly: ref.ReportOnly,
	}, ref.Payload, true)
	if err != nil {
		return notReadyReading("payload", err)
	}
	if err = a.checkRuntimeAccess(ctx, conn, &in, definitionTTL); err != nil {
		return notReadyReading("access", err)
	}
	if err = a.decrypt(&in); err != nil {
		return notReadyReading("secrets", err)
	}
	began := time.Now()
	reading, output := conn.observe(ctx, in, r.Timeout)
	a.recordReading(began, conn, reading)
	a.latencies.record(r.RuntimeDigest, began, time.Since(began), reading)
	if reading.Digest() != ref.KnownDigest && ctx.Err() == nil {
		a.storeFetchLog(ctx, in, output, reading)
	}
	return reading
}

// notReadyReading returns the reading for an observation that could not start, because of one of its parts. Another missing or damaged part
// of the store is another cause, so that the workflow gets the new message.
func notReadyReading(part string, err error) entities.Reading {
	var missing *store.NotFoundError
	var damaged *store.CorruptError
	switch {
	case errors.As(err, &missing):
		part += " " + missing.Key
	case errors.As(err, &damaged):
		part += " " + damaged.Key
	}
	return entities.Reading{At: time.Now().UTC(), Err: &entities.ReadingError{Code: "not-ready", Cause: part, Message: clipError(err), NoAnswer: true}}
}

// spread changes an interval by up to a tenth. The change is constant per service, so services that started together do not observe
// together for ever.
func spread(interval time.Duration, key string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return interval + interval*time.Duration(int64(h.Sum32()%201)-100)/1000
}

// trackedObservation is one observation on a runtime that reports changes, or of steady instances. Its readings are recorded, so later
// hints and readings are compared with them.
type trackedObservation struct {
	a          *Activities
	request    protocol.ObserveRequest
	sendsHints bool // the runtime sends hints
	hasCache   bool // the runtime has the state cached
	recorded   bool

	mu          sync.Mutex
	unread      map[entities.InstanceID]bool // instances without a first reading
	release     func()                       // releases the reading slot of the runtime
	last        map[entities.InstanceID]recordedReading
	generations map[entities.InstanceID]int // to pass to settle
}

// recordedReading is the recorded part of a reading. digest is set only if the runtime sends no hints, because hints cover less than the
// digest.
type recordedReading struct {
	shape  shape
	digest string
}

func (a *Activities) startObservation(ctx context.Context, r protocol.ObserveRequest) *trackedObservation {
	w := &trackedObservation{a: a, request: r, last: map[entities.InstanceID]recordedReading{}, generations: map[entities.InstanceID]int{}}
	conn, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	w.sendsHints, w.hasCache = err == nil && conn.sendsHints && r.Interval > 0, err == nil && conn.hasCache
	// The readings of an unreachable runtime are recorded too: they are the known state.
	if w.recorded = w.sendsHints || isPolled(steadyRequest(r)) && a.hints.isPolling(); w.recorded {
		for _, ref := range r.Instances {
			w.generations[ref.ID] = a.hints.begin(ownerOf(r, ref.ID))
		}
	}
	return w
}

// setRelease sets the function that releases the reading slot. It is called after the first reading of all instances, even if this
// observation continues because another runtime hangs.
func (w *trackedObservation) setRelease(release func()) {
	w.unread, w.release = map[entities.InstanceID]bool{}, release
	for _, ref := range w.request.Instances {
		w.unread[ref.ID] = true
	}
}

func (w *trackedObservation) markRead(id entities.InstanceID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.unread, id); len(w.unread) == 0 {
		w.release()
	}
}

func (w *trackedObservation) observe(ctx context.Context, ref protocol.InstanceRef) entities.Reading {
	reading := w.a.observeInstance(ctx, w.request, ref)
	w.markRead(ref.ID)
	if w.recorded {
		w.mu.Lock()
		defer w.mu.Unlock()
		now := recordedReading{shape: shapeOf(reading, ref)}
		if !w.sendsHints {
			now.digest = reading.Digest()
		}
		w.last[ref.ID] = now
	}
	return reading
}

// maxObserveInterval is the maximum interval to which readings of an unsteady instance back off.
const maxObserveInterval = 30 * time.Second

// interval returns the time until the next reading. On a runtime with a watch it grows while nothing changes, because a thousand slow
// rollouts would keep a server busy.
func (w *trackedObservation) interval(attempt int32) time.Duration {
	requested := w.request.Interval
	if w.recorded && isPolled(w.request) && w.a.hints.isReliable() {
		return max(requested, protocol.ServerPollInterval)
	}
	if !w.sendsHints || requested >= maxObserveInterval {
		return requested
	}
	return min(requested*time.Duration(1+attempt/4), maxObserveInterval)
}

// delayDetails removes news that can wait from news, and returns the delay. Such news only adds details to a recent notification; without
// the delay a rollout would be reported pod by pod. Requested readings are reported at once.
func (w *trackedObservation) delayDetails(news map[entities.InstanceID]entities.Reading) (wait time.Duration) {
	if !w.sendsHints {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range w.request.Instances {
		reading, ok := news[ref.ID]
		if !ok || ref.KnownDigest == "" {
			continue
		}
		delay := w.a.hints.notifyDelay(ownerOf(w.request, ref.ID), shapeOf(reading, ref), min(notifyGap, w.request.Interval))
		if delay > 0 {
			delete(news, ref.ID)
			wait = max(wait, delay)
		}
	}
	return wait
}

// notified records the content of the notification to the workflow.
func (w *trackedObservation) notified(news map[entities.InstanceID]entities.Reading) {
	if !w.sendsHints {
		return
	}
	for _, ref := range w.request.Instances {
		if reading, ok := news[ref.ID]; ok {
			w.a.hints.recordNotification(ownerOf(w.request, ref.ID), shapeOf(reading, ref))
		}
	}
}

// end records the state that the workflow knows from now on, if the readings are complete.
func (w *trackedObservation) end(complete bool) {
	if !w.recorded {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	request := steadyRequest(w.request)
	request.Instances = nil
	for _, ref := range w.request.Instances {
		owner := ownerOf(request, ref.ID)
		var found *observed
		if last, done := w.last[ref.ID]; done && complete {
			ref.KnownDigest = last.digest
			found = &observed{request: request, ref: ref, shape: last.shape}
		}
		if found == nil && !w.sendsHints {
			w.a.hints.finishWithoutReading(owner, w.generations[ref.ID])
			continue
		}
		w.a.hints.settle(owner, w.generations[ref.ID], found)
	}
}
