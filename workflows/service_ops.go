package workflows

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

const (
	preflightTimeout = checkTimeout     // for one evaluation of all checks
	removeTimeout    = 10 * time.Minute // if the runtime defines none
)

// preflight evaluates all checks of a channel once, now (A10), unless readings of all of them caused this reconciliation. A check that
// cannot be evaluated is an ERROR, which delays the release; it is evaluated again when the decision requires it.
func (s *service) preflight(op state.PreflightOp) {
	if readings, ok := s.freshReadingsOf(op.Checks); ok {
		s.state.RecordPreflight(op, readings, s.now())
		s.woken = true
		return
	}
	parts := s.groupForOneRun(op.Checks)
	futures := map[string]workflow.Future{}
	for _, key := range entities.SortedKeys(parts) {
		futures[key] = s.evaluateOnce(op, parts[key][0].Runtime, parts[key])
	}
	s.trackOperation(func(ctx workflow.Context) {
		readings := map[string]entities.CheckReading{}
		for _, key := range entities.SortedKeys(futures) {
			var answer protocol.CheckAnswer
			if err := futures[key].Get(ctx, &answer); err != nil {
				answer.Readings = errorReadings(parts[key], err, workflow.Now(ctx))
			}
			maps.Copy(readings, answer.Readings)
		}
		s.state.RecordPreflight(op, readings, workflow.Now(ctx))
	})
}

// byRuntime groups checks by the runtime whose remote worker evaluates them; "": any worker.
func byRuntime(checks []entities.Evaluation) map[string][]entities.Evaluation {
	out := map[string][]entities.Evaluation{}
	for _, e := range checks {
		out[e.Runtime] = append(out[e.Runtime], e)
	}
	return out
}

// groupForOneRun groups checks that are evaluated once, by runtime and in parts that fit into payloads.
func (s *service) groupForOneRun(checks []entities.Evaluation) map[string][]entities.Evaluation {
	out := byRuntime(checks)
	for _, runtime := range entities.SortedKeys(out) {
		all := out[runtime]
		for n := 1; len(all) > 2*checksPerPart; n++ {
			key := fmt.Sprintf("%s/%d", runtime, n)
			all, out[key] = all[:len(all)-2*checksPerPart], all[len(all)-2*checksPerPart:]
		}
		out[runtime] = all
	}
	return out
}

// evaluateOnce evaluates the checks of a preflight on a runtime's remote worker, or on any worker; within this workflow task if all checks
// are offline.
func (s *service) evaluateOnce(op state.PreflightOp, runtime string, checks []entities.Evaluation) workflow.Future {
	if allOffline(checks) {
		return s.evaluateLocally(s.workCtx, s.checkRequest(checks))
	}
	text := fmt.Sprintf("preflight %s for %s", versionOf(checks), op.Channel)
	if op.Window {
		text = fmt.Sprintf("last evaluation of %s in %s", versionOf(checks), op.Channel)
	}
	queue := checkQueue(runtime)
	options := heartbeatOptions(queue, preflightTimeout, pickupTimeout(queue, s.noWorkerSince[runtime], s.now()), text)
	options.RetryPolicy = &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumAttempts: 3}
	return workflow.ExecuteActivity(workflow.WithActivityOptions(s.workCtx, options), protocol.ActivityPreflight, s.checkRequest(checks))
}

// versionOf is the version that the checks of a preflight are about.
func versionOf(checks []entities.Evaluation) string {
	if len(checks) == 0 {
		return "nothing"
	}
	return checks[0].FullVersion
}

// errorReadings gives readings for checks that could not be evaluated at all.
func errorReadings(checks []entities.Evaluation, err error, now time.Time) map[string]entities.CheckReading {
	out := map[string]entities.CheckReading{}
	for _, e := range checks {
		reason := rootCause(err)
		if e.Runtime != "" && neverStarted(err) {
			reason = entities.CodeNoWorker + ": " + noWorkerError(e.Runtime).Message
		}
		out[e.Key()] = entities.CheckReading{Verdict: entities.Error, Reason: clip(reason), At: now}
	}
	return out
}

// maxTail is how much of an extension's output is kept, in bytes.
const maxTail = 500

// runExtension runs an extension once (A21). If its worker is lost, another worker runs it again: like an apply, it must be idempotent.
func (s *service) runExtension(op state.ExtensionOp) {
	r, e := s.state.ReleaseByID(op.Release), op.Extension
	if r == nil {
		return // pruned in the same reconciliation; its result is not needed
	}
	text := fmt.Sprintf("run %s for %s in %s", e.Name, r.FullVersion, op.Channel)
	queue := s.extensionQueue(op)
	absent := pickupTimeout(queue, r.Extensions[e.RunKey()].NoWorkerSince, s.now())
	options := heartbeatOptions(queue, e.Timeout+margin, absent, text)
	options.Priority = s.priority(priorityApply)
	options.WaitForCancellation = true
	ctx, end := workflow.WithCancel(workflow.WithActivityOptions(s.workCtx, options))
	run := entities.ExtensionRun(op.Release, e.RunKey())
	s.extensions[run] = end
	future := workflow.ExecuteActivity(ctx, protocol.ActivityExtension, protocol.ExtensionRequest{
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID,
		Channel: s.state.Key(entities.InstanceID{Channel: op.Channel}).Channel, Release: op.Release, Version: r.Version, FullVersion: r.FullVersion,
		Name: e.Name, Key: e.RunKey(), Definition: e.Definition, Attempt: op.Attempt, Timeout: e.Timeout,
		ReportOnly: s.state.IsReportOnly(op.Channel), Restarts: r.Extensions[e.RunKey()].Restarts, BackTo: op.BackTo,
	})
	s.trackOperation(func(ctx workflow.Context) {
		var answer protocol.ExtensionAnswer
		err := future.Get(ctx, &answer)
		delete(s.extensions, run)
		switch {
		case neverStarted(err):
			s.state.NoWorkerForExtension(op, "no worker polls "+queue, workflow.Now(ctx))
			return
		case isPutOff(err):
			s.state.ExtensionPutOff(op)
			return
		case err != nil:
			answer.Err = "interrupted: " + rootCause(err)
		}
		s.state.ExtensionEnded(op, answer.Err, verb.Clip(answer.Tail, maxTail), answer.Log, workflow.Now(ctx))
	})
}

