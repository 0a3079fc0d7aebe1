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

// watch is an observation in progress: it returns when a reading differs from the known one.
type watch struct {
	key    string
	of     []decide.Watch            // one per runtime
	how    []protocol.ObserveRequest // of each, without instances
	cancel workflow.CancelFunc
	ended  map[entities.InstanceID]time.Time // when the last apply had ended, as of the start of the watch
	asked  map[entities.InstanceID]int       // how many readings had been requested, as of the start of the watch
}

func (w *watch) moving() bool { return w.of[0].Moving }

// arrangeWatches starts and stops observations as needed. An observation is an activity that the server repeats without history, and that
// ends when it has news. While any instance changes, a steady watch keeps running with outdated knowledge: to replace it once at the end
// costs less history, and the changing instances have a watch of their own. begins: an apply begins now.
func (s *service) arrangeWatches(begins bool) {
	soon := begins || s.applied || !s.showing.at.IsZero()
	s.deferred, s.applied, s.looks = false, false, false
	if s.leaving() {
		return // the next run starts its own
	}
	wanted, moving := s.wantedWatches()
	s.endWatches(wanted, moving)
	for _, key := range entities.SortedKeys(wanted) {
		switch w := wanted[key]; {
		case s.watches[key] != nil:
		case soon && (s.followLater(w) || moving && s.restsTogether(w[0])):
			s.deferred = true
		default:
			s.startWatch(key, w)
		}
	}
}

// endWatches ends observations that are no longer needed, or need to be different. Steady ones continue while any instance changes.
func (s *service) endWatches(wanted map[string][]decide.Watch, moving bool) {
	for _, key := range entities.SortedKeys(s.watches) {
		have := s.watches[key]
		w, ok := wanted[key]
		if ok && s.stand(w, have) || moving && !have.moving() && s.covers(have, w) {
			continue
		}
		have.cancel()
		delete(s.watches, key)
	}
}

// covers reports whether all wanted instances are observed, or read by workers.
func (s *service) covers(have *watch, wanted []decide.Watch) bool {
	watched := map[entities.InstanceID]bool{}
	for _, on := range have.of {
		for _, one := range on.Watched {
			watched[one.Instance] = true
		}
	}
	return !slices.ContainsFunc(wanted, func(on decide.Watch) bool {
		return s.rest(*s.state.RuntimeNamed(on.Runtime)) == 0 && slices.ContainsFunc(on.Watched, func(one decide.Watched) bool { return !watched[one.Instance] })
	})
}

// wantedWatches returns the observations that are needed, by key, and whether any instance changes.
func (s *service) wantedWatches() (wanted map[string][]decide.Watch, moving bool) {
	wanted, moving = map[string][]decide.Watch{}, s.busy > 0
	for _, w := range decide.Watches(s.state, false) {
		key := s.together(w)
		wanted[key] = append(wanted[key], w)
		moving = moving || w.Moving
	}
	return wanted, moving
}

// runtimesTogether is how many runtimes one observation has at most, so that its request fits into a payload (F8).
const runtimesTogether = 25

// together is the key of the observation that a watch belongs to. Instances without any reading yet are observed on all runtimes together;
// so are steady instances that workers read. All others have a separate observation per runtime. A new runtime that hangs is observed
// separately from then on.
func (s *service) together(w decide.Watch) string {
	kind := ""
	chunk := fmt.Sprintf("/%d/%d", w.Part, w.Place/runtimesTogether)
	switch {
	case s.state.RuntimeNamed(w.Runtime).Remote:
	case s.restsTogether(w):
		kind = "steady"
	case w.Moving && (s.nothingRead() || s.watches[firstLook+chunk] != nil):
		kind = firstLook
	}
	if kind == "" {
		return w.Key()
	}
	return kind + chunk
}

const firstLook = "first"

// restsTogether reports whether a watch is steady and workers read its instances.
func (s *service) restsTogether(w decide.Watch) bool {
	return !w.Moving && s.rest(*s.state.RuntimeNamed(w.Runtime)) > 0
}

// nothingRead reports whether no instance has any reading yet.
func (s *service) nothingRead() bool {
	for _, i := range s.state.Instances {
		if !i.Observed.At.IsZero() {
			return false
		}
	}
	return true
}

