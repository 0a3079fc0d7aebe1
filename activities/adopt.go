package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/intent/store"
)

// maxMissedBytes limits the messages in one answer of Adopt, in bytes of their payloads.
const maxMissedBytes = 32 << 10

// Adopt returns the newest checkpoint of a workflow from the store, if it is newer than the state that the workflow knows, and the
// messages that closed runs accepted after it (F1). The state is returned in the form of a continue-as-new input, and is read in parts
// when it is large.
func (a *Activities) Adopt(ctx context.Context, r protocol.AdoptRequest) (protocol.AdoptAnswer, error) {
	answer, err := a.adopt(ctx, r)
	if err == nil && r.After == (protocol.Cursor{}) {
		application, service := protocol.TrailOf(r.ID)
		answer.Trail, err = a.Store.TrailEnd(ctx, application, service)
	}
	if err == nil && r.After == (protocol.Cursor{}) {
		answer.Notified, err = a.isNotified(ctx, r.ID)
	}
	if err == nil && r.After == (protocol.Cursor{}) && r.ID == protocol.InstallationID() {
		answer.Pauses, err = a.initialPause(ctx)
	}
	if kind, _, _ := strings.Cut(r.ID, "/"); err == nil && r.After == (protocol.Cursor{}) && (kind == "runtime" || r.ID == protocol.InstallationID()) {
		rules, rulesErr := a.Store.Rules(ctx)
		if rulesErr == nil {
			answer.Rules = &rules
		} else if !store.IsDamaged(rulesErr) { // damaged rules are reported at the next request that needs them
			return answer, rulesErr
		}
	}
	return spillIfLarge(ctx, a, answer, err)
}

// isNotified reports whether the application of a service has sent a notice, damaged or not.
func (a *Activities) isNotified(ctx context.Context, id string) (bool, error) {
	application, _, ok := protocol.ParseServiceID(id)
	if !ok {
		return false, nil
	}
	_, err := a.Store.NewestNotice(ctx, application)
	if store.IsNotFound(err) {
		return false, nil
	}
	if store.IsDamaged(err) {
		return true, nil
	}
	return err == nil, err
}

// initialPause returns the pause with which the installation starts, or none.
func (a *Activities) initialPause(ctx context.Context) ([]protocol.ScopePause, error) {
	i, err := a.Store.Installation(ctx)
	if store.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pause, err := a.restoredPause(ctx, i)
	if pause == nil {
		return nil, err
	}
	return []protocol.ScopePause{{Scope: entities.ScopeInstallation, Pause: pause}}, err
}

func (a *Activities) adopt(ctx context.Context, r protocol.AdoptRequest) (protocol.AdoptAnswer, error) {
	c, err := a.Store.Checkpoint(ctx, r.ID)
	notFound := store.IsNotFound(err)
	if err != nil && !notFound {
		return protocol.AdoptAnswer{}, err
	}
	if notFound || c.Over {
		return a.floor(ctx, r, c)
	}
	if c.N <= r.N {
		return protocol.AdoptAnswer{}, nil
	}
	answer := protocol.AdoptAnswer{N: c.N, Store: a.Store.URL()}
	from := r.After
	if from == (protocol.Cursor{}) {
		if r.Explain {
			answer.Why = a.whyEnded(ctx, c)
		}
		if from, err = a.firstMissed(ctx, r, c); err != nil {
			return protocol.AdoptAnswer{}, err
		}
		if answer.Pauses, answer.Ended, err = a.pausesOf(ctx, r.ID); err != nil {
			return protocol.AdoptAnswer{}, err
		}
		if answer.CarriedState, err = a.carriedState(ctx, c); err != nil {
			return protocol.AdoptAnswer{}, err
		}
	}
	answer.Missed, answer.Next, err = a.readMissed(ctx, r, c, from)
	return answer, err
}

// pausesOf returns the active pauses that may concern a service, and the last ones that have ended.
func (a *Activities) pausesOf(ctx context.Context, id string) (active []protocol.ScopePause, ended []protocol.PauseEnded, err error) {
	application, _, ok := protocol.ParseServiceID(id)
	if !ok {
		return nil, nil, nil
	}
	runtimes, err := a.Store.PausedRuntimes(ctx)
	if err != nil {
		return nil, nil, err
	}
	if active, err = a.Store.Pauses(ctx, application, runtimes); err != nil {
		return nil, nil, err
	}
	ended, err = a.Store.PausesEnded(ctx, application)
	return ownPauses(active, id), ended, err
}

// beforeMove stands for the runs of a workflow before its installation was moved. The messages that they accepted after the checkpoint
// were copied with it and are numbered from 0.
const beforeMove = "elsewhere"

