package workflows

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

const (
	heartbeat = 10 * time.Second // of an apply: how soon a lost worker is noticed
	margin    = 30 * time.Second // for an activity to end by itself before the server ends it
	patience  = 2 * time.Minute  // for another worker to take over, or for a first one to appear
)

// apply starts one apply. That it failed is its answer; an error means that no worker ended it.
func (s *service) apply(op entities.ApplyOp) {
	spec := s.state.Spec
	rt, runtime := s.runtimeOf(op.Channel)
	timeout := op.Timeout + rt.Timing.FetchTimeout + margin
	ctx := workflow.WithActivityOptions(s.ctx, workflow.ActivityOptions{
		TaskQueue:              queueOf(runtime, rt),
		StartToCloseTimeout:    timeout,
		ScheduleToCloseTimeout: timeout + patience,
		HeartbeatTimeout:       heartbeat,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1},
		Summary:                fmt.Sprintf("apply %s to %s", op.Target.FullVersion, op.Channel),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityApply, protocol.ApplyRequest{
		Application: s.state.Application, Service: s.state.Service, ServiceID: spec.ServiceID,
		Runtime: runtime, RuntimeDigest: rt.Digest, Attempt: op.Attempt,
		Instance: protocol.InstanceRef{Channel: op.Channel, FullVersion: op.Target.FullVersion, Payload: op.Target.Payload},
		Timeout:  op.Timeout, FetchTimeout: rt.Timing.FetchTimeout,
	})
	s.await(func(ctx workflow.Context) {
		var answer protocol.ApplyAnswer
		now := func() time.Time { return workflow.Now(ctx) }
		if err := future.Get(ctx, &answer); err != nil {
			s.state.ApplyLost(op.Channel, op.Target, "interrupted: "+rootCause(err), now())
			return
		}
		if answer.Unready {
			s.state.ApplyUnready(op.Channel, op.Target, answer.Err, now())
			return
		}
		s.state.ApplyEnded(op.Channel, op.Target, answer.Err, answer.Permanent, now())
		if answer.Reading != nil {
			s.state.Looked(op.Channel, op.Target.FullVersion, *answer.Reading, true, now())
		}
	})
}

// ask asks an exit-code runtime about a version that is not yet the target (C7).
func (s *service) ask(op entities.AskOp) {
	rt, runtime := s.runtimeOf(op.Channel)
	request := s.observeRequest(runtime, rt, 0)
	request.Instances = []protocol.InstanceRef{{Channel: op.Channel, FullVersion: op.Target.FullVersion, Payload: op.Target.Payload}}
	future := s.observe(s.ctx, request, rt, "ask about "+op.Target.FullVersion+" in "+op.Channel)
	s.await(func(ctx workflow.Context) {
		var answer protocol.ObserveAnswer
		if err := future.Get(ctx, &answer); err != nil {
			answer.Readings = map[string]entities.Reading{op.Channel: s.unreadable(err, runtime, rt)}
		}
		reading := answer.Readings[op.Channel]
		reading.At = workflow.Now(ctx) // the backoff after a failed question counts from here
		s.state.AskAnswered(op.Channel, op.Target, reading)
	})
}

// await runs a coroutine that takes in the result of something in flight.
func (s *service) await(take func(workflow.Context)) {
	s.busy++
	workflow.Go(s.ctx, func(ctx workflow.Context) {
		take(ctx)
		s.busy--
		s.woken = true
	})
}

// watch is a look under way: it returns when something is not as known.
type watch struct {
	entities.Watch
	cancel workflow.CancelFunc
	ended  map[string]time.Time // by channel: when the last apply had ended when the watch began
}