// stand reports whether the running watch still covers the wanted ones.
func (s *service) stand(wanted []decide.Watch, have *watch) bool {
	if len(wanted) != len(have.of) {
		return false
	}
	for n, w := range wanted {
		if !s.stands(w, have.of[n], have.how[n]) {
			return false
		}
	}
	return true
}

// stands reports whether the running watch still covers the wanted one, or workers cover the rest, because they know what to compare with.
func (s *service) stands(wanted, have decide.Watch, how protocol.ObserveRequest) bool {
	if wanted.Runtime != have.Runtime || !s.watchesAs(wanted, how) || len(wanted.Watched) != len(have.Watched) {
		return false
	}
	rest := s.rest(*s.state.RuntimeNamed(wanted.Runtime))
	for n, one := range wanted.Watched {
		before := have.Watched[n]
		if one == before {
			continue
		}
		known := rest > 0 && one.Known != "" && one.Instance == before.Instance && s.told[s.state.Key(one.Instance)] == told{one.Target, one.Known}
		if !known || wanted.Moving && one.Target != before.Target {
			return false
		}
	}
	return true
}

// watchesAs reports whether a watch still matches the declaration of its runtime.
func (s *service) watchesAs(wanted decide.Watch, how protocol.ObserveRequest) bool {
	return reflect.DeepEqual(s.watchRequest(wanted), how)
}

// followLater reports whether followsLater is true for each watch.
func (s *service) followLater(all []decide.Watch) bool {
	return !slices.ContainsFunc(all, func(w decide.Watch) bool { return !s.followsLater(w) })
}

// followsLater reports whether workers receive every change of all changing instances of a watch. An apply of them has then just begun or
// ended, and most are done before an observation would read them a second time.
func (s *service) followsLater(w decide.Watch) bool {
	if !w.Moving || s.rest(*s.state.RuntimeNamed(w.Runtime)) == 0 {
		return false
	}
	return !slices.ContainsFunc(w.Watched, func(one decide.Watched) bool {
		return one.Known == "" || !s.atHand[s.state.Key(one.Instance)]
	})
}

// wakesBefore reports whether the run will wake to start a deferred observation before due, and can handle the due work then.
func (s *service) wakesBefore(due time.Time) bool {
	due = earliest(due, s.outages.next())
	by := s.showing.at
	if by.IsZero() {
		by = s.now().Add(s.shownWithin())
	}
	return s.deferred && (due.IsZero() || due.After(by))
}

// rest is the interval at which workers read steady instances of a runtime; zero if the server repeats the observation instead.
func (s *service) rest(rt entities.RuntimeSpec) time.Duration {
	if rt.Remote || !rt.Observable || rt.Timing.SteadyPollInterval < protocol.ShortestRound {
		return 0
	}
	return rt.Timing.SteadyPollInterval
}

// told is what workers compare an instance with: the digest of the last reading, and its target.
type told struct {
	target entities.Target
	digest string
}

// mostReadHere is how many instances a workflow task reads at most.
const mostReadHere = 10

// readHere reads hinted instances that workers have cached, within the workflow task. So no activity, and no task for its result, comes
// between a hint and the decision. Instances that cannot be read at once are observed as usual.
func (s *service) readHere() {
	if s.leaving() {
		return
	}
	for _, w := range decide.Watches(s.state, false) {
		if !w.Moving || s.state.RuntimeNamed(w.Runtime).Remote {
			continue
		}
		under := s.watches[w.Key()]
		w.Watched = slices.DeleteFunc(w.Watched, func(one decide.Watched) bool {
			return one.Known != "" || !s.atHand[s.state.Key(one.Instance)] || under != nil && slices.Contains(under.of[0].Watched, one)
		})
		if len(w.Watched) == 0 || len(w.Watched) > mostReadHere {
			continue
		}
		asked, requests := s.watchOf(w.Key(), w)
		var answer protocol.ObserveAnswer
		if (localCall{name: protocol.ActivityObserve, request: requests[0], patient: briefly, tries: 1}).do(s.ctx, &answer) == nil {
			s.takeIn(asked, allOf(answer, w), nil)
			continue
		}
		for _, one := range w.Watched {
			s.atHand[s.state.Key(one.Instance)] = false // until the next reading says otherwise
		}
	}
}

