package workflows

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// This file arranges the observation of instances. Activities of the service observe instances that change. A hint is followed by a reading
// within the same task. Workers read steady instances and get the digest to compare with
// (docs/decisions/0012-a-release-takes-one-activity.md).

// observation is an observation in progress: it returns when a reading differs from the known one.
type observation struct {
	key        string
	perRuntime []decide.RequiredObservation // one per runtime
	requests   []protocol.ObserveRequest    // of each, without instances
	cancel     workflow.CancelFunc
	applyEnded map[entities.InstanceID]time.Time // when the last apply had ended, as of the start of the observation
	refreshed  map[entities.InstanceID]int       // how many readings had been requested, as of the start of the observation
}

func (w *observation) moving() bool { return w.perRuntime[0].Moving }

// arrangeObservations starts and stops observations as needed. An observation is an activity that the server repeats without history, and
// that ends when it has news. While any instance changes, a steady observation keeps running with outdated knowledge: to replace it once at
// the end costs less history, and the changing instances have an observation of their own. applyStarting: an apply starts now.
func (s *service) arrangeObservations(applyStarting bool) {
	mayDefer := applyStarting || s.applyJustEnded || !s.attributesTimer.at.IsZero()
	s.deferred, s.applyJustEnded, s.initialObservationStarted = false, false, false
	if s.readyToEnd() {
		return // the next run starts its own
	}
	wanted, moving := s.wantedObservations()
	s.endObservations(wanted, moving)
	for _, key := range entities.SortedKeys(wanted) {
		switch w := wanted[key]; {
		case s.observations[key] != nil:
		case mayDefer && (s.canDeferAll(w) || moving && s.pollsBatched(w[0])):
			s.deferred = true
		default:
			s.startObservation(key, w)
		}
	}
}

// endObservations ends observations that are no longer needed, or need to be different. Steady ones continue while any instance changes.
func (s *service) endObservations(wanted map[string][]decide.RequiredObservation, moving bool) {
	for _, key := range entities.SortedKeys(s.observations) {
		have := s.observations[key]
		w, ok := wanted[key]
		if ok && s.stillValid(w, have) || moving && !have.moving() && s.coversInstances(have, w) {
			continue
		}
		have.cancel()
		delete(s.observations, key)
	}
}

// coversInstances reports whether all wanted instances are observed, or read by workers.
func (s *service) coversInstances(have *observation, wanted []decide.RequiredObservation) bool {
	watched := map[entities.InstanceID]bool{}
	for _, on := range have.perRuntime {
		for _, one := range on.Instances {
			watched[one.Instance] = true
		}
	}
	return !slices.ContainsFunc(wanted, func(on decide.RequiredObservation) bool {
		return s.steadyPollInterval(*s.state.RuntimeNamed(on.Runtime)) == 0 && slices.ContainsFunc(on.Instances, func(one decide.ObservedInstance) bool { return !watched[one.Instance] })
	})
}

// wantedObservations returns the observations that are needed, by key, and whether any instance changes.
func (s *service) wantedObservations() (wanted map[string][]decide.RequiredObservation, moving bool) {
	wanted, moving = map[string][]decide.RequiredObservation{}, s.inFlight > 0
	for _, w := range decide.RequiredObservations(s.state, false) {
		key := s.observationKey(w)
		wanted[key] = append(wanted[key], w)
		moving = moving || w.Moving
	}
	return wanted, moving
}

// maxRuntimesPerObservation is how many runtimes one observation has at most, so that its request fits into a payload (F8).
const maxRuntimesPerObservation = 25

// observationKey is the key of the running observation that a required one belongs to. Instances without any reading yet are observed on
// all runtimes together; so are steady instances that workers read. All others have a separate observation per runtime. A new runtime that
// hangs is observed separately from then on.
func (s *service) observationKey(w decide.RequiredObservation) string {
	kind := ""
	chunk := fmt.Sprintf("/%d/%d", w.Part, w.Position/maxRuntimesPerObservation)
	switch {
	case s.state.RuntimeNamed(w.Runtime).Remote:
	case s.pollsBatched(w):
		kind = "steady"
	case w.Moving && (s.hasNoReadings() || s.observations[initialObservation+chunk] != nil):
		kind = initialObservation
	}
	if kind == "" {
		return w.Key()
	}
	return kind + chunk
}

