package workflows

import (
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

const (
	heartbeat       = 10 * time.Second // of an apply: how soon a lost worker is detected
	takeoverDelay   = 3 * time.Second  // delay before another worker starts; the work of the lost one has ended before that
	margin          = 30 * time.Second // for an activity to end before the server's timeout ends it
	takeoverTimeout = 2 * time.Minute  // for another worker to take over, or for the first one to start

	// Timeouts for a remote worker to take a task: its absence must show. Once it shows, the timeout grows with the length of the absence;
	// a waiting task starts at once when there is a worker.
	minPickupTimeout = 30 * time.Second
	maxPickupTimeout = 5 * time.Minute
)

// pickupTimeout is the schedule-to-start timeout in the queue of a remote worker that has taken nothing since then; zero since means that
// it has taken tasks so far. In the common queue there is no timeout.
func pickupTimeout(queue string, since, now time.Time) time.Duration {
	switch {
	case queue == protocol.TaskQueue || queue == "":
		return 0
	case since.IsZero():
		return minPickupTimeout
	}
	return min(max(now.Sub(since), minPickupTimeout), maxPickupTimeout)
}

// neverStarted reports whether an error says that no worker took an activity, and none had started it before.
func neverStarted(err error) bool {
	var timeout *temporal.TimeoutError
	return errors.As(err, &timeout) && timeout.TimeoutType() == enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START && !timeout.HasLastHeartbeatDetails()
}

// isPutOff reports whether an error says that an activity has not begun, because the Temporal server was overloaded until its deadline.
func isPutOff(err error) bool {
	var app *temporal.ApplicationError
	var timeout *temporal.TimeoutError // its cause is an earlier attempt
	return errors.As(err, &app) && app.Type() == protocol.ErrPutOff && !errors.As(err, &timeout)
}

func noWorkerError(runtime string) *entities.ReadingError {
	return &entities.ReadingError{Code: entities.CodeNoWorker, Message: "no worker polls " + protocol.RuntimeTaskQueue(runtime), NoAnswer: true}
}

// heartbeatOptions are the options of an activity that heartbeats and is started again on another worker when its own is lost. Absent is
// the schedule-to-start timeout, 0 for none.
func heartbeatOptions(queue string, timeout, absent time.Duration, text string) workflow.ActivityOptions {
	return workflow.ActivityOptions{
		TaskQueue:              queue,
		StartToCloseTimeout:    timeout,
		ScheduleToStartTimeout: absent,
		ScheduleToCloseTimeout: timeout + max(takeoverTimeout, absent),
		HeartbeatTimeout:       heartbeat,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: takeoverDelay, BackoffCoefficient: 1},
		Summary:                summary(text),
	}
}

// instanceRef names an instance and a target of it to an activity. The result uses the name that the instance has when it arrives.
func (s *service) instanceRef(id entities.InstanceID, t entities.Target) protocol.InstanceRef {
	ref := protocol.InstanceRef{ID: s.state.Key(id), FullVersion: t.FullVersion, Payload: t.Payload}
	if i := s.state.Instances[id]; i != nil {
		ref.Restarted, ref.ReportOnly = i.Delivery.RestartedAt, s.state.IsReportOnly(id.Channel)
	}
	return ref
}

