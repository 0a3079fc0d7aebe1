package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"golang.org/x/sync/errgroup"

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
	suspected  bool                // it may have been restored: all running workflows must be compared with their checkpoints
	seenHere   bool                // this worker saw that a workflow went back
	behind     map[string]string   // runs that this worker saw go back, by workflow id
	unexamined map[string]string   // runs that remain, by workflow id; nil: not listed yet
	known      protocol.Checkpoint // the latest one of this worker at the last check
	gone       protocol.Checkpoint // the last one that Temporal did not have, and for which the workflows are compared
}

func (t *temporalState) suspect(seenHere bool) {
	t.suspected, t.seenHere, t.unexamined = true, t.seenHere || seenHere, nil
}

func (t *temporalState) sawBehind(runs map[string]string) {
	if t.behind == nil {
		t.behind = map[string]string{}
	}
	maps.Copy(t.behind, runs)
	t.suspect(true)
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

// checkTemporal returns a *ReplacedError if the namespace is another one. It suspects a restored database if Temporal does not answer, or
// does not have what a checkpoint of this worker has.
func (s *supervisor) checkTemporal(ctx context.Context) error {
	d, err := s.client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: s.namespace})
	if err != nil {
		s.temporal.suspect(false)
		return err
	}
	if id := d.GetNamespaceInfo().GetId(); id != s.installation.NamespaceID {
		return &ReplacedError{s.namespace, s.installation.NamespaceID, id}
	}
	// The checkpoint of the last check is checked too: workflows that went back may have submitted others since.
	before := s.temporal.known
	s.temporal.known = s.latest()
	checked := []protocol.Checkpoint{s.temporal.gone}
	for _, c := range []protocol.Checkpoint{before, s.temporal.known} {
		if c.ID == "" || slices.ContainsFunc(checked, func(other protocol.Checkpoint) bool { return other.ID == c.ID && other.N == c.N }) {
			continue
		}
		if err := s.checkKnown(ctx, c); err != nil {
			return err
		}
		checked = append(checked, c)
	}
	return nil
}

// checkKnown checks that Temporal has what a checkpoint of this worker has.
func (s *supervisor) checkKnown(ctx context.Context, c protocol.Checkpoint) error {
	if _, length, err := s.describe(ctx, c); err != nil || length >= c.Event {
		return err
	}
	s.temporal.suspect(true)
	s.temporal.gone = c
	return nil
}

