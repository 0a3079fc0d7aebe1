package deployment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file examines which workflows have ended and which end again and again.

const (
	// reportedEnds is how many ends within endsWindow are a finding, even if the workflow runs.
	reportedEnds = 3
	endsWindow   = time.Hour
)

// examineEnded lists the workflows whose last run was terminated or failed, except unmanaged ones, and those that run and ended often.
func (n Namespace) examineEnded(ctx context.Context, r *Report) error {
	lately, err := n.endsPerWorkflow(ctx)
	if err != nil {
		return err
	}
	ended, restarted := 0, 0
	for _, id := range entities.SortedKeys(lately) {
		how, runs, err := n.endedHow(ctx, id)
		if err != nil {
			return err
		}
		switch times := lately[id]; {
		case how != "":
			if ended++; ended <= maxNamed {
				r.AddFinding(EndedWorkflow, id, how+", and was not started again"+endsText(times),
					"a worker restarts it within a minute; the worker's log has the reason")
			}
		case runs && times >= reportedEnds:
			if restarted++; restarted <= maxNamed {
				r.AddFinding(RestartedWorkflow, id, "its workflow runs"+endsText(times),
					"its history has who ended it, or the failure: converge history; to keep a service down: converge config unmanage")
			}
		}
	}
	r.AddExamined("workflows that were ended and do not run: %d; that ended %d times within an hour and run: %d", ended, reportedEnds, restarted)
	return nil
}

// endsText says how often a workflow ended lately, if several times.
func endsText(times int) string {
	if times < 2 {
		return ""
	}
	return fmt.Sprintf("; it ended %d times within the last hour", times)
}

// endsPerWorkflow is how often a workflow ended within endsWindow, other than by completing. It has the id of each workflow
// that ever ended so, up to maxQueried. The server does not know of deleted runs.
func (n Namespace) endsPerWorkflow(ctx context.Context) (map[string]int, error) {
	lately := map[string]int{}
	for e, err := range n.list(ctx, protocol.LongLivedQuery+" AND ExecutionStatus IN ('Terminated','Failed','TimedOut','Canceled')") {
		if err != nil {
			return nil, err
		}
		id := e.Execution.WorkflowId
		times, known := lately[id]
		if !known && len(lately) >= maxQueried {
			break
		}
		if time.Since(e.GetCloseTime().AsTime()) <= endsWindow {
			times++
		}
		lately[id] = times
	}
	return lately, nil
}

// endedHow is how the last run of a workflow ended; "" if it runs, completed, or is unmanaged.
func (n Namespace) endedHow(ctx context.Context, id string) (how string, runs bool, err error) {
	d, err := n.Client.DescribeWorkflowExecution(ctx, id, "")
	if errors.As(err, new(*serviceerror.NotFound)) {
		return "", false, nil // removed by retention
	}
	if err != nil {
		return "", false, err
	}
	info := d.GetWorkflowExecutionInfo()
	switch info.GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED, enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW:
		return "", true, nil
	case enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED:
		return "", false, nil
	}
	how, err = activities.HowEnded(ctx, n.Client, info)
	if err != nil || strings.Contains(how, protocol.UnmanagedBy) {
		return "", false, err
	}
	return how, false, nil
}