// apply starts one apply. A failed apply is a result; an error means that no worker completed it.
func (s *service) apply(op state.ApplyOp) {
	name, rt := s.state.Runtime(op.Instance)
	text := fmt.Sprintf("apply %s to %s", op.Target.FullVersion, s.state.DisplayName(op.Instance))
	queue := taskQueueOf(name, rt)
	absent := pickupTimeout(queue, s.state.Instance(op.Instance).Delivery.Apply.NoWorkerSince, s.now())
	options := heartbeatOptions(queue, op.Timeout+rt.Timing.FetchTimeout+margin, absent, text)
	options.Priority = s.applyPriority(op.Instance)
	options.WaitForCancellation = true
	ctx, end := workflow.WithCancel(workflow.WithActivityOptions(s.workCtx, options))
	future := workflow.ExecuteActivity(ctx, protocol.ActivityApply, protocol.ApplyRequest{
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID,
		Runtime: name, RuntimeDigest: rt.Digest, Attempt: op.Attempt, Instance: s.instanceRef(op.Instance, op.Target),
		Timeout: op.Timeout, Last: op.Last, FetchTimeout: rt.Timing.FetchTimeout, Sequence: s.state.Instance(op.Instance).Delivery.Sequence,
		ReportOnly:         s.state.IsReportOnly(op.Instance.Channel),
		Urgent:             s.isRollingBack(op.Instance),
		Restart:            s.state.Instance(op.Instance).Delivery.Restarting,
		SteadyPollInterval: s.steadyPollInterval(rt),
	})
	key := s.state.Key(op.Instance)
	s.applies[key] = end
	s.trackOperation(func(ctx workflow.Context) {
		var answer protocol.ApplyAnswer
		err := future.Get(ctx, &answer)
		delete(s.applies, key)
		op.Instance = s.state.IDByKey(key)
		now := workflow.Now(ctx)
		switch {
		case neverStarted(err):
			s.state.NoWorkerForApply(op.Instance, op.Target, noWorkerError(name), now)
			return
		case isPutOff(err):
			s.state.ApplyUnready(op.Instance, op.Target, rootCause(err), now)
			return
		case err != nil:
			s.state.ApplyLost(op.Instance, op.Target, "interrupted: "+rootCause(err), now, lostDelay(err))
			return
		case rt.Observable && answer == (protocol.ApplyAnswer{}): // a worker adds a reading
			s.state.ApplyLost(op.Instance, op.Target, "interrupted: its activity was completed by an operator", now, lostDelay(nil))
			return
		case answer.Fenced != nil:
			s.state.ApplyFenced(op.Instance, op.Target, answer.Fenced.Sequence, answer.Err, now)
			// Where the installation was moved to, it continues alone. With the state from there, checkpoints of this run would replace those of that one.
			if answer.Fenced.Sequence > 0 {
				s.fenced = true
			}
			return
		case answer.Unready:
			s.state.ApplyUnready(op.Instance, op.Target, answer.Err, now)
			if answer.Reading != nil && answer.Reading.Err.SaysNothing() { // the next attempt waits for another one
				s.recordApplyReading(op, name, *answer.Reading, now)
			}
			return
		}
		s.state.ApplyBegunAgain(op.Instance, op.Target, answer.Begun, now)
		hinted := s.state.Instance(op.Instance).Observed.Requested // perhaps after the reading that ended the apply
		s.state.ApplyEnded(op.Instance, op.Target, answer.Err, answer.Permanent, now)
		if answer.Reading != nil && s.recordApplyReading(op, name, *answer.Reading, now) {
			if hinted {
				s.state.Instance(op.Instance).Observed.Requested = true
			}
			s.servedFromWatchCache[key], s.applyJustEnded = answer.ServedFromWatchCache, true
		}
	})
}

// recordApplyReading records the reading at the end of an apply, unless the instance is on another runtime by now.
func (s *service) recordApplyReading(op state.ApplyOp, runtime string, r entities.Reading, now time.Time) bool {
	if !s.runsOn(op.Instance, runtime) {
		return false
	}
	s.state.RecordReading(op.Instance, op.Target.FullVersion, r, true, now)
	s.setLastReported(op.Instance, op.Target, r)
	return true
}

// lostDelay is how long after the end of a lost apply the next attempt starts. The apply may have ended without the worker's knowledge, for
// example by an operator. The worker learns of that by its next heartbeat, or stops when it can send none. A cancelled apply has ended there.
func lostDelay(err error) time.Duration {
	if temporal.IsCanceledError(err) {
		return 0
	}
	return heartbeat + takeoverDelay
}

// cancelOp cancels the apply of an instance, or the run of an extension. Its result is recorded as usual.
func (s *service) cancelOp(op state.EndOp) {
	end := s.applies[s.state.Key(op.Instance)]
	if op.Release != "" {
		end = s.extensions[entities.ExtensionRun(op.Release, op.Extension)]
	}
	if end != nil {
		end()
	}
}

// queryVersion queries an exit-code runtime about a version that is not yet the target (C7).
func (s *service) queryVersion(op state.QueryOp) {
	name, bound := s.state.TargetRuntime(op.Instance, op.Target) // the instance may be about to move there
	rt := *bound
	request := s.observeRequest(name, rt, 0)
	request.Instances = []protocol.InstanceRef{s.instanceRef(op.Instance, op.Target)}
	future := s.observe(s.workCtx, request, rt, "query "+op.Target.FullVersion+" in "+s.state.DisplayName(op.Instance))
	key := s.state.Key(op.Instance)
	s.trackOperation(func(ctx workflow.Context) {
		var answer protocol.ObserveAnswer
		err := future.Get(ctx, &answer)
		op.Instance = s.state.IDByKey(key)
		reading := answer.Readings[key]
		if err != nil {
			reading = s.failedReading(err, name, rt)
		}
		reading.At = workflow.Now(ctx) // the backoff after a failed query starts here
		s.state.RecordQueryAnswer(op.Instance, op.Target, reading)
	})
}

// taskQueueOf is the task queue of an activity. Activities share the workflows' queue, so that they can start eagerly in the same worker,
// except those of a runtime with remote workers in its own network.
func taskQueueOf(runtime string, rt entities.RuntimeSpec) string {
	if rt.Remote {
		return protocol.RuntimeTaskQueue(runtime)
	}
	return protocol.TaskQueue
}

// dueSummary names the next due item for the Temporal UI.
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
	return "retry"
}
