package deployment

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	activitypb "go.temporal.io/api/activity/v1"
	commonpb "go.temporal.io/api/common/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/converge-engine/converge/entities/protocol"
)

// pending is an activity as the server describes it.
func pending(id, kind, queue string, timeout time.Duration, pause *workflowpb.PendingActivityInfo_PauseInfo) *workflowpb.PendingActivityInfo {
	return &workflowpb.PendingActivityInfo{
		ActivityId: id, ActivityType: &commonpb.ActivityType{Name: kind}, Paused: pause != nil, PauseInfo: pause,
		ActivityOptions: &activitypb.ActivityOptions{TaskQueue: &taskqueuepb.TaskQueue{Name: queue}, StartToCloseTimeout: durationpb.New(timeout)},
	}
}

// Each alteration is described with what it keeps from happening, and the command that undoes it. Options that workflows set are none.
func TestAlterationsAreDescribed_F10(t *testing.T) {
	t.Parallel()
	at := timestamppb.New(time.Date(2026, 11, 20, 10, 50, 20, 0, time.UTC))
	byPerson := &workflowpb.PendingActivityInfo_PauseInfo{PauseTime: at, PausedBy: &workflowpb.PendingActivityInfo_PauseInfo_Manual_{
		Manual: &workflowpb.PendingActivityInfo_PauseInfo_Manual{Identity: "olga", Reason: "new\nnodes"},
	}}
	byRule := &workflowpb.PendingActivityInfo_PauseInfo{PauseTime: at, PausedBy: &workflowpb.PendingActivityInfo_PauseInfo_Rule_{
		Rule: &workflowpb.PendingActivityInfo_PauseInfo_Rule{RuleId: "slow"},
	}}
	info := &workflowpb.WorkflowExecutionInfo{Execution: &commonpb.WorkflowExecution{WorkflowId: "service/shop/web"}}
	d := &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: info,
		WorkflowExtendedInfo: &workflowpb.WorkflowExecutionExtendedInfo{PauseInfo: &workflowpb.WorkflowExecutionPauseInfo{
			Identity: "olga", PausedTime: at,
		}},
		PendingActivities: []*workflowpb.PendingActivityInfo{
			pending("6", protocol.ActivityObserve, protocol.RuntimeTaskQueue("eu"), time.Millisecond, nil),
			pending("5", protocol.ActivityNotify, "nobody", time.Hour, nil),
			pending("4", protocol.ActivityCheck, protocol.TaskQueue, time.Hour, byRule),
			pending("3", protocol.ActivityApply, protocol.TaskQueue, time.Hour, byPerson),
			pending("2", protocol.ActivityObserveAll, protocol.TaskQueue, time.Hour, byPerson),
			pending("1", protocol.ActivityObserve, protocol.RuntimeTaskQueue("eu"), time.Minute, nil),
		},
	}
	var described [][2]string
	for _, a := range Alterations(d) {
		require.Equal(t, "service/shop/web", a.Workflow)
		described = append(described, [2]string{a.Text(), a.Next()})
	}
	require.Equal(t, [][2]string{
		{
			"its workflow is paused by an operator (olga) since 2026-11-20 10:50:20 UTC; it deploys and repairs nothing, and answers nobody; its status is unknown",
			"temporal workflow unpause --workflow-id service/shop/web",
		},
		{
			"its activity ObserveAll (2) is paused by an operator (olga) since 2026-11-20 10:50:20 UTC: new nodes; changes and drift are not seen, so that the status may be out of date",
			"temporal activity unpause --workflow-id service/shop/web --activity-id 2",
		},
		{
			"its activity Apply (3) is paused by an operator (olga) since 2026-11-20 10:50:20 UTC: new nodes; the apply waits, and so does everything after it",
			"temporal activity unpause --workflow-id service/shop/web --activity-id 3",
		},
		{
			"its activity Check (4) is paused by the workflow rule slow since 2026-11-20 10:50:20 UTC; the conditions that it evaluates keep their last result",
			"remove the rule slow (DeleteWorkflowRule), then: temporal activity unpause --workflow-id service/shop/web --activity-id 4",
		},
		{
			"its activity Notify (5) was changed by an operator: its task queue is nobody, which no worker of Converge polls; what depends on it waits",
			"temporal activity update-options --workflow-id service/shop/web --activity-id 5 --restore-original-options",
		},
		{
			"its activity Observe (6) was changed by an operator: its start-to-close timeout is 1ms; changes and drift are not seen, so that the status may be out of date",
			"temporal activity update-options --workflow-id service/shop/web --activity-id 6 --restore-original-options",
		},
	}, described)
	info.CloseTime = at
	require.Empty(t, Alterations(d), "of a run that has ended")
}

// Who starts a workflow chooses its id, and who pauses it the reason: neither becomes part of a printed command, and a long reason hides nothing.
func TestAlterationsPrintNoCommandOfOthers_G5(t *testing.T) {
	t.Parallel()
	a := Alteration{Workflow: "service/shop/x'; rm -rf ~ #", Reason: strings.Repeat("why ", 1000)}
	require.Equal(t, `temporal workflow unpause --workflow-id 'service/shop/x'\''; rm -rf ~ #'`, a.Next())
	require.Less(t, len(a.Text()), 500)
	require.Contains(t, a.Text(), "…; it deploys and repairs nothing")
}
