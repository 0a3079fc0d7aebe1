package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file finds the messages that are not in a checkpoint when the database of Temporal was restored from a backup that is older than
// the checkpoint. Its position is then not in the history: the run is unknown, ends before it, or has a later event under its number.
// What was accepted after the restore is later than the checkpoint, by the clock of the server, which also gave the checkpoint its time.

// restoreTolerance is how much later than its checkpoint the event of a checkpoint may be. What happens after a restore is later by more.
const restoreTolerance = time.Second

// eventsOfPage is how many events one request reads to find the event of a checkpoint.
const eventsOfPage = 20

// CheckpointEvent is what Temporal has under the number of a checkpoint's event: nothing if both are false. Replaced means that this event,
// or an earlier one if a task with that number is not in the history yet, happened after the checkpoint: the database was restored, and the
// workflow went on.
type CheckpointEvent struct{ Found, Replaced bool }

// FindCheckpointEvent looks for the event of a checkpoint in the history of its run. It reads from the end, where the event usually is. A
// history that is gone has no event.
func FindCheckpointEvent(ctx context.Context, service workflowservice.WorkflowServiceClient, namespace string, c protocol.Checkpoint) (CheckpointEvent, error) {
	request := &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
		Namespace: namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: c.ID, RunId: c.Run}, MaximumPageSize: eventsOfPage,
	}
	for {
		page, err := service.GetWorkflowExecutionHistoryReverse(ctx, request)
		if errors.As(err, new(*serviceerror.NotFound)) {
			return CheckpointEvent{}, nil
		}
		if err != nil {
			return CheckpointEvent{}, err
		}
		for _, e := range page.GetHistory().GetEvents() {
			if e.GetEventId() > c.Event {
				continue
			}
			later := e.GetEventTime().AsTime().After(c.At.Add(restoreTolerance))
			return CheckpointEvent{Found: e.GetEventId() == c.Event && !later, Replaced: later}, nil
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return CheckpointEvent{}, nil
		}
	}
}

// positionOf returns the position of a checkpoint in the histories of its workflow.
func (a *Activities) positionOf(ctx context.Context, namespace string, r protocol.AdoptRequest, c protocol.Checkpoint) (protocol.Cursor, error) {
	at := protocol.Cursor{Run: c.Run, Event: c.Event}
	event, err := FindCheckpointEvent(ctx, a.Client.WorkflowService(), namespace, c)
	if err != nil || event.Found {
		return at, err
	}
	run, err := a.firstRunAfter(ctx, r, c)
	if err != nil || run == "" {
		return at, err
	}
	later, err := a.firstEventAfter(ctx, c.ID, run, c.At)
	if err != nil || later == 0 {
		return at, err
	}
	return protocol.Cursor{Run: run, Event: later - 1}, nil
}

// firstEventAfter returns the number of the first event of a run that is later than that, or 0, also when the history is gone.
func (a *Activities) firstEventAfter(ctx context.Context, id, run string, at time.Time) (int64, error) {
	all := a.Client.GetWorkflowHistory(ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for all.HasNext() {
		e, err := all.Next()
		if errors.As(err, new(*serviceerror.NotFound)) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if e.GetEventTime().AsTime().After(at) {
			return e.GetEventId(), nil
		}
	}
	return 0, nil
}

// firstRunAfter returns the first run of a workflow that had not ended by the time of a checkpoint, or "". It skips the caller's run,
// unless its own messages are requested.
func (a *Activities) firstRunAfter(ctx context.Context, r protocol.AdoptRequest, c protocol.Checkpoint) (string, error) {
	if strings.Contains(c.ID, "'") { // no name contains a quote
		return "", nil
	}
	request := &workflowservice.ListWorkflowExecutionsRequest{Query: fmt.Sprintf("WorkflowId = '%s'", c.ID)}
	var first *workflowpb.WorkflowExecutionInfo
	for {
		page, err := a.Client.ListWorkflow(ctx, request)
		if err != nil {
			return "", err
		}
		for _, e := range page.GetExecutions() {
			over := e.GetCloseTime() != nil && !e.GetCloseTime().AsTime().After(c.At)
			own := e.GetExecution().GetRunId() == r.Run && r.OwnUpTo == 0
			if !over && !own && (first == nil || e.GetStartTime().AsTime().Before(first.GetStartTime().AsTime())) {
				first = e
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return first.GetExecution().GetRunId(), nil
		}
	}
}
