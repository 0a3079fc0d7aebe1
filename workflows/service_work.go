package workflows

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

const (
	heartbeat = 10 * time.Second // of an apply: how soon a lost worker is noticed
	takeover  = 3 * time.Second  // then another one may begin: what the lost one had begun has ended by then
	margin    = 30 * time.Second // for an activity to end by itself before the server ends it
	patience  = 2 * time.Minute  // for another worker to take over, or for a first one to appear

	// For a worker of a runtime that has its own to take something: that none does must show. Once it shows, the waits grow
	// with the time that it takes; what waits begins at once when there is one.
	firstAbsence = 30 * time.Second
	lastAbsence  = 5 * time.Minute
)

// absence is how long something waits in the queue of a runtime's own worker that has taken nothing since then; zero: it
// has so far. In the common queue things wait for as long as it takes.
func absence(queue string, since, now time.Time) time.Duration {
	switch {
	case queue == protocol.TaskQueue || queue == "":
		return 0
	case since.IsZero():
		return firstAbsence
	}
	return min(max(now.Sub(since), firstAbsence), lastAbsence)
}

// untaken tells whether an error is that no worker took an activity, and none had begun it before.
func untaken(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START && !timeout.HasLastHeartbeatDetails()
}

func noWorker(runtime string) *entities.ReadingError {
	return &entities.ReadingError{Code: entities.CodeNoWorker, Message: "no worker polls " + protocol.RuntimeTaskQueue(runtime)}
}

// lasting are the options of an activity that heartbeats and is begun anew on another worker when its own is lost. Absent
// is how long it waits for one to take it, 0 where that is not looked at.
func lasting(queue string, timeout, absent time.Duration, text string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		StartToCloseTimeout:    timeout,
		ScheduleToStartTimeout: absent,
		ScheduleToCloseTimeout: timeout + max(patience, absent),
		HeartbeatTimeout:       heartbeat,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: takeover, BackoffCoefficient: 1},
		Summary:                summary(text),
	}
}

// instanceRef names an instance and a target of it to an activity. What comes back is for what the instance is called then.
func (s *service) instanceRef(id entities.InstanceID, t entities.Target) protocol.InstanceRef {
	ref := protocol.InstanceRef{ID: s.state.Key(id), FullVersion: t.FullVersion, Payload: t.Payload}
	if i := s.state.Instances[id]; i != nil {
		ref.Restarted = i.Delivery.Restarted
	}
	return ref
}

// apply starts one apply. That it failed is its answer; an error means that no worker ended it.
func (s *service) apply(op state.ApplyOp) {
	name, rt := s.state.Runtime(op.Instance)
	text := fmt.Sprintf("apply %s to %s", op.Target.FullVersion, s.state.Shown(op.Instance))
	queue := queueOf(name, rt)
	absent := absence(queue, s.state.Instance(op.Instance).Delivery.Apply.Untaken, s.now())
	options := lasting(queue, op.Timeout+rt.Timing.FetchTimeout+margin, absent, text)
	options.Priority = s.applyPriority(op.Instance)
	options.WaitForCancellation = s.state.Spec.Maestro.Strategy != "" // what could not be waited for is not asked to end
	ctx, end := workflow.WithCancel(workflow.WithActivityOptions(s.work, options))
	future := workflow.ExecuteActivity(ctx, protocol.ActivityApply, protocol.ApplyRequest{
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID,
		Runtime: name, RuntimeDigest: rt.Digest, Attempt: op.Attempt, Instance: s.instanceRef(op.Instance, op.Target),
		Timeout: op.Timeout, FetchTimeout: rt.Timing.FetchTimeout, Sequence: s.state.Instance(op.Instance).Delivery.Sequence,
		ReportOnly: s.state.ReportsOnly(op.Instance.Channel),
		Restart:    s.state.Instance(op.Instance).Delivery.Restarting,
	})
	key := s.state.Key(op.Instance)
	if options.WaitForCancellation {
		s.applies[key] = end
	}
	s.await(func(ctx workflow.Context) {
		var answer protocol.ApplyAnswer
		err := future.Get(ctx, &answer)
		delete(s.applies, key)
		op.Instance = s.state.Named(key)
		now := workflow.Now(ctx)
		switch {
		case untaken(err):
			s.state.ApplyUntaken(op.Instance, op.Target, noWorker(name), now)
			return
		case err != nil:
			s.state.ApplyLost(op.Instance, op.Target, "interrupted: "+rootCause(err), now)
			return
		case answer.Fenced != nil:
			s.state.ApplyFenced(op.Instance, op.Target, answer.Fenced.Sequence, answer.Err, now)
			s.fenced = true
			return
		case answer.Unready:
			s.state.ApplyUnready(op.Instance, op.Target, answer.Err, now)
			return
		}
		s.state.ApplyEnded(op.Instance, op.Target, answer.Err, answer.Permanent, now)
		if answer.Reading != nil && s.isOn(op.Instance, name) {
			s.state.Observed(op.Instance, op.Target.FullVersion, *answer.Reading, true, now)
		}
	})
}