// firstMissed returns the position after which accepted messages are not in a checkpoint.
func (a *Activities) firstMissed(ctx context.Context, r protocol.AdoptRequest, c protocol.Checkpoint) (protocol.Cursor, error) {
	copied, err := a.Store.Missed(ctx, c.ID, protocol.Cursor{Run: c.Run, Event: c.Event})
	if err != nil || len(copied) > 0 {
		return protocol.Cursor{Run: beforeMove}, err
	}
	return a.positionOf(ctx, r, c)
}

// MissedAfter returns the messages in the history of a workflow that it accepted after c, its newest checkpoint in the store.
func (a *Activities) MissedAfter(ctx context.Context, c protocol.Checkpoint) (all []protocol.MissedMessage, err error) {
	request := protocol.AdoptRequest{ID: c.ID}
	from, err := a.firstMissed(ctx, request, c)
	for err == nil && from != (protocol.Cursor{}) {
		var some []protocol.MissedMessage
		some, from, err = a.readMissed(ctx, request, c, from)
		all = append(all, some...)
	}
	return all, err
}

// floor returns the numbers of a workflow that ended regularly or is unknown: of its checkpoint and of its highest claim.
func (a *Activities) floor(ctx context.Context, r protocol.AdoptRequest, c protocol.Checkpoint) (protocol.AdoptAnswer, error) {
	answer := protocol.AdoptAnswer{N: c.N, Over: c.Over}
	application, service, ok := protocol.ParseServiceID(r.ID)
	if r.N > 0 || !ok {
		return answer, nil
	}
	var err error
	answer.MinSequence, err = a.Store.HighestClaim(ctx, application, service, a.Epoch)
	return answer, err
}

// carriedState returns the state of a checkpoint as the input of a run.
func (a *Activities) carriedState(ctx context.Context, c protocol.Checkpoint) (out protocol.CarriedState, err error) {
	out.StateVersion = c.StateVersion
	if len(c.State) <= partSize/2 {
		out.Packed = c.State
		return out, nil
	}
	out.Spilled, err = a.Store.PutState(ctx, c.State)
	return out, err
}

// readMissed reads the messages that closed runs accepted after a position, run by run up to the caller's run, and then, if requested,
// those of the caller's run. A run whose history is gone yields none.
func (a *Activities) readMissed(ctx context.Context, r protocol.AdoptRequest, c protocol.Checkpoint, from protocol.Cursor) ([]protocol.MissedMessage, protocol.Cursor, error) {
	if from.Run == beforeMove {
		return a.readCopiedMissed(ctx, r, c, from)
	}
	var out []protocol.MissedMessage
	size := 0
	for from.Run != "" && (from.Run != r.Run || r.OwnUpTo > 0) {
		events, next, err := a.eventsAfter(ctx, r.ID, from)
		if err != nil {
			return nil, protocol.Cursor{}, err
		}
		if from.Run == r.Run {
			events = upTo(events, r.OwnUpTo)
		}
		for _, e := range events {
			m, ok, err := a.message(e)
			if err != nil {
				return nil, from, err
			}
			if !ok {
				continue
			}
			if size += len(m.Payload) + len(m.Verb); size > maxMissedBytes && len(out) > 0 {
				return out, from, nil
			}
			out, from.Event = append(out, m), e.GetEventId()
		}
		if next == "" && from.Run != r.Run {
			if next, err = a.nextRunToRead(ctx, r, from.Run); err != nil {
				return nil, protocol.Cursor{}, err
			}
		}
		from = protocol.Cursor{Run: next}
	}
	return out, protocol.Cursor{}, nil
}

// upTo keeps the events up to an id. The run itself processes the later ones.
func upTo(events []*historypb.HistoryEvent, id int64) []*historypb.HistoryEvent {
	return slices.DeleteFunc(events, func(e *historypb.HistoryEvent) bool { return e.GetEventId() > id })
}

// readCopiedMissed reads the messages that were copied with a checkpoint when the installation was moved, and then continues in the
// caller's run, if requested.
func (a *Activities) readCopiedMissed(ctx context.Context, r protocol.AdoptRequest, c protocol.Checkpoint, from protocol.Cursor) ([]protocol.MissedMessage, protocol.Cursor, error) {
	all, err := a.Store.Missed(ctx, c.ID, protocol.Cursor{Run: c.Run, Event: c.Event})
	if err != nil {
		return nil, protocol.Cursor{}, err
	}
	rest := all[min(int(from.Event), len(all)):]
	for n, size := 0, 0; n < len(rest); n++ {
		if size += len(rest[n].Payload) + len(rest[n].Verb); size > maxMissedBytes && n > 0 {
			return rest[:n], protocol.Cursor{Run: beforeMove, Event: from.Event + int64(n)}, nil
		}
	}
	if r.OwnUpTo > 0 {
		return rest, protocol.Cursor{Run: r.Run}, nil
	}
	return rest, protocol.Cursor{}, nil
}

