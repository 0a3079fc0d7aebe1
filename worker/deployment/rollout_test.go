package deployment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A busy worker polls rarely, and keeps its workflows. In the first demonstration of a thousand services, on an overloaded machine, fifty
// workflows were taken over in the middle of their runs.
func TestBusyVersionIsNotTakenOver(t *testing.T) {
	now := time.Date(2026, 11, 21, 3, 15, 0, 0, time.UTC)
	var n Namespace
	task := func(state enumspb.PendingWorkflowTaskState, waits time.Duration) *workflowpb.PendingWorkflowTaskInfo {
		return &workflowpb.PendingWorkflowTaskInfo{State: state, ScheduledTime: timestamppb.New(now.Add(-waits))}
	}
	require.True(t, n.isUnanswered(task(enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED, n.pollTimeout()), now))
	require.False(t, n.isUnanswered(task(enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED, time.Minute), now), "it has not waited long enough")
	require.False(t, n.isUnanswered(task(enumspb.PENDING_WORKFLOW_TASK_STATE_STARTED, time.Hour), now), "a worker has it")
}

// A version is abandoned if no worker has polled for more than a minute. If the server knows no poller, the time counts from when that was
// first seen.
func TestAbandoned(t *testing.T) {
	r := Rollout{noPollerSince: map[Version]time.Time{}}
	lasts := r.pollTimeout()
	v := Version{DeploymentName: "converge", BuildID: "one"}
	require.False(t, r.isAbandoned(v, time.Now()))
	require.True(t, r.isAbandoned(v, time.Now().Add(-lasts)))
	require.False(t, r.isAbandoned(v, time.Time{}), "the server may have restarted")
	r.noPollerSince[v] = time.Now().Add(-lasts)
	require.True(t, r.isAbandoned(v, time.Time{}))
	require.False(t, r.isAbandoned(v, time.Now()))
	require.Empty(t, r.noPollerSince)
}
