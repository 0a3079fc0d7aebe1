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

// This file has instances observed: what moves by activities of the service, what was hinted at within the task of the hint, and what
// is steady by workers, who are told what to compare it with (docs/decisions/0012-a-release-takes-one-activity.md).

// watch is an observation under way: it returns when something is not as known.
type watch struct {
	key    string
	of     []decide.Watch            // on a runtime each
	how    []protocol.ObserveRequest // of each, without instances
	cancel workflow.CancelFunc
	ended  map[entities.InstanceID]time.Time // when the last apply had ended when the watch began
	asked  map[entities.InstanceID]int       // how often a reading had been asked for by then
}

func (w *watch) moving() bool { return w.of[0].Moving }

// arrangeWatches makes what is under observation what should be. An observation is an activity that the server
// repeats without history, and that ends when it has news. While anything moves, a steady watch is left as it is even
// though what it knows grows old: replacing it once at the end costs less history, and meanwhile the moving instances
// are observed by a watch of their own. Begins: an apply begins now.
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

// endWatches ends what is under observation and should not be, or otherwise; what is steady stays while anything moves.
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

// covers: all that is wanted is under observation, or read by workers.
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

// wantedWatches is what should be under observation, by the key of the observation, and whether anything moves.
func (s *service) wantedWatches() (wanted map[string][]decide.Watch, moving bool) {
	wanted, moving = map[string][]decide.Watch{}, s.busy > 0
	for _, w := range decide.Watches(s.state, false) {
		key := s.together(w)
		wanted[key] = append(wanted[key], w)
		moving = moving || w.Moving
	}
	return wanted, moving
}

// runtimesTogether is how many runtimes one observation has at most, so that what it is asked fits into a payload (F8).
const runtimesTogether = 25

// together names the observation that a watch is part of: one of its own, or what the service knows nothing of yet is observed on all runtimes at once, and what
// is steady likewise where workers read it. Whatever runtime hangs of those that are new is observed alone from then on.
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

// restsTogether: it is steady, and workers read it by themselves.
func (s *service) restsTogether(w decide.Watch) bool {
	return !w.Moving && s.rest(*s.state.RuntimeNamed(w.Runtime)) > 0
}

// nothingRead: no reading of any instance has come yet.
func (s *service) nothingRead() bool {
	for _, i := range s.state.Instances {
		if !i.Observed.At.IsZero() {
			return false
		}
	}
	return true
}

// stand: what is under way says all that the wanted ones would.
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

// stands: what is under way says all that the wanted one would, or workers would say the rest, who know what to compare it with.
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

// watchesAs: it goes on as its runtime is declared by now.
func (s *service) watchesAs(wanted decide.Watch, how protocol.ObserveRequest) bool {
	return reflect.DeepEqual(s.watchRequest(wanted), how)
}

// followLater is followsLater of each.
func (s *service) followLater(all []decide.Watch) bool {
	return !slices.ContainsFunc(all, func(w decide.Watch) bool { return !s.followsLater(w) })
}

// followsLater: workers hear of every change of all that moves, and an apply of it began a moment ago, or ended just now. Most of that is over
// before anybody would have looked twice.
func (s *service) followsLater(w decide.Watch) bool {
	if !w.Moving || s.rest(*s.state.RuntimeNamed(w.Runtime)) == 0 {
		return false
	}
	return !slices.ContainsFunc(w.Watched, func(one decide.Watched) bool {
		return one.Known == "" || !s.atHand[s.state.Key(one.Instance)]
	})
}

// wakesBefore: by the time that something is due the run wakes to follow what it follows later, and sees to it then.
func (s *service) wakesBefore(due time.Time) bool {
	due = earliest(due, s.outages.next())
	by := s.showing.at
	if by.IsZero() {
		by = s.now().Add(s.shownWithin())
	}
	return s.deferred && (due.IsZero() || due.After(by))
}

// rest is how often workers read what is steady on a runtime; zero where the server has it read, by observations that begin anew.
func (s *service) rest(rt entities.RuntimeSpec) time.Duration {
	if rt.Remote || !rt.Observable || rt.Timing.SteadyPollInterval < protocol.ShortestRound {
		return 0
	}
	return rt.Timing.SteadyPollInterval
}

// told is what workers have to compare an instance with: a digest of what was read, and of which target.
type told struct {
	target entities.Target
	digest string
}

// mostReadHere is how many instances are read within a workflow task at most.
const mostReadHere = 10

// readHere reads what is asked for where workers have it at hand: no activity, and no task for its answer, stands between a hint and what
// follows from it. What cannot be read so at once is observed as ever.
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
			s.atHand[s.state.Key(one.Instance)] = false // until whoever reads it next says otherwise
		}
	}
}

// lookHere has all that a service knows nothing of yet read within the task that took it in, once, where each runtime answers a worker at
// once: what is decided first waits for no activity then (docs/decisions/0012-a-release-takes-one-activity.md).
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

// watchRequest asks for an observation of no instance yet.
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

// watchOf is an observation that begins now, and what it asks.
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
	for _, one := range watched { // also by what it finds as it is known
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

// isOn tells whether an instance is still on a runtime: what is read there afterwards says nothing of it.
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

// watched takes in what a watch saw.
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
		return // replaced meanwhile
	}
	delete(s.watches, w.key)
	s.woken = true
	s.takeIn(w, answer, err)
}

// readsAfter: what was asked for while an observation was under way is read anew, since that may have read before.
func (s *service) readsAfter(w *watch, id entities.InstanceID) {
	if i := s.state.Instances[id]; i != nil && s.state.Refreshed(id) != w.asked[id] {
		i.Observed.Requested = true
	}
}

// allOf is the answer to an observation on one runtime.
func allOf(a protocol.ObserveAnswer, w decide.Watch) protocol.ObserveAllAnswer {
	all := protocol.ObserveAllAnswer{Readings: a.Readings}
	if a.AtHand {
		all.AtHand = []string{w.Runtime}
	}
	return all
}

// takeIn takes in what an observation answered, or why it did not.
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
				continue // it has moved meanwhile
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

// longestSummary is how many bytes a summary may have: a server may refuse one of more than 400.
const longestSummary = 380

// observe starts an observation that is repeated by the server, without history, until it has news: the
// activity asks for its next attempt itself, and the policy must not be slower than it asks.
func (s *service) observe(ctx workflow.Context, r protocol.ObserveRequest, rt entities.RuntimeSpec, text string) workflow.Future {
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, s.observing(r, rt, text)), protocol.ActivityObserve, r)
}

// observeAll starts an observation on several runtimes, of which none is reached by workers of its own, or on one.
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

// absentFor is since when no worker took an observation of these instances; zero: of one it did, or nothing is known.
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

// unreadable turns an observation that did not end into a reading that says why.
func (s *service) unreadable(err error, runtime string, rt entities.RuntimeSpec) entities.Reading {
	e := &entities.ReadingError{Code: "unobservable", Message: rootCause(err)}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) && rt.Remote {
		e = noWorker(runtime)
	}
	return entities.Reading{Err: e, At: s.now()}
}
