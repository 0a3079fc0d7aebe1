package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/converge-engine/converge/activities"
)

// Reasons for a restart that are not in the last run. An unknown workflow is one of many that were published a moment ago, and are started
// one after the other.
const (
	reasonNotStarted = "it was not started yet"
	reasonMoved      = "its installation was moved here"
)

// failureDelay is how long a workflow that failed stays down after the supervisor has noticed: otherwise one that fails as soon
// as it starts would do nothing else. With the interval of the checks it is well below a minute.
const failureDelay = 2 * checkInterval

// end is how the last run of a workflow ended.
type end struct {
	why string
	// ownRun is the run if it failed, timed out or completed. "" means that an operator ended it: it was terminated or deleted.
	ownRun string
}

// lastEnd is how the last run of a workflow ended; gone is false while it runs. A run that completed is gone too: a caller knows from the
// store whether its work is done.
func (s *supervisor) lastEnd(ctx context.Context, id string) (e end, gone bool, err error) {
	d, err := s.client.DescribeWorkflowExecution(ctx, id, "")
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return end{why: activities.ReasonDeleted}, true, nil
	}
	if err != nil {
		return end{}, false, err
	}
	info := d.GetWorkflowExecutionInfo()
	why, _ := activities.HowEnded(ctx, s.client, info) // without the name of an operator if the history cannot be read
	switch {
	case why == "":
		return end{}, false, nil
	case info.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		return end{why: why}, true, nil
	}
	return end{why: why, ownRun: info.GetExecution().GetRunId()}, true, nil
}

// failures has when the supervisor first noticed each run that failed, timed out or completed, and has no successor. It compares times of
// this process only, and its size is bounded by the number of missing workflows.
type failures struct {
	mutex         sync.Mutex
	known, before map[string]time.Time // by run: of this check, and of the last one
}

// beginCheck begins a check of all workflows. Runs that the last check did not meet are forgotten.
func (f *failures) beginCheck() { f.known, f.before = map[string]time.Time{}, f.known }

// mustWait reports that a workflow must not be restarted yet. One that an operator ended never waits. A run that completed waits too: the
// checkpoint that says that its work is done may reach the store a little later.
func (f *failures) mustWait(e end, now time.Time) bool {
	if e.ownRun == "" {
		return false
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	noticed, known := f.before[e.ownRun]
	if !known {
		noticed = now
	}
	f.known[e.ownRun] = noticed
	return now.Sub(noticed) < failureDelay
}