// recoverRestored compares the running workflows with their checkpoints, if the database may have been restored, and terminates those that
// are behind: they are missing then, and started again. The worker with the lease does that, and each that saw one go back.
func (s *supervisor) recoverRestored(ctx context.Context, leader bool) error {
	t := &s.temporal
	if !t.suspected || !leader && !t.seenHere {
		return nil
	}
	if t.unexamined == nil {
		if _, err := EnsureSearchAttributes(ctx, s.client, s.namespace); err != nil {
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
		t.suspected, t.seenHere, t.behind, t.unexamined = false, false, nil, nil
	}
	return err
}

// concurrentExaminations is how many workflows are compared with their checkpoints at the same time.
const concurrentExaminations = 16

// examineRestored compares those that remain, for a limited time.
func (s *supervisor) examineRestored(ctx context.Context) error {
	until := time.Now().Add(examineTimeout)
	var mu sync.Mutex
	var problems []error
	var g errgroup.Group
	g.SetLimit(concurrentExaminations)
	for _, id := range entities.SortedKeys(s.temporal.unexamined) {
		if time.Now().After(until) {
			break
		}
		mu.Lock()
		run := s.temporal.unexamined[id]
		mu.Unlock()
		g.Go(func() error {
			behind, err := s.temporal.behind[id] == run, error(nil)
			if !behind {
				behind, err = s.isBehind(ctx, id, run)
			}
			if err == nil && behind {
				err = s.terminateBehind(ctx, id, run)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				problems = append(problems, fmt.Errorf("compare %s with its checkpoint: %w", id, err))
			} else {
				delete(s.temporal.unexamined, id)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are collected
	s.lastCheck = checkResult{}
	return errors.Join(problems...)
}

// examineBeforeStart does that before the first worker of an installation serves: workflows that went back would act on their state.
func (s *supervisor) examineBeforeStart(ctx context.Context) error {
	workers, err := s.store.Presences(ctx)
	if err != nil {
		return err
	}
	for _, p := range workers {
		if time.Since(p.At) < presenceDuration {
			return nil
		}
	}
	s.temporal.suspect(true)
	for until := time.Now().Add(supervisionTimeout); err == nil && s.temporal.suspected && time.Now().Before(until); {
		err = s.recoverRestored(ctx, true)
	}
	return err
}

// presenceDuration is how old the presence of a worker that serves can be, by its own clock.
const presenceDuration = 5 * time.Minute

// terminateBehind terminates a run that went back, unless it took over its newest checkpoint meanwhile: an activity found that another run
// had continued. The store does not have its own checkpoint yet then.
func (s *supervisor) terminateBehind(ctx context.Context, id, run string) error {
	c, err := s.store.Checkpoint(ctx, id)
	if store.IsNotFound(err) || store.IsDamaged(err) { // it could not continue from it
		return nil
	}
	if err != nil || s.serves && s.hasAdopted(ctx, c, run) {
		return err
	}
	return s.terminateRestored(ctx, id, run)
}

// adoptedTimeout is how long a workflow may take to say whether it took over a checkpoint.
const adoptedTimeout = 5 * time.Second

func (s *supervisor) hasAdopted(ctx context.Context, c protocol.Checkpoint, run string) bool {
	ctx, cancel := context.WithTimeout(ctx, adoptedTimeout)
	defer cancel()
	answer, err := s.client.QueryWorkflow(ctx, c.ID, run, protocol.QueryCheckpoint)
	var at protocol.CheckpointPosition
	return err == nil && answer.Get(&at) == nil && at.Adopted >= c.N
}

func (s *supervisor) terminateRestored(ctx context.Context, id, run string) error {
	err := s.client.TerminateWorkflow(ctx, id, run, reasonRestored)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil // it has ended, or another worker did that
	}
	return err
}

// isBehind reports that the state of a running workflow is older than its newest checkpoint: the history of the checkpoint's run does not have
// its event, or Temporal does not know that run, and the running one, or one that it continues, is that run or began before the checkpoint.
// One that began later was started from the checkpoint.
func (s *supervisor) isBehind(ctx context.Context, id, run string) (bool, error) {
	c, err := s.store.Checkpoint(ctx, id)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if c.Run != run {
		if before, err := s.beganBefore(ctx, id, run, c.At); err != nil || !before {
			return false, err
		}
	}
	return s.wentBack(ctx, c, run)
}

// wentBack is isBehind for a given checkpoint. Every checkpoint is of a complete workflow task.
func (s *supervisor) wentBack(ctx context.Context, c protocol.Checkpoint, run string) (bool, error) {
	d, length, err := s.describe(ctx, c)
	switch {
	case err != nil:
		return false, err
	case d == nil:
		return s.beganBefore(ctx, c.ID, run, c.At)
	case length < c.Event:
		return true, nil
	}
	return s.hasOther(ctx, c, length)
}

// taskEnd reports how the workflow task of a checkpoint ended that the server did not answer.
func (s *supervisor) taskEnd(ctx context.Context, c protocol.Checkpoint) (end activities.TaskEnd, err error) {
	d, length, err := s.describe(ctx, c)
	switch {
	case err != nil:
		return end, err
	case length < c.Event:
		end.Discarded = d.GetPendingWorkflowTask() == nil // otherwise an attempt of it may complete
		return end, nil
	}
	end.Discarded, err = s.hasOther(ctx, c, length)
	end.Complete = err == nil && !end.Discarded
	return end, err
}

// describe returns the run of a checkpoint and the length of its history; nil and 0 if Temporal does not know the run.
func (s *supervisor) describe(ctx context.Context, c protocol.Checkpoint) (d *workflowservice.DescribeWorkflowExecutionResponse, length int64, err error) {
	d, err = s.client.DescribeWorkflowExecution(ctx, c.ID, c.Run)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return nil, 0, nil
	}
	return d, d.GetWorkflowExecutionInfo().GetHistoryLength(), err
}

// beganBefore reports whether a run, or the one that it continues, began before a time.
func (s *supervisor) beganBefore(ctx context.Context, id, run string, at time.Time) (bool, error) {
	d, err := s.client.DescribeWorkflowExecution(ctx, id, run)
	if errors.As(err, new(*serviceerror.NotFound)) {
		return false, nil
	}
	info := d.GetWorkflowExecutionInfo()
	if err != nil || info.GetStartTime().AsTime().Before(at) {
		return err == nil, err
	}
	if first := info.GetFirstRunId(); first != "" && first != run {
		return s.beganBefore(ctx, id, first, at)
	}
	return false, nil
}

// hasOther reports whether a history has, under the number of the event that a checkpoint names, one of a later time.
func (s *supervisor) hasOther(ctx context.Context, c protocol.Checkpoint, length int64) (bool, error) {
	request := &workflowservice.GetWorkflowExecutionHistoryReverseRequest{
		Namespace: s.namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: c.ID, RunId: c.Run},
		MaximumPageSize: int32(min(length-c.Event+1, lastEvents)),
	}
	for {
		page, err := s.client.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx, request)
		if errors.As(err, new(*serviceerror.NotFound)) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for _, e := range page.GetHistory().GetEvents() {
			if e.GetEventId() <= c.Event {
				return e.GetEventTime().AsTime().After(c.At.Add(activities.RestoreTolerance)), nil
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return false, nil
		}
	}
}