// arrangeWatches makes what is under observation what should be (DESIGN section 3, observing
// without history). While anything moves, a steady watch is left as it is even though what it
// knows grows old: replacing it once at the end costs less history, and meanwhile the moving ones
// are looked at by a watch of their own.
func (s *service) arrangeWatches() {
	if s.ending() && s.atRest() {
		return // the next run starts its own
	}
	wanted := map[string]entities.Watch{}
	moving := s.busy > 0
	for _, w := range s.state.Watches() {
		wanted[w.Key()] = w
		moving = moving || w.Moving
	}
	for _, key := range entities.SortedKeys(s.watches) {
		have := s.watches[key]
		w, ok := wanted[key]
		if ok && slices.Equal(w.Looks, have.Looks) || moving && !have.Moving {
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

func (s *service) startWatch(w entities.Watch) {
	rt := s.state.Spec.Runtimes[w.Runtime]
	interval, word := rt.Timing.SteadyPollInterval, "watch "
	if w.Moving {
		interval, word = rt.Timing.PollInterval, "follow "
	}
	request := s.observeRequest(w.Runtime, rt, interval)
	running := &watch{Watch: w, ended: map[string]time.Time{}}
	names := word
	for n, l := range w.Looks {
		request.Instances = append(request.Instances, protocol.InstanceRef{
			Channel: l.Channel, FullVersion: l.Target.FullVersion, Payload: l.Target.Payload, Known: l.Known,
		})
		running.ended[l.Channel] = s.state.Instance(l.Channel).Progress.Ended
		if n < 5 {
			names += l.Channel + " "
		}
	}
	if n := len(w.Looks); n > 5 {
		names += fmt.Sprintf("and %d more ", n-5)
	}
	ctx, cancel := workflow.WithCancel(s.ctx)
	running.cancel = cancel
	s.watches[w.Key()] = running
	future := s.observe(ctx, request, rt, names+"on "+w.Runtime)
	workflow.Go(ctx, func(ctx workflow.Context) { s.watched(ctx, running, future) })
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
	if err != nil {
		rt := s.state.Spec.Runtimes[w.Runtime]
		answer.Readings = map[string]entities.Reading{}
		for _, l := range w.Looks {
			answer.Readings[l.Channel] = s.unreadable(err, w.Runtime, rt)
		}
	}
	for _, l := range w.Looks {
		reading, seen := answer.Readings[l.Channel]
		if !seen {
			continue
		}
		fresh := s.state.Instance(l.Channel).Progress.Ended.Equal(w.ended[l.Channel])
		s.state.Looked(l.Channel, l.Target.FullVersion, reading, fresh, workflow.Now(ctx))
	}
}

func (s *service) observeRequest(runtime string, rt entities.RuntimeSpec, interval time.Duration) protocol.ObserveRequest {
	return protocol.ObserveRequest{
		Application: s.state.Application, Service: s.state.Service, ServiceID: s.state.Spec.ServiceID,
		Runtime: runtime, RuntimeDigest: rt.Digest, Interval: interval, Timeout: rt.Timing.FetchTimeout,
	}
}

// observe starts a look that is repeated by the server, without history, until it has news: the
// activity asks for its next attempt itself, and the policy must not be slower than it asks.
func (s *service) observe(ctx workflow.Context, r protocol.ObserveRequest, rt entities.RuntimeSpec, summary string) workflow.Future {
	options := workflow.ActivityOptions{
		TaskQueue:           queueOf(r.Runtime, rt),
		StartToCloseTimeout: r.Timeout + margin,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 1, MaximumInterval: max(r.Interval, rt.Timing.SteadyPollInterval, time.Second),
		},
		Summary: summary,
	}
	if rt.Remote { // somebody else's worker: that there is none must show
		options.ScheduleToStartTimeout = patience
	}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, options), protocol.ActivityObserve, r)
}

// unreadable turns an observation that did not end into a reading that says why.
func (s *service) unreadable(err error, runtime string, rt entities.RuntimeSpec) entities.Reading {
	e := &entities.ReadingError{Code: "unobservable", Message: rootCause(err)}
	var timeout *temporal.TimeoutError
	if errors.As(err, &timeout) && rt.Remote {
		e = &entities.ReadingError{Code: "no-worker", Message: "no worker polls " + queueOf(runtime, rt)}
	}
	return entities.Reading{Err: e, At: workflow.Now(s.ctx)}
}

func (s *service) runtimeOf(channel string) (entities.RuntimeSpec, string) {
	c, _ := s.state.Spec.Channel(channel)
	return s.state.Spec.Runtimes[c.Runtime], c.Runtime
}

// queueOf: all activities share the workflows' queue, so that they can start eagerly in the same
// worker, except those of a runtime that is reached from inside its own network.
func queueOf(runtime string, rt entities.RuntimeSpec) string {
	if rt.Remote {
		return protocol.RuntimeTaskQueue(runtime)
	}
	return protocol.TaskQueue
}

// timer is the one timer of a run: made again only when something is due earlier.
type timer struct {
	at     time.Time
	cancel workflow.CancelFunc
}

// wakeAt arranges that the loop wakes at a time; zero is never.
func (s *service) wakeAt(at time.Time) {
	if !s.timer.at.IsZero() && !at.IsZero() && !at.Before(s.timer.at) {
		return // it fires early, and then the loop decides again
	}
	if !s.timer.at.IsZero() {
		s.timer.cancel()
		s.timer = timer{}
	}
	if at.IsZero() || s.ending() && s.atRest() {
		return
	}
	ctx, cancel := workflow.WithCancel(s.ctx)
	s.timer = timer{at: at, cancel: cancel}
	due := max(at.Sub(workflow.Now(ctx)), time.Millisecond)
	future := workflow.NewTimerWithOptions(ctx, due, workflow.TimerOptions{Summary: s.dueSummary(at)})
	workflow.Go(ctx, func(ctx workflow.Context) {
		if future.Get(ctx, nil) == nil && s.timer.at.Equal(at) {
			s.timer = timer{}
			s.woken = true
		}
	})
}

// dueSummary names what is due for the Temporal UI.
func (s *service) dueSummary(at time.Time) string {
	for _, c := range s.decision.Channels {
		for _, g := range c.Gates {
			if g.Next.Equal(at) && g.Verdict != entities.Pass {
				return clip(g.ID+" "+g.Reason, maxSummary)
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

// maxSummary bounds a line for the Temporal UI, in bytes.
const maxSummary = 120
