package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// This file detects that the database of Temporal was replaced under running workers. Another namespace id means a new database, or another
// server: the worker ends. If the id is the same, it was restored from a backup, perhaps an older one: workflows have a state from before
// their checkpoints. Such workflows are terminated, and started again from their checkpoints.

// temporalState is what a supervisor knows about the database of Temporal.
type temporalState struct {
	maybeRestored bool                // all running workflows must be compared with their checkpoints
	unexamined    map[string]string   // those that remain, by id; nil: not listed yet
	lost          protocol.Checkpoint // the last one of this worker whose history is gone, for which that was done
}

// reasonRestored is the reason for which such a workflow is terminated.
const reasonRestored = "Temporal has an older state of it than the store: its database was restored from a backup"

// ReplacedError means that the namespace of a running worker is another one than it was.
type ReplacedError struct {
	Namespace, ID, NewID string // its name, and its id before and now
}

// Error says what was replaced.
func (e *ReplacedError) Error() string {
	return fmt.Sprintf("the namespace %s has the id %s, and had %s when the worker started: the database of Temporal was replaced by a new one, or another server has its address [replaced]",
		e.Namespace, e.NewID, e.ID)
}

// checkTemporal returns a *ReplacedError if the namespace is another one, and notes whether the database may have been restored: Temporal
// did not answer before, or does not have what the latest checkpoint of this worker has.
func (s *supervisor) checkTemporal(ctx context.Context) error {
	d, err := s.client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: s.namespace})
	if err != nil {
		s.temporal.maybeRestored = true
		return err
	}
	if id := d.GetNamespaceInfo().GetId(); id != s.installation.NamespaceID {
		return &ReplacedError{s.namespace, s.installation.NamespaceID, id}
	}
	latest := s.latest()
	if latest.ID == "" || latest.N == s.temporal.lost.N && latest.ID == s.temporal.lost.ID {
		return nil
	}
	_, length, err := s.describe(ctx, latest)
	if err == nil && length < latest.Event {
		s.temporal.maybeRestored, s.temporal.lost = true, latest
	}
	return err
}

// recoverRestored compares the running workflows with their checkpoints, if the database may have been restored, and starts those again
// that are behind. Every worker does that for its own checkpoints' sake; after an outage of Temporal the one with the lease does.
func (s *supervisor) recoverRestored(ctx context.Context, leader bool) error {
	t := &s.temporal
	if !t.maybeRestored || !leader && t.lost.ID == "" {
		return nil
	}
	if t.unexamined == nil {
		if err := EnsureSearchAttributes(ctx, s.client, s.namespace); err != nil {
			return err
		}
		running, _, err := s.list(ctx, protocol.RunningQuery)
		if err != nil {
			return err
		}
		t.unexamined = running
	}
	err := s.examineRestored(ctx)
	if len(t.unexamined) == 0 && err == nil {
		t.maybeRestored, t.unexamined = false, nil
	}
	return err
}

// examineRestored compares those that remain, for a limited time.
func (s *supervisor) examineRestored(ctx context.Context) error {
	until := time.Now().Add(examineTimeout)
	var problems []error
	for _, id := range entities.SortedKeys(s.temporal.unexamined) {
		if time.Now().After(until) {
			break
		}
		run := s.temporal.unexamined[id]
		behind, uncertain, err := s.isBehind(ctx, id, run)
		if err == nil && behind {
			err = s.terminateRestored(ctx, id, run)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("compare %s with its checkpoint: %w", id, err))
		}
		if err == nil && !uncertain {
			delete(s.temporal.unexamined, id)
		}
	}
	return errors.Join(problems...)
}

func (s *supervisor) terminateRestored(ctx context.Context, id, run string) error {
	err := s.client.TerminateWorkflow(ctx, id, run, reasonRestored)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil // it has ended, or another worker did that
	}
	s.lastCheck = checkResult{} // it is missing now
	return err
}

// isBehind reports that the state of a running workflow is older than its newest checkpoint: the history of the run does not have the
// checkpoint's event, or the checkpoint is of a run that Temporal does not know, and that would have followed the running one. uncertain
// means that a workflow task is pending, whose attempts are not in the history: examine it again.
func (s *supervisor) isBehind(ctx context.Context, id, run string) (behind, uncertain bool, err error) {
	c, err := s.store.Checkpoint(ctx, id)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	d, length, err := s.describe(ctx, c)
	switch {
	case err != nil:
		return false, false, err
	case d == nil:
		behind, err = s.beganBefore(ctx, id, run, c.At)
		return behind, false, err
	case c.Run != run: // it has continued as the running one, or was ended
		return false, false, nil
	case length < c.Event:
		pending := d.GetPendingWorkflowTask() != nil
		return !pending, pending, nil
	}
	at, err := s.eventTime(ctx, c, length)
	return at.After(c.At.Add(activities.RestoreTolerance)), false, err
}

// describe returns the run of a checkpoint and the length of its history; nil and 0 if Temporal does not know the run.
func (s *supervisor) describe(ctx context.Context, c protocol.Checkpoint) (d *workflowservice.DescribeWorkflowExecutionResponse, length int64, err error) {
	d, err = s.client.DescribeWorkflowExecution(ctx, c.ID, c.Run)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil, 0, nil
	}
	return d, d.GetWorkflowExecutionInfo().GetHistoryLength(), err
}

func (s *supervisor) beganBefore(ctx context.Context, id, run string, at time.Time) (bool, error) {
	d, err := s.client.DescribeWorkflowExecution(ctx, id, run)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return false, nil
	}
	return err == nil && d.GetWorkflowExecutionInfo().GetStartTime().AsTime().Before(at), err
}

// eventTime is the time of the event of a checkpoint, zero if the history is gone. The history is read from its end, where the event
// usually is.
func (s *supervisor) eventTime(ctx context.Context, c protocol.Checkpoint, length int64) (at time.Time, err error) {
	request := &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
		Namespace: s.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: c.ID, RunId: c.Run},
		MaximumPageSize: int32(min(length-c.Event+1, lastEvents)),
	}
	for {
		page, err := s.client.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx, request)
		if errors.As(err, new(*serviceerror.NotFound)) {
			return at, nil
		}
		if err != nil {
			return at, err
		}
		for _, e := range page.GetHistory().GetEvents() {
			if e.GetEventId() <= c.Event {
				return e.GetEventTime().AsTime(), nil
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return at, nil
		}
	}
}