// nextRunToRead returns the run to read after a closed one: the next run, and at the end, if requested, the caller's run.
func (a *Activities) nextRunToRead(ctx context.Context, r protocol.AdoptRequest, run string) (string, error) {
	next, err := a.runAfter(ctx, r, run)
	if next == "" && err == nil && r.OwnUpTo > 0 {
		next = r.Run
	}
	return next, err
}

// runAfter returns the next run of a workflow that was closed and started again, except the caller's run. Such a run may have closed
// before it wrote a checkpoint. It returns "" if the history of the run is gone.
func (a *Activities) runAfter(ctx context.Context, r protocol.AdoptRequest, run string) (string, error) {
	startTime, err := a.startTimeOf(ctx, r.ID, run)
	if err != nil || startTime.IsZero() || strings.Contains(r.ID, "'") { // no name contains a quote
		return "", err
	}
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowId = '%s' AND StartTime > '%s'", r.ID, startTime.Format(time.RFC3339Nano)),
	}
	var next *workflowpb.WorkflowExecutionInfo
	for {
		page, err := a.Client.ListWorkflow(ctx, request)
		if err != nil {
			return "", err
		}
		for _, e := range page.GetExecutions() {
			earlier := next == nil || e.GetStartTime().AsTime().Before(next.GetStartTime().AsTime())
			if id := e.GetExecution().GetRunId(); id != r.Run && id != run && earlier {
				next = e
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return next.GetExecution().GetRunId(), nil
		}
	}
}

// startTimeOf returns when a run began; zero when it is no longer known.
func (a *Activities) startTimeOf(ctx context.Context, id, run string) (time.Time, error) {
	d, err := a.Client.DescribeWorkflowExecution(ctx, id, run)
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return time.Time{}, nil
	}
	return d.GetWorkflowExecutionInfo().GetStartTime().AsTime(), err
}

// eventsAfter returns the events of a run after a position, and the run that it continued as.
func (a *Activities) eventsAfter(ctx context.Context, id string, from protocol.Cursor) (events []*historypb.HistoryEvent, next string, err error) {
	reset := false
	all := a.Client.GetWorkflowHistory(ctx, id, from.Run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for all.HasNext() {
		e, err := all.Next()
		var notFound *serviceerror.NotFound
		if errors.As(err, &notFound) {
			return nil, "", nil
		}
		if err != nil {
			return nil, "", err
		}
		if e.GetEventId() > from.Event {
			events = append(events, e)
		}
		if from.Event == 0 && e.GetWorkflowTaskFailedEventAttributes().GetCause() == enumspb.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW {
			reset = true
		}
		next = e.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
	}
	if reset { // events that were carried over are in the history of the earlier run
		events = nil
	}
	return withoutRefused(events), next, nil
}

// withoutRefused removes the updates that were answered with an error. Their callers know that nothing was done.
func withoutRefused(events []*historypb.HistoryEvent) []*historypb.HistoryEvent {
	refused := map[string]bool{}
	for _, e := range events {
		if done := e.GetWorkflowExecutionUpdateCompletedEventAttributes(); done.GetOutcome().GetFailure() != nil {
			refused[done.GetMeta().GetUpdateId()] = true
		}
	}
	return slices.DeleteFunc(events, func(e *historypb.HistoryEvent) bool {
		accepted := e.GetWorkflowExecutionUpdateAcceptedEventAttributes()
		return accepted != nil && refused[accepted.GetProtocolInstanceId()]
	})
}

// message returns the message in an event that a workflow accepted.
func (a *Activities) message(e *historypb.HistoryEvent) (m protocol.MissedMessage, ok bool, err error) {
	m.At = e.GetEventTime().AsTime()
	payloads := e.GetWorkflowExecutionSignaledEventAttributes().GetInput()
	if signal := e.GetWorkflowExecutionSignaledEventAttributes(); signal != nil {
		m.Verb = signal.GetSignalName()
	} else if update := e.GetWorkflowExecutionUpdateAcceptedEventAttributes(); update != nil {
		request := update.GetAcceptedRequest()
		m.Verb, m.UpdateID, payloads = request.GetInput().GetName(), request.GetMeta().GetUpdateId(), request.GetInput().GetArgs()
	} else {
		return m, false, nil
	}
	var raw json.RawMessage
	switch err = a.Payloads.Read(payloads, &raw); {
	case codec.IsNoKey(err):
		return m, false, err
	case err == nil:
		m.Payload, ok = raw, true
	default: // an unreadable payload was rejected at that time, too
	}
	return m, ok, nil
}