const initialObservation = "first"

// pollsBatched reports whether an observation is steady and workers read its instances.
func (s *service) pollsBatched(w decide.RequiredObservation) bool {
	return !w.Moving && s.steadyPollInterval(*s.state.RuntimeNamed(w.Runtime)) > 0
}

// hasNoReadings reports whether no instance has any reading yet.
func (s *service) hasNoReadings() bool {
	for _, i := range s.state.Instances {
		if !i.Observed.At.IsZero() {
			return false
		}
	}
	return true
}

// stillValid reports whether the running observation still covers the wanted ones.
func (s *service) stillValid(wanted []decide.RequiredObservation, have *observation) bool {
	if len(wanted) != len(have.perRuntime) {
		return false
	}
	for n, w := range wanted {
		if !s.partStillValid(w, have.perRuntime[n], have.requests[n]) {
			return false
		}
	}
	return true
}

// partStillValid reports whether the running observation still covers the wanted one, or workers cover the rest, because they know what to
// compare with.
func (s *service) partStillValid(wanted, have decide.RequiredObservation, how protocol.ObserveRequest) bool {
	if wanted.Runtime != have.Runtime || !s.requestUnchanged(wanted, how) || len(wanted.Instances) != len(have.Instances) {
		return false
	}
	rest := s.steadyPollInterval(*s.state.RuntimeNamed(wanted.Runtime))
	for n, one := range wanted.Instances {
		before := have.Instances[n]
		if one == before {
			continue
		}
		known := rest > 0 && one.Known != "" && one.Instance == before.Instance && s.lastReported[s.state.Key(one.Instance)] == reported{one.Target, one.Known}
		if !known || wanted.Moving && one.Target != before.Target {
			return false
		}
	}
	return true
}

// requestUnchanged reports whether an observation still matches the declaration of its runtime.
func (s *service) requestUnchanged(wanted decide.RequiredObservation, how protocol.ObserveRequest) bool {
	return reflect.DeepEqual(s.observationRequest(wanted), how)
}

// canDeferAll reports whether canDefer is true for each observation.
func (s *service) canDeferAll(all []decide.RequiredObservation) bool {
	return !slices.ContainsFunc(all, func(w decide.RequiredObservation) bool { return !s.canDefer(w) })
}

// canDefer reports whether workers receive every change of all changing instances of an observation. An apply of them has then just begun
// or ended, and most are done before an observation would read them a second time.
func (s *service) canDefer(w decide.RequiredObservation) bool {
	if !w.Moving || s.steadyPollInterval(*s.state.RuntimeNamed(w.Runtime)) == 0 {
		return false
	}
	return !slices.ContainsFunc(w.Instances, func(one decide.ObservedInstance) bool {
		return one.Known == "" || !s.servedFromWatchCache[s.state.Key(one.Instance)]
	})
}

// wakesBefore reports whether the run will wake to start a deferred observation before due, and can handle the due work then.
func (s *service) wakesBefore(due time.Time) bool {
	due = earliest(due, s.outages.nextRetry())
	by := s.attributesTimer.at
	if by.IsZero() {
		by = s.now().Add(s.attributesDelay())
	}
	return s.deferred && (due.IsZero() || due.After(by))
}

// steadyPollInterval is the interval at which workers read steady instances of a runtime; zero if the server repeats the observation
// instead.
func (s *service) steadyPollInterval(rt entities.RuntimeSpec) time.Duration {
	if rt.Remote || !rt.Observable || rt.Timing.SteadyPollInterval < protocol.MinPollInterval {
		return 0
	}
	return rt.Timing.SteadyPollInterval
}

