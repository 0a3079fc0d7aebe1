package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// This file recovers the checkpoints of a worker that is killed between a workflow task and its checkpoint (F1). Each worker writes to the
// store, once per round, up to what time its received checkpoints are stored. When a worker falls silent, the supervisor examines what it
// may have received after that: the last workflow task of each workflow. If a checkpoint is older than that task, the supervisor sends the
// workflow a query, which writes no history, to submit the checkpoint again.

const (
	// clockTolerance is how much earlier, by the server's clock, a workflow task may have started than the worker received its checkpoint by
	// the worker's clock.
	clockTolerance = time.Minute
	// lastEvents is how many events one request reads to find the last workflow task.
	lastEvents = 20
	// examineTimeout is the time limit of examinations per round; the next round continues.
	examineTimeout = checkInterval / 2
)

// otherWorkers is the supervisor's knowledge of the other workers.
type otherWorkers struct {
	checkedAt   time.Time // last
	seen        map[string]sighting
	lostWorkers map[string]bool               // silent workers whose workflows are being examined
	storedUpTo  time.Time                     // checkpoints received from then on may not be stored
	unexamined  []*commonpb.WorkflowExecution // runs that are not examined yet; nil: all
}

// sighting is the last presence of a worker, and when that was first seen.
type sighting struct {
	store.Presence
	firstSeen time.Time
}

// writePresence writes the presence of this worker.
func (s *supervisor) writePresence(ctx context.Context, now time.Time) error {
	err := s.store.PutPresence(ctx, s.holder, store.Presence{At: now, Kept: s.storedUpTo(now)})
	s.reportStore(err)
	return err
}

// removePresence removes the presence of this worker when it stops; no checkpoint is missing.
func (s *supervisor) removePresence() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.store.RemovePresence(ctx, s.holder) // on failure another worker examines its workflows without need
}

// recoverLost recovers the checkpoints that silent workers may not have stored.
func (s *supervisor) recoverLost(ctx context.Context, now time.Time) error {
	silent, err := s.silentWorkers(ctx, now)
	if err != nil {
		return err
	}
	o := &s.otherWorkers
	for worker, last := range silent {
		if o.lostWorkers[worker] {
			continue
		}
		if len(o.lostWorkers) == 0 || last.Kept.Before(o.storedUpTo) {
			o.storedUpTo = last.Kept
		}
		if o.lostWorkers == nil {
			o.lostWorkers = map[string]bool{}
		}
		o.lostWorkers[worker], o.unexamined = true, nil
	}
	if len(o.lostWorkers) == 0 {
		return nil
	}
	if o.unexamined == nil {
		running, _, err := s.list(ctx, protocol.OpenQuery)
		if err != nil {
			return err
		}
		for _, id := range entities.SortedKeys(running) {
			o.unexamined = append(o.unexamined, &commonpb.WorkflowExecution{WorkflowId: id, RunId: running[id]})
		}
	}
	if err := s.examineRemaining(ctx); err != nil || len(o.unexamined) > 0 {
		return err
	}
	for worker := range o.lostWorkers {
		if err := s.store.RemovePresence(ctx, worker); err != nil {
			return err
		}
		s.log.Warn("a worker was lost; everything that it accepted is in the store", "worker", worker)
		delete(o.lostWorkers, worker)
	}
	o.unexamined = nil
	return nil
}

// silentWorkers are the workers that have written no presence for the duration of a lease.
func (s *supervisor) silentWorkers(ctx context.Context, now time.Time) (map[string]store.Presence, error) {
	all, err := s.store.Presences(ctx)
	if err != nil {
		return nil, err
	}
	if now.Sub(s.otherWorkers.checkedAt) > 2*checkInterval { // the store was unavailable, for the other workers too
		s.otherWorkers.seen = nil
	}
	s.otherWorkers.checkedAt = now
	seen, silent := map[string]sighting{}, map[string]store.Presence{}
	for worker, p := range all {
		if worker == s.holder {
			continue
		}
		before, known := s.otherWorkers.seen[worker]
		if !known || before.Presence != p {
			before = sighting{p, now}
		}
		if seen[worker] = before; now.Sub(before.firstSeen) >= leaseDuration {
			silent[worker] = p
		}
	}
	s.otherWorkers.seen = seen
	return silent, nil
}

// examineRemaining examines workflows for a limited time. Those that cannot be examined now are tried again by the next call.
func (s *supervisor) examineRemaining(ctx context.Context) error {
	o := &s.otherWorkers
	until := time.Now().Add(examineTimeout)
	var failed []*commonpb.WorkflowExecution
	var problems []error
	for len(o.unexamined) > 0 && time.Now().Before(until) {
		one := o.unexamined[0]
		o.unexamined = o.unexamined[1:]
		kept, err := s.examine(ctx, one, o.storedUpTo.Add(-clockTolerance))
		if err != nil {
			problems = append(problems, fmt.Errorf("examine %s: %w", one.GetWorkflowId(), err))
		}
		if !kept {
			failed = append(failed, one)
		}
	}
	o.unexamined = append(o.unexamined, failed...)
	return errors.Join(problems...)
}

// examine reports whether the newest checkpoint of a workflow is that of its last task, if that task is later than since. If not, it makes
// the workflow submit the checkpoint again.
func (s *supervisor) examine(ctx context.Context, of *commonpb.WorkflowExecution, since time.Time) (stored bool, err error) {
	task, err := s.lastTask(ctx, of, since)
	if err != nil || task == 0 {
		return err == nil, err
	}
	c, err := s.store.Checkpoint(ctx, of.GetWorkflowId())
	if err == nil && c.Run == of.GetRunId() && c.Event >= task {
		return true, nil
	}
	if err != nil && !store.IsNotFound(err) && !store.IsDamaged(err) {
		return false, err
	}
	_, err = s.client.QueryWorkflow(ctx, of.GetWorkflowId(), of.GetRunId(), protocol.QueryCheckpoint)
	if errors.As(err, new(*serviceerror.NotFound)) || errors.As(err, new(*serviceerror.QueryFailed)) {
		return true, nil // it is gone, or its workers do not support the query: no need to wait
	}
	return false, err // it is stored a moment later, which the next round confirms
}

// lastTask is the start event of the last completed workflow task of a run; 0 if it was completed before since, or there was none. The
// history is read from its end, only as far as needed.
func (s *supervisor) lastTask(ctx context.Context, of *commonpb.WorkflowExecution, since time.Time) (started int64, err error) {
	request := &workflowservice.GetWorkflowExecutionHistoryReverseRequest{Namespace: s.namespace, Execution: of, MaximumPageSize: lastEvents}
	for {
		page, err := s.client.WorkflowService().GetWorkflowExecutionHistoryReverse(ctx, request)
		if errors.As(err, new(*serviceerror.NotFound)) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		for _, e := range page.GetHistory().GetEvents() {
			if done := e.GetWorkflowTaskCompletedEventAttributes(); done != nil && e.GetEventTime().AsTime().After(since) {
				return done.GetStartedEventId(), nil
			}
			if e.GetEventTime().AsTime().Before(since) {
				return 0, nil
			}
		}
		if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
			return 0, nil
		}
	}
}