// lookHere reads all instances of a service without any readings within the task that received it, once, if each runtime answers a worker
// at once. So the first decision does not wait for an activity (docs/decisions/0012-a-release-takes-one-activity.md).
func (s *service) lookHere() {
	if s.looked || s.leaving() || len(s.watches) > 0 || !s.nothingRead() {
		return
	}
	var all []decide.Watch
	instances := 0
	for _, w := range decide.Watches(s.state, false) {
		if w.Moving && !s.state.RuntimeNamed(w.Runtime).Remote {
			all, instances = append(all, w), instances+len(w.Watched)
		}
	}
	if instances == 0 || instances > mostReadHere {
		return
	}
	s.looked = true
	asked, requests := s.watchOf(firstLook, all...)
	var answer protocol.ObserveAllAnswer
	request := protocol.ObserveAllRequest{Of: requests, Here: true}
	if (localCall{name: protocol.ActivityObserveAll, request: request, patient: briefly, tries: 1}).do(s.ctx, &answer) == nil {
		s.takeIn(asked, answer, nil)
	}
}

// watchRequest is a request for an observation, without instances.
func (s *service) watchRequest(w decide.Watch) protocol.ObserveRequest {
	rt := *s.state.RuntimeNamed(w.Runtime)
	interval := rt.Timing.SteadyPollInterval
	if w.Moving {
		interval = rt.Timing.PollInterval
	}
	request := s.observeRequest(w.Runtime, rt, interval)
	request.Steady = !w.Moving
	if w.Moving {
		request.Rest = s.rest(rt)
	}
	return request
}

// watchOf is an observation that starts now, and its requests.
func (s *service) watchOf(key string, all ...decide.Watch) (*watch, []protocol.ObserveRequest) {
	begun := &watch{key: key, of: all, ended: map[entities.InstanceID]time.Time{}, asked: map[entities.InstanceID]int{}}
	var requests []protocol.ObserveRequest
	for _, w := range all {
		request := s.watchRequest(w)
		begun.how = append(begun.how, request)
		for _, one := range w.Watched {
			ref := s.instanceRef(one.Instance, one.Target)
			ref.Known = one.Known
			request.Instances = append(request.Instances, ref)
			begun.ended[one.Instance], begun.asked[one.Instance] = s.applyEnded(one.Instance), s.state.Refreshed(one.Instance)
		}
		requests = append(requests, request)
	}
	return begun, requests
}

func (s *service) startWatch(key string, all []decide.Watch) {
	running, requests := s.watchOf(key, all...)
	word := "watch"
	if running.moving() {
		word = "follow"
	}
	var watched []decide.Watched
	for _, w := range all {
		watched = append(watched, w.Watched...)
	}
	for _, one := range watched { // also by the known reading if nothing changed
		s.told[s.state.Key(one.Instance)] = told{one.Target, one.Known}
	}
	names := firsts(watched, 5, func(one decide.Watched) string { return s.state.Shown(one.Instance) })
	on := firsts(all, 5, func(w decide.Watch) string { return w.Runtime })
	ctx, cancel := workflow.WithCancel(s.work)
	running.cancel = cancel
	s.watches[key] = running
	s.looks = s.looks || strings.HasPrefix(key, firstLook+"/")
	future := s.observeAll(ctx, requests, word+names+" on"+on)
	workflow.Go(ctx, func(ctx workflow.Context) { s.watched(ctx, running, future) })
}