// reported is what workers compare an instance with: the digest of the last reading, and its target.
type reported struct {
	target entities.Target
	digest string
}

// maxLocalReads is how many instances a workflow task reads at most.
const maxLocalReads = 10

// readHintedLocally reads hinted instances that workers have cached, within the workflow task. So no activity, and no task for its result,
// comes between a hint and the decision. Instances that cannot be read at once are observed as usual.
func (s *service) readHintedLocally() {
	if s.readyToEnd() {
		return
	}
	for _, w := range decide.RequiredObservations(s.state, false) {
		if !w.Moving || s.state.RuntimeNamed(w.Runtime).Remote {
			continue
		}
		running := s.observations[w.Key()]
		w.Instances = slices.DeleteFunc(w.Instances, func(one decide.ObservedInstance) bool {
			return one.Known != "" || !s.servedFromWatchCache[s.state.Key(one.Instance)] || running != nil && slices.Contains(running.perRuntime[0].Instances, one)
		})
		if len(w.Instances) == 0 || len(w.Instances) > maxLocalReads {
			continue
		}
		started, requests := s.newObservation(w.Key(), w)
		var answer protocol.ObserveAnswer
		if (localCall{name: protocol.ActivityObserve, request: requests[0], timeout: storeCallTimeout, maxAttempts: 1}).do(s.ctx, &answer) == nil {
			s.recordReadings(started, toObserveAll(answer, w), nil)
			continue
		}
		for _, one := range w.Instances {
			s.servedFromWatchCache[s.state.Key(one.Instance)] = false // until the next reading says otherwise
		}
	}
}

// readInitialStateLocally reads all instances of a service without any readings within the task that received it, once, if each runtime
// answers a worker at once. So the first decision does not wait for an activity (docs/decisions/0012-a-release-takes-one-activity.md).
func (s *service) readInitialStateLocally() {
	if s.initialReadTried || s.readyToEnd() || len(s.observations) > 0 || !s.hasNoReadings() {
		return
	}
	var all []decide.RequiredObservation
	instances := 0
	for _, w := range decide.RequiredObservations(s.state, false) {
		if w.Moving && !s.state.RuntimeNamed(w.Runtime).Remote {
			all, instances = append(all, w), instances+len(w.Instances)
		}
	}
	if instances == 0 || instances > maxLocalReads {
		return
	}
	s.initialReadTried = true
	started, requests := s.newObservation(initialObservation, all...)
	var answer protocol.ObserveAllAnswer
	request := protocol.ObserveAllRequest{Requests: requests, Immediate: true}
	if (localCall{name: protocol.ActivityObserveAll, request: request, timeout: storeCallTimeout, maxAttempts: 1}).do(s.ctx, &answer) == nil {
		s.recordReadings(started, answer, nil)
	}
}

// observationRequest is a request for an observation, without instances.
func (s *service) observationRequest(w decide.RequiredObservation) protocol.ObserveRequest {
	rt := *s.state.RuntimeNamed(w.Runtime)
	interval := rt.Timing.SteadyPollInterval
	if w.Moving {
		interval = rt.Timing.PollInterval
	}
	request := s.observeRequest(w.Runtime, rt, interval)
	request.Steady = !w.Moving
	if w.Moving {
		request.SteadyPollInterval = s.steadyPollInterval(rt)
	}
	return request
}

// newObservation is an observation that starts now, and its requests.
func (s *service) newObservation(key string, all ...decide.RequiredObservation) (*observation, []protocol.ObserveRequest) {
	started := &observation{key: key, perRuntime: all, applyEnded: map[entities.InstanceID]time.Time{}, refreshed: map[entities.InstanceID]int{}}
	var requests []protocol.ObserveRequest
	for _, w := range all {
		request := s.observationRequest(w)
		started.requests = append(started.requests, request)
		for _, one := range w.Instances {
			ref := s.instanceRef(one.Instance, one.Target)
			ref.KnownDigest = one.Known
			request.Instances = append(request.Instances, ref)
			started.applyEnded[one.Instance], started.refreshed[one.Instance] = s.applyEnded(one.Instance), s.state.RefreshCount(one.Instance)
		}
		requests = append(requests, request)
	}
	return started, requests
}

