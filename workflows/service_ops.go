package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

const (
	preflightTimeout = checkTimeout     // for one reading of all checks
	removeTimeout    = 10 * time.Minute // where the runtime names none
)

// preflight reads all checks of a channel once, now (A10): unless what woke this turn has just read
// them all. One that cannot be read is an ERROR, which delays: it is asked for anew when the core
// wants it.
func (s *service) preflight(op entities.PreflightOp) {
	if readings, ok := s.readJustNow(op.Checks); ok {
		s.state.PreflightDone(op, readings, workflow.Now(s.ctx))
		s.woken = true
		return
	}
	future := s.readOnce(op)
	s.await(func(ctx workflow.Context) {
		var answer protocol.CheckAnswer
		err := future.Get(ctx, &answer)
		now := workflow.Now(ctx)
		if err != nil {
			answer.Readings = unjudged(op.Checks, err, now)
		}
		s.state.PreflightDone(op, answer.Readings, now)
	})
}

// readOnce reads all checks of a preflight, in this workflow task if none of them asks anybody.
func (s *service) readOnce(op entities.PreflightOp) workflow.Future {
	if offline(op.Checks) {
		return s.judgeHere(s.ctx, op.Checks)
	}
	summary := fmt.Sprintf("preflight %s for %s", versionOf(op.Checks), op.Channel)
	if op.Window {
		summary = fmt.Sprintf("last look at %s in %s", versionOf(op.Checks), op.Channel)
	}
	ctx := workflow.WithActivityOptions(s.ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    preflightTimeout,
		ScheduleToCloseTimeout: preflightTimeout + patience,
		HeartbeatTimeout:       heartbeat,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumAttempts: 3},
		Summary:                clip(summary, maxSummary),
	})
	return workflow.ExecuteActivity(ctx, protocol.ActivityPreflight, s.checkRequest(op.Checks))
}

// versionOf is what the checks of one preflight are asked about.
func versionOf(looks []entities.CheckLook) string {
	if len(looks) == 0 {
		return "nothing"
	}
	return looks[0].FullVersion
}

// unjudged are the readings of checks that could not be judged at all.
func unjudged(looks []entities.CheckLook, err error, now time.Time) map[string]entities.CheckReading {
	out := map[string]entities.CheckReading{}
	for _, l := range looks {
		out[l.Key()] = entities.CheckReading{Verdict: entities.Error, Reason: clip(rootCause(err), maxRefusal), At: now}
	}
	return out
}

// extend runs an extension once (A21). When its worker is lost it is run again on another: like an
// apply, it must bear that.
func (s *service) extend(op entities.ExtensionOp) {
	r, e := s.state.ReleaseByID(op.Release), op.Extension
	if r == nil {
		return // pruned in the same turn; nobody waits for it
	}
	_, runtime := s.runtimeOf(op.Channel)
	timeout := e.Timeout + margin
	ctx := workflow.WithActivityOptions(s.ctx, workflow.ActivityOptions{
		TaskQueue:              queueOf(runtime, entities.RuntimeSpec{Remote: e.Remote}),
		StartToCloseTimeout:    timeout,
		ScheduleToCloseTimeout: timeout + patience,
		HeartbeatTimeout:       heartbeat,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1},
		Summary:                clip(fmt.Sprintf("run %s for %s in %s", e.Name, r.FullVersion, op.Channel), maxSummary),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityExtension, protocol.ExtensionRequest{
		Application: s.state.Application, Service: s.state.Service, ServiceID: s.state.Spec.ServiceID,
		Channel: op.Channel, Release: op.Release, Version: r.Version, FullVersion: r.FullVersion,
		Name: e.Name, Key: e.ExtensionKey(), Definition: e.Definition, Attempt: op.Attempt, Timeout: e.Timeout,
	})
	s.await(func(ctx workflow.Context) {
		var answer protocol.ExtensionAnswer
		if err := future.Get(ctx, &answer); err != nil {
			answer.Err = "interrupted: " + rootCause(err)
		}
		s.state.ExtensionEnded(op, answer.Err, clip(answer.Tail, maxTail), answer.Log, workflow.Now(ctx))
	})
}

// maxTail bounds what is kept of an extension's output, in bytes.
const maxTail = 500

// remove takes down what a channel's instance is made of (A24).
func (s *service) remove(op entities.RemoveOp) {
	runtime, rt := s.state.RuntimeOf(op.Channel) // it may be of a channel that is no longer declared
	timeout := rt.Timing.ApplyTimeout
	if timeout <= 0 {
		timeout = removeTimeout
	}
	ctx := workflow.WithActivityOptions(s.ctx, workflow.ActivityOptions{
		TaskQueue:              queueOf(runtime, rt),
		StartToCloseTimeout:    timeout + margin,
		ScheduleToCloseTimeout: timeout + margin + patience,
		HeartbeatTimeout:       heartbeat,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 1},
		Summary:                clip(fmt.Sprintf("remove %s from %s", op.Target.FullVersion, op.Channel), maxSummary),
	})
	future := workflow.ExecuteActivity(ctx, protocol.ActivityRemove, protocol.RemoveRequest{
		Application: s.state.Application, Service: s.state.Service, ServiceID: s.state.Spec.ServiceID,
		Runtime: runtime, RuntimeDigest: rt.Digest, Timeout: timeout,
		Instance: protocol.InstanceRef{Channel: op.Channel, FullVersion: op.Target.FullVersion, Payload: op.Target.Payload},
	})
	s.await(func(ctx workflow.Context) {
		var answer protocol.RemoveAnswer
		if err := future.Get(ctx, &answer); err != nil {
			answer.Err = "interrupted: " + rootCause(err)
		}
		s.state.Removed(op, answer.Err, workflow.Now(ctx))
	})
}
