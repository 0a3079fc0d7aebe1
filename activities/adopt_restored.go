package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file finds the messages that are not in a checkpoint when the database of Temporal was restored from a backup that is older than
// the checkpoint. Its position is then not in the history: the run is unknown, ends before it, or has a later event under its number.
// What was accepted after the restore is later than the checkpoint, by the clock of the server, which also gave the checkpoint its time.

// RestoreTolerance is how much later than its checkpoint the event of a checkpoint may be. What happens after a restore is later by more.
const RestoreTolerance = time.Second

// positionOf returns the position of a checkpoint in the histories of its workflow.
func (a *Activities) positionOf(ctx context.Context, r protocol.AdoptRequest, c protocol.Checkpoint) (protocol.Cursor, error) {
	at := protocol.Cursor{Run: c.Run, Event: c.Event}
	found, err := a.findEvent(ctx, c.ID, c.Run, func(e *historypb.HistoryEvent) bool { return e.GetEventId() >= c.Event })
	if err != nil || found != nil && !found.GetEventTime().AsTime().After(c.At.Add(RestoreTolerance)) {
		return at, err
	}
	run, err := a.firstRunAfter(ctx, r, c)
	if err != nil || run == "" {
		return at, err
	}
	later, err := a.findEvent(ctx, c.ID, run, func(e *historypb.HistoryEvent) bool { return e.GetEventTime().AsTime().After(c.At) })
	if err != nil || later == nil {
		return at, err
	}
	return protocol.Cursor{Run: run, Event: later.GetEventId() - 1}, nil
}

// findEvent returns the first event of a run that matches, or nil, also when the history is gone.
func (a *Activities) findEvent(ctx context.Context, id, run string, matches func(*historypb.HistoryEvent) bool) (*historypb.HistoryEvent, error) {
	all := a.Client.GetWorkflowHistory(ctx, id, run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for all.HasNext() {
		e, err := all.Next()
		if errors.As(err, new(*serviceerror.NotFound)) {
			return nil, nil
		}
		if err != nil || matches(e) {
			return e, err
		}
	}
	return nil, nil
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