func (s *service) startObservation(key string, all []decide.RequiredObservation) {
	running, requests := s.newObservation(key, all...)
	action := "watch"
	if running.moving() {
		action = "follow"
	}
	var watched []decide.ObservedInstance
	for _, w := range all {
		watched = append(watched, w.Instances...)
	}
	for _, one := range watched { // also by the known reading if nothing changed
		s.lastReported[s.state.Key(one.Instance)] = reported{one.Target, one.Known}
	}
	names := listFirst(watched, 5, func(one decide.ObservedInstance) string { return s.state.DisplayName(one.Instance) })
	on := listFirst(all, 5, func(w decide.RequiredObservation) string { return w.Runtime })
	ctx, cancel := workflow.WithCancel(s.workCtx)
	running.cancel = cancel
	s.observations[key] = running
	s.initialObservationStarted = s.initialObservationStarted || strings.HasPrefix(key, initialObservation+"/")
	future := s.observeAll(ctx, requests, action+names+" on"+on)
	workflow.Go(ctx, func(ctx workflow.Context) { s.receiveObservation(ctx, running, future) })
}

// runsOn reports whether an instance is still on a runtime; if not, later readings there say nothing about it.
func (s *service) runsOn(id entities.InstanceID, runtime string) bool {
	now, _ := s.state.Runtime(id)
	return now == runtime
}

// applyEnded is when the last apply of an instance ended.
func (s *service) applyEnded(id entities.InstanceID) time.Time {
	if i := s.state.Instances[id]; i != nil {
		return i.Delivery.Apply.Ended
	}
	return time.Time{}
}

// receiveObservation records the result of an observation.
func (s *service) receiveObservation(ctx workflow.Context, w *observation, future workflow.Future) {
	var answer protocol.ObserveAllAnswer
	var err error
	if len(w.perRuntime) > 1 {
		err = future.Get(ctx, &answer)
	} else {
		var one protocol.ObserveAnswer
		err = future.Get(ctx, &one)
		answer = toObserveAll(one, w.perRuntime[0])
	}
	if s.observations[w.key] != w {
		return // replaced in the meantime
	}
	delete(s.observations, w.key)
	s.woken = true
	s.recordReadings(w, answer, err)
}

// rereadIfRequested repeats a reading that was requested during an observation, since the observation may have read before the request.
func (s *service) rereadIfRequested(w *observation, id entities.InstanceID) {
	if i := s.state.Instances[id]; i != nil && s.state.RefreshCount(id) != w.refreshed[id] {
		i.Observed.Requested = true
	}
}

// toObserveAll converts the answer of an observation on one runtime.
func toObserveAll(a protocol.ObserveAnswer, w decide.RequiredObservation) protocol.ObserveAllAnswer {
	all := protocol.ObserveAllAnswer{Readings: a.Readings}
	if a.ServedFromWatchCache {
		all.ServedFromWatchCache = []string{w.Runtime}
	}
	return all
}

// recordReadings records the readings of an observation, or why it failed.
func (s *service) recordReadings(w *observation, answer protocol.ObserveAllAnswer, err error) {
	for _, on := range w.perRuntime {
		for _, one := range on.Instances {
			reading, seen := answer.Readings[s.state.Key(one.Instance)]
			if err != nil {
				reading = s.failedReading(err, on.Runtime, *s.state.RuntimeNamed(on.Runtime))
			} else if !seen {
				continue
			}
			if !s.runsOn(one.Instance, on.Runtime) {
				continue // it has moved in the meantime
			}
			fresh := s.applyEnded(one.Instance).Equal(w.applyEnded[one.Instance])
			s.state.RecordReading(one.Instance, one.Target.FullVersion, reading, fresh, s.now())
			s.rereadIfRequested(w, one.Instance)
			if err == nil {
				s.setLastReported(one.Instance, one.Target, reading)
				s.servedFromWatchCache[s.state.Key(one.Instance)] = slices.Contains(answer.ServedFromWatchCache, on.Runtime)
			}
		}
	}
}