// end asks the apply of an instance, or the run of an extension, to end. What it answers then is taken in as ever.
func (s *service) end(op state.EndOp) {
	end := s.applies[s.state.Key(op.Instance)]
	if op.Release != "" {
		end = s.extensions[entities.ExtensionRun(op.Release, op.Extension)]
	}
	if end != nil {
		end()
	}
}

// ask asks an exit-code runtime about a version that is not yet the target (C7).
func (s *service) ask(op state.AskOp) {
	name, bound := s.state.Bound(op.Instance, op.Target) // it may be about to move there
	rt := *bound
	request := s.observeRequest(name, rt, 0)
	request.Instances = []protocol.InstanceRef{s.instanceRef(op.Instance, op.Target)}
	future := s.observe(s.work, request, rt, "ask about "+op.Target.FullVersion+" in "+s.state.Shown(op.Instance))
	key := s.state.Key(op.Instance)
	s.await(func(ctx workflow.Context) {
		var answer protocol.ObserveAnswer
		err := future.Get(ctx, &answer)
		op.Instance = s.state.Named(key)
		reading := answer.Readings[key]
		if err != nil {
			reading = s.unreadable(err, name, rt)
		}
		reading.At = workflow.Now(ctx) // the backoff after a failed question counts from here
		s.state.AskAnswered(op.Instance, op.Target, reading)
	})
}

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
		if ok && slices.Equal(w.Watched, have.Watched) && s.watchesAs(w, have) || moving && !have.Moving {
			continue
		}
		have.cancel()
		delete(s.watches, key)
	}
	for _, key := range entities.SortedKeys(wanted) {
		if s.watches[key] == nil {
			s.startWatch(wanted[key])
		}
	}
}

// watchesAs: it goes on as its runtime is declared by now.
func (s *service) watchesAs(wanted decide.Watch, have *watch) bool {
	return s.logic < protocol.LogicAppliesFirst || reflect.DeepEqual(s.watchRequest(wanted), have.how)
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
	return request
}

func (s *service) startWatch(w decide.Watch) {
	word := "watch"
	if w.Moving {
		word = "follow"
	}
	request := s.watchRequest(w)
	running := &watch{Watch: w, how: request, ended: map[entities.InstanceID]time.Time{}}
	for _, one := range w.Watched {
		ref := s.instanceRef(one.Instance, one.Target)
		ref.Known = one.Known
		request.Instances = append(request.Instances, ref)
		running.ended[one.Instance] = s.applyEnded(one.Instance)
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
		s.state.Observed(one.Instance, one.Target.FullVersion, reading, fresh, workflow.Now(ctx))
	}
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

// queueOf: all activities share the workflows' queue, so that they can start eagerly in the same
// worker, except those of a runtime that is reached from inside its own network.
func queueOf(runtime string, rt entities.RuntimeSpec) string {
	if rt.Remote {
		return protocol.RuntimeTaskQueue(runtime)
	}
	return protocol.TaskQueue
}

// dueSummary names what is due for the Temporal UI.
func (s *service) dueSummary(at time.Time) string {
	for _, c := range s.decision.Channels {
		for _, g := range c.Gates {
			if g.Next.Equal(at) && g.Verdict != entities.Pass {
				return summary(g.ID + " " + g.Reason)
			}
		}
	}
	for _, c := range s.decision.Channels {
		if c.Due.Equal(at) {
			return c.Channel + " is due"
		}
	}
	return "try again"
}