// extensionQueue is the queue of an extension. One that needs the network of the channel's runtime uses the runtime of the first instance
// that is not drained.
func (s *service) extensionQueue(op state.ExtensionOp) string {
	c, _ := s.state.Spec.Channel(op.Channel)
	if len(c.Instances) == 0 {
		return protocol.TaskQueue
	}
	return taskQueueOf(s.state.RepresentativeInstance(&c, s.state.ReleaseByID(op.Release)).Runtime, entities.RuntimeSpec{Remote: op.Extension.Remote})
}

// remove removes the objects of an instance (A24).
func (s *service) remove(op state.RemoveOp) {
	name, rt := s.state.Runtime(op.Instance) // it may be no longer declared
	sequence, successor := s.state.Instance(op.Instance).Delivery.Sequence, (*protocol.Successor)(nil)
	if op.From != "" {
		name, rt, sequence, successor = s.previousRuntime(op, name, rt)
	}
	timeout := rt.Timing.ApplyTimeout
	if timeout <= 0 {
		timeout = removeTimeout
	}
	text := fmt.Sprintf("remove %s from %s", op.Target.FullVersion, s.state.DisplayName(op.Instance))
	options := heartbeatOptions(taskQueueOf(name, rt), timeout+margin, 0, text)
	options.Priority = s.priority(priorityApply)
	ctx := workflow.WithActivityOptions(s.workCtx, options)
	future := workflow.ExecuteActivity(ctx, protocol.ActivityRemove, protocol.RemoveRequest{
		Application: s.application, Service: s.service, ServiceID: s.state.Spec.ServiceID,
		Runtime: name, RuntimeDigest: rt.Digest, Timeout: timeout, Instance: s.instanceRef(op.Instance, op.Target),
		Sequence: sequence, Successor: successor, ReportOnly: s.state.IsReportOnly(op.Instance.Channel),
	})
	key := s.state.Key(op.Instance)
	s.trackOperation(func(ctx workflow.Context) {
		op.Instance = s.state.IDByKey(key)
		var answer protocol.RemoveAnswer
		if err := future.Get(ctx, &answer); err != nil {
			answer.Err = "interrupted: " + rootCause(err)
		}
		if answer.Renamed {
			s.state.RecordRuntimeRename(op, workflow.Now(ctx))
			return
		}
		s.state.RecordRemoval(op, answer.Err, workflow.Now(ctx))
	})
}

// previousRuntime describes the objects that an instance left on its previous runtime: that runtime, the sequence of its last target there,
// and the successor on the current runtime.
func (s *service) previousRuntime(op state.RemoveOp, now string, rt entities.RuntimeSpec) (string, entities.RuntimeSpec, int64, *protocol.Successor) {
	i := s.state.Instance(op.Instance)
	after := &protocol.Successor{Runtime: now, RuntimeDigest: rt.Digest, Sequence: i.Delivery.Sequence}
	if t := i.Delivery.Target; t != nil {
		after.Instance = s.instanceRef(op.Instance, *t)
	}
	return op.From, *s.state.RuntimeNamed(op.From), i.PreviousPlacementOn(op.From).Sequence, after
}

// commandsFor are the commands that a person can use now, after what a line tells.
func (s *service) commandsFor(line entities.AuditEntry) (all []string) {
	switch line.Kind {
	case entities.EventWaiting:
		for n := range s.decision.Channels {
			c := &s.decision.Channels[n]
			if c.Channel != line.Channel || c.Next == nil || c.Next.ID != line.Release {
				continue
			}
			for _, j := range c.Approvals() {
				all = append(all, j.Unblock)
			}
		}
	case entities.EventFailed, entities.EventRollback, entities.EventDegraded, entities.EventFlapping, entities.EventError:
		all = append(all, strings.TrimSpace("converge explain "+s.application+"/"+s.state.Title()+" "+line.Channel))
	}
	return all
}

// sendNotifications sends queued lines to the notifications. A run may end with a send in flight: the next run sends it again (at least
// once).
func (s *service) sendNotifications() {
	if len(s.state.Announcements) == 0 || s.blocksNewWork() {
		return
	}
	s.state.PruneAnnouncements() // some lines may no longer be wanted by any notification
	if s.state.Spec == nil {
		return
	}
	s.notifyAll(&s.state.Outbox, s.state.Spec.Notifications, s.webhooksInFlight, func(o sent) {
		switch _, refused := s.state.NotTaken[o.to]; {
		case o.sentAgain:
			if s.state.MarkNotTaken(o.to, o.cause()) {
				s.state.AppendJournal(o.at, o.line.Channel, o.text()+"; it is sent again until it is delivered")
			}
			return
		case o.err != nil:
			s.state.AppendJournal(o.at, o.line.Channel, o.text())
		case refused:
			s.state.AppendJournal(o.at, "", o.to+" is notified again")
		}
		s.state.NotificationSent(o.to, o.line.N)
	})
}