func (s *service) setLastReported(id entities.InstanceID, target entities.Target, reading entities.Reading) {
	s.lastReported[s.state.Key(id)] = reported{target, reading.Digest()}
}

func (s *service) observeRequest(runtime string, rt entities.RuntimeSpec, interval time.Duration) protocol.ObserveRequest {
	return protocol.ObserveRequest{
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID,
		Runtime: runtime, RuntimeDigest: rt.Digest, Interval: interval, Timeout: rt.Timing.FetchTimeout,
	}
}

// maxObserveSummary is the size of a summary in bytes: a server may refuse one of more than 400.
const maxObserveSummary = 380

// observe starts an observation that the server repeats, without history, until it has news. The activity sets the delay of its next
// attempt itself, and the policy must not be slower.
func (s *service) observe(ctx workflow.Context, r protocol.ObserveRequest, rt entities.RuntimeSpec, text string) workflow.Future {
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, s.observeOptions(r, rt, text)), protocol.ActivityObserve, r)
}

// observeAll starts an observation on one runtime, or on several that have no remote workers.
func (s *service) observeAll(ctx workflow.Context, all []protocol.ObserveRequest, text string) workflow.Future {
	r, rt := all[0], *s.state.RuntimeNamed(all[0].Runtime)
	if len(all) == 1 {
		return s.observe(ctx, r, rt, text)
	}
	for _, other := range all[1:] {
		r.Timeout, r.Interval = max(r.Timeout, other.Timeout), max(r.Interval, other.Interval)
		rt.Timing.SteadyPollInterval = max(rt.Timing.SteadyPollInterval, s.state.RuntimeNamed(other.Runtime).Timing.SteadyPollInterval)
	}
	options := s.observeOptions(r, rt, text)
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.ActivityObserveAll, protocol.ObserveAllRequest{Requests: all})
}

func (s *service) observeOptions(r protocol.ObserveRequest, rt entities.RuntimeSpec, text string) workflow.ActivityOptions {
	options := workflow.ActivityOptions{
		TaskQueue:           taskQueueOf(r.Runtime, rt),
		StartToCloseTimeout: r.Timeout + margin,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 1, MaximumInterval: max(r.Interval, rt.Timing.SteadyPollInterval, time.Second),
		},
		Summary: verb.Clip(text, maxObserveSummary), Priority: s.priority(priorityChanging),
	}
	if r.Steady {
		options.Priority = s.priority(prioritySteady)
		options.RetryPolicy.MaximumInterval = max(options.RetryPolicy.MaximumInterval, 2*protocol.ServerPollInterval)
	}
	options.ScheduleToStartTimeout = pickupTimeout(options.TaskQueue, s.unobservedSince(r), s.now())
	return options
}

// unobservedSince is since when no worker took an observation of these instances; zero if a worker took one, or nothing is known.
func (s *service) unobservedSince(r protocol.ObserveRequest) (since time.Time) {
	for _, ref := range r.Instances {
		i := s.state.Instances[ref.ID]
		if i == nil || i.Observed.Reading.Err == nil || i.Observed.Reading.Err.Code != entities.CodeNoWorker {
			return time.Time{}
		}
		if since.IsZero() || i.Observed.ErrSince.After(since) {
			since = i.Observed.ErrSince
		}
	}
	return since
}

// failedReading turns a failed observation into a reading with the reason.
func (s *service) failedReading(err error, runtime string, rt entities.RuntimeSpec) entities.Reading {
	e := &entities.ReadingError{Code: "unobservable", Message: rootCause(err), NoAnswer: true}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) && rt.Remote {
		e = noWorkerError(runtime)
	}
	return entities.Reading{Err: e, At: s.now()}
}
