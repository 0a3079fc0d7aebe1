package workflows

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// This file has instances observed: what moves by activities of the service, what was hinted at within the task of the hint, and what
// is steady by workers, who are told what to compare it with (docs/decisions/0086-what-is-hinted-at-is-read-at-once.md).

// watch is an observation under way: it returns when something is not as known.
type watch struct {
	decide.Watch
	how    protocol.ObserveRequest // without instances
	cancel workflow.CancelFunc
	ended  map[entities.InstanceID]time.Time // when the last apply had ended when the watch began
}

// arrangeWatches makes what is under observation what should be. An observation is an activity that the server
// repeats without history, and that ends when it has news. While anything moves, a steady watch is left as it is even
// though what it knows grows old: replacing it once at the end costs less history, and meanwhile the moving instances
// are observed by a watch of their own.
func (s *service) arrangeWatches() {
	applied := s.applied
	s.deferred, s.applied = false, false
	if s.leaving() {
		return // the next run starts its own
	}
	wanted := map[string]decide.Watch{}
	moving := s.busy > 0
	for _, w := range decide.Watches(s.state, s.logic < protocol.LogicFitsPayloads) {
		wanted[w.Key()] = w
		moving = moving || w.Moving
	}
	for _, key := range entities.SortedKeys(s.watches) {
		have := s.watches[key]
		w, ok := wanted[key]
		if ok && s.stands(w, have) || moving && !have.Moving {
			continue
		}
		have.cancel()
		delete(s.watches, key)
	}
	for _, key := range entities.SortedKeys(wanted) {
		switch {
		case s.watches[key] != nil:
		case (applied || !s.showing.at.IsZero()) && s.followsLater(wanted[key]):
			s.deferred = true
		default:
			s.startWatch(wanted[key])
		}
	}
}

// stands: what is under way says all that the wanted one would, or workers would say the rest, who know what to compare it with.
func (s *service) stands(wanted decide.Watch, have *watch) bool {
	if !s.watchesAs(wanted, have) || len(wanted.Watched) != len(have.Watched) {
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
func (s *service) watchesAs(wanted decide.Watch, have *watch) bool {
	return s.logic < protocol.LogicAppliesFirst || reflect.DeepEqual(s.watchRequest(wanted), have.how)
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
		by = s.now().Add(shownWithin)
	}
	return s.deferred && (due.IsZero() || due.After(by))
}

// rest is how often workers read what is steady on a runtime; zero where the server has it read, by observations that begin anew.
func (s *service) rest(rt entities.RuntimeSpec) time.Duration {
	if s.logic < protocol.LogicReadsHere || rt.Remote || !rt.Observable || rt.Timing.SteadyPollInterval < protocol.ShortestRound {
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
	if s.logic < protocol.LogicReadsHere || s.leaving() {
		return
	}
	for _, w := range decide.Watches(s.state, false) {
		if !w.Moving || s.state.RuntimeNamed(w.Runtime).Remote {
			continue
		}
		under := s.watches[w.Key()]
		w.Watched = slices.DeleteFunc(w.Watched, func(one decide.Watched) bool {
			return one.Known != "" || !s.atHand[s.state.Key(one.Instance)] || under != nil && slices.Contains(under.Watched, one)
		})
		if len(w.Watched) == 0 || len(w.Watched) > mostReadHere {
			continue
		}
		asked, request := s.watchOf(w)
		var answer protocol.ObserveAnswer
		if (localCall{name: protocol.ActivityObserve, request: request, patient: briefly, tries: 1}).do(s.ctx, &answer) == nil {
			s.takeIn(asked, answer, nil)
			continue
		}
		for _, one := range w.Watched {
			s.atHand[s.state.Key(one.Instance)] = false // until whoever reads it next says otherwise
		}
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
func (s *service) watchOf(w decide.Watch) (*watch, protocol.ObserveRequest) {
	request := s.watchRequest(w)
	begun := &watch{Watch: w, how: request, ended: map[entities.InstanceID]time.Time{}}
	for _, one := range w.Watched {
		ref := s.instanceRef(one.Instance, one.Target)
		ref.Known = one.Known
		request.Instances = append(request.Instances, ref)
		begun.ended[one.Instance] = s.applyEnded(one.Instance)
	}
	return begun, request
}

func (s *service) startWatch(w decide.Watch) {
	word := "watch"
	if w.Moving {
		word = "follow"
	}
	running, request := s.watchOf(w)
	for _, one := range w.Watched { // also by what it finds as it is known
		s.told[s.state.Key(one.Instance)] = told{one.Target, one.Known}
	}
	names := firsts(w.Watched, 5, func(one decide.Watched) string { return s.state.Shown(one.Instance) })
	ctx, cancel := workflow.WithCancel(s.work)
	running.cancel = cancel
	s.watches[w.Key()] = running
	future := s.observe(ctx, request, *s.state.RuntimeNamed(w.Runtime), word+names+" on "+w.Runtime)
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
	var answer protocol.ObserveAnswer
	err := future.Get(ctx, &answer)
	if s.watches[w.Key()] != w {
		return // replaced meanwhile
	}
	delete(s.watches, w.Key())
	s.woken = true
	s.takeIn(w, answer, err)
}

// takeIn takes in what an observation answered, or why it did not.
func (s *service) takeIn(w *watch, answer protocol.ObserveAnswer, err error) {
	for _, one := range w.Watched {
		reading, seen := answer.Readings[s.state.Key(one.Instance)]
		if err != nil {
			reading = s.unreadable(err, w.Runtime, *s.state.RuntimeNamed(w.Runtime))
		} else if !seen {
			continue
		}
		if !s.isOn(one.Instance, w.Runtime) {
			continue // it has moved meanwhile
		}
		fresh := s.applyEnded(one.Instance).Equal(w.ended[one.Instance])
		s.state.Observed(one.Instance, one.Target.FullVersion, reading, fresh, s.now())
		if err == nil {
			s.workersKnow(one.Instance, one.Target, reading)
			s.atHand[s.state.Key(one.Instance)] = answer.AtHand
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
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.ActivityObserve, r)
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