// isOn reports whether an instance is still on a runtime; if not, later readings there say nothing about it.
func (s *service) isOn(id entities.InstanceID, runtime string) bool {
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

// watched records the result of a watch.
func (s *service) watched(ctx workflow.Context, w *watch, future workflow.Future) {
	var answer protocol.ObserveAllAnswer
	var err error
	if len(w.of) > 1 {
		err = future.Get(ctx, &answer)
	} else {
		var one protocol.ObserveAnswer
		err = future.Get(ctx, &one)
		answer = allOf(one, w.of[0])
	}
	if s.watches[w.key] != w {
		return // replaced in the meantime
	}
	delete(s.watches, w.key)
	s.woken = true
	s.takeIn(w, answer, err)
}

// readsAfter repeats a reading that was requested during an observation, since the observation may have read before the request.
func (s *service) readsAfter(w *watch, id entities.InstanceID) {
	if i := s.state.Instances[id]; i != nil && s.state.Refreshed(id) != w.asked[id] {
		i.Observed.Requested = true
	}
}

// allOf converts the answer of an observation on one runtime.
func allOf(a protocol.ObserveAnswer, w decide.Watch) protocol.ObserveAllAnswer {
	all := protocol.ObserveAllAnswer{Readings: a.Readings}
	if a.AtHand {
		all.AtHand = []string{w.Runtime}
	}
	return all
}

// takeIn records the readings of an observation, or why it failed.
func (s *service) takeIn(w *watch, answer protocol.ObserveAllAnswer, err error) {
	for _, on := range w.of {
		for _, one := range on.Watched {
			reading, seen := answer.Readings[s.state.Key(one.Instance)]
			if err != nil {
				reading = s.unreadable(err, on.Runtime, *s.state.RuntimeNamed(on.Runtime))
			} else if !seen {
				continue
			}
			if !s.isOn(one.Instance, on.Runtime) {
				continue // it has moved in the meantime
			}
			fresh := s.applyEnded(one.Instance).Equal(w.ended[one.Instance])
			s.state.Observed(one.Instance, one.Target.FullVersion, reading, fresh, s.now())
			s.readsAfter(w, one.Instance)
			if err == nil {
				s.workersKnow(one.Instance, one.Target, reading)
				s.atHand[s.state.Key(one.Instance)] = slices.Contains(answer.AtHand, on.Runtime)
			}
		}
	}
}

func (s *service) workersKnow(id entities.InstanceID, target entities.Target, reading entities.Reading) {
	s.told[s.state.Key(id)] = told{target, reading.Digest()}
}

func (s *service) observeRequest(runtime string, rt entities.RuntimeSpec, interval time.Duration) protocol.ObserveRequest {
	return protocol.ObserveRequest{
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID,
		Runtime: runtime, RuntimeDigest: rt.Digest, Interval: interval, Timeout: rt.Timing.FetchTimeout,
	}
}

// longestSummary is the size of a summary in bytes: a server may refuse one of more than 400.
const longestSummary = 380

// observe starts an observation that the server repeats, without history, until it has news. The activity sets the delay of its next
// attempt itself, and the policy must not be slower.
func (s *service) observe(ctx workflow.Context, r protocol.ObserveRequest, rt entities.RuntimeSpec, text string) workflow.Future {
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, s.observing(r, rt, text)), protocol.ActivityObserve, r)
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
	options := s.observing(r, rt, text)
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.ActivityObserveAll, protocol.ObserveAllRequest{Of: all})
}

func (s *service) observing(r protocol.ObserveRequest, rt entities.RuntimeSpec, text string) workflow.ActivityOptions {
	options := workflow.ActivityOptions{
		TaskQueue:           queueOf(r.Runtime, rt),
		StartToCloseTimeout: r.Timeout + margin,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 1, MaximumInterval: max(r.Interval, rt.Timing.SteadyPollInterval, time.Second),
		},
		Summary: verb.Clip(text, longestSummary), Priority: s.priority(thenFollowing),
	}
	if r.Steady {
		options.Priority = s.priority(thenWatching)
		options.RetryPolicy.MaximumInterval = max(options.RetryPolicy.MaximumInterval, 2*protocol.SafetyInterval)
	}
	options.ScheduleToStartTimeout = absence(options.TaskQueue, s.absentFor(r), s.now())
	return options
}

// absentFor is since when no worker took an observation of these instances; zero if a worker took one, or nothing is known.
func (s *service) absentFor(r protocol.ObserveRequest) (since time.Time) {
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

// unreadable turns a failed observation into a reading with the reason.
func (s *service) unreadable(err error, runtime string, rt entities.RuntimeSpec) entities.Reading {
	e := &entities.ReadingError{Code: "unobservable", Message: rootCause(err)}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) && rt.Remote {
		e = noWorker(runtime)
	}
	return entities.Reading{Err: e, At: s.now()}
}
