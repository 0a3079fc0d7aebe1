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

// This file sees to what a worker leaves behind that is killed between a workflow task and its checkpoint (F1). Each worker
// says in the store, as often as it looks, up to when what it was handed is kept there. Of one that falls silent, whoever
// supervises examines what it may have been handed after that: the last workflow task of each workflow, and where its
// checkpoint is behind that, it asks the workflow by a query, which writes no history, to hand it over once more.

const (
	// taskAndClock is how much earlier, by the server's clock, a workflow task may have begun than the worker was handed its
	// checkpoint by its own.
	taskAndClock = time.Minute
	// lastEvents is how many events are read at once to find the last workflow task.
	lastEvents = 20
	// examineFor bounds how long a look examines; the next one goes on.
	examineFor = lookEvery / 2
)

// others is what the supervisor knows of the other workers.
type others struct {
	looked time.Time // last
	seen   map[string]sighting
	lost   map[string]bool               // those whose workflows are being examined
	since  time.Time                     // what they were handed from then on may not be kept
	left   []*commonpb.WorkflowExecution // runs that are still to be examined; nil: all
}

// sighting is what a worker said last, and when that was first seen.
type sighting struct {
	store.Presence
	at time.Time
}

// present says of this worker that it lives.
func (s *supervisor) present(ctx context.Context, now time.Time) error {
	err := s.store.PutPresence(ctx, s.holder, store.Presence{At: now, Kept: s.kept(now)})
	s.saw(err)
	return err
}

// leave says that this worker is stopped, and that there is nothing to see to.
func (s *supervisor) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.store.RemovePresence(ctx, s.holder) // else another worker looks after what is in order
}

// followLost examines what workers that fell silent may not have kept.
func (s *supervisor) followLost(ctx context.Context, now time.Time) error {
	silent, err := s.silent(ctx, now)
	if err != nil {
		return err
	}
	o := &s.others
	for worker, last := range silent {
		if o.lost[worker] {
			continue
		}
		if len(o.lost) == 0 || last.Kept.Before(o.since) {
			o.since = last.Kept
		}
		if o.lost == nil {
			o.lost = map[string]bool{}
		}
		o.lost[worker], o.left = true, nil
	}
	if len(o.lost) == 0 {
		return nil
	}
	if o.left == nil {
		running, _, err := s.list(ctx, protocol.Living)
		if err != nil {
			return err
		}
		for _, id := range entities.SortedKeys(running) {
			o.left = append(o.left, &commonpb.WorkflowExecution{WorkflowId: id, RunId: running[id]})
		}
	}
	if err := s.examineLeft(ctx); err != nil || len(o.left) > 0 {
		return err
	}
	for worker := range o.lost {
		if err := s.store.RemovePresence(ctx, worker); err != nil {
			return err
		}
		s.log.Warn("a worker was lost; all that it accepted is in the store", "worker", worker)
		delete(o.lost, worker)
	}
	o.left = nil
	return nil
}

// silent are the workers that have said nothing for as long as a lease holds.
func (s *supervisor) silent(ctx context.Context, now time.Time) (map[string]store.Presence, error) {
	all, err := s.store.Presences(ctx)
	if err != nil {
		return nil, err
	}
	if now.Sub(s.others.looked) > 2*lookEvery { // the store was away, for the others too
		s.others.seen = nil
	}
	s.others.looked = now
	seen, silent := map[string]sighting{}, map[string]store.Presence{}
	for worker, p := range all {
		if worker == s.holder {
			continue
		}
		before, known := s.others.seen[worker]
		if !known || before.Presence != p {
			before = sighting{p, now}
		}
		if seen[worker] = before; now.Sub(before.at) >= leaseFor {
			silent[worker] = p
		}
	}
	s.others.seen = seen
	return silent, nil
}

// examineLeft examines workflows for a while. Those that cannot be examined now are when it is called again.
func (s *supervisor) examineLeft(ctx context.Context) error {
	o := &s.others
	until := time.Now().Add(examineFor)
	var again []*commonpb.WorkflowExecution
	var problems []error
	for len(o.left) > 0 && time.Now().Before(until) {
		one := o.left[0]
		o.left = o.left[1:]
		kept, err := s.examine(ctx, one, o.since.Add(-taskAndClock))
		if err != nil {
			problems = append(problems, fmt.Errorf("examine %s: %w", one.GetWorkflowId(), err))
		}
		if !kept {
			again = append(again, one)
		}
	}
	o.left = append(o.left, again...)
	return errors.Join(problems...)
}

// examine tells whether the newest checkpoint of a workflow is that of its last task, if that was later than a time. It has
// it handed over when it is not.
func (s *supervisor) examine(ctx context.Context, of *commonpb.WorkflowExecution, since time.Time) (kept bool, err error) {
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
		return true, nil // it is gone, or runs where nobody understands: there is nothing to wait for
	}
	return false, err // kept a moment later, as the next look finds
}

// lastTask is the event with which the last completed workflow task of a run was started; 0 when it was completed before a
// time, or there was none. The history is read from its end, as far as it has to be.
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
