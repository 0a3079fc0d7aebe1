package worker

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/converge-engine/converge/entities/protocol"
)

// A history has the place of a checkpoint, or another one after a restore. A lost attempt of a workflow task is not such a history.
func TestHistoryAtThePlaceOfACheckpoint_F1(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	event := func(id int64, after time.Duration) *historypb.HistoryEvent {
		return &historypb.HistoryEvent{EventId: id, EventTime: timestamppb.New(at.Add(after))}
	}
	scheduled := func(id int64, after time.Duration, attempt int32) *historypb.HistoryEvent {
		e := event(id, after)
		e.Attributes = &historypb.HistoryEvent_WorkflowTaskScheduledEventAttributes{
			WorkflowTaskScheduledEventAttributes: &historypb.WorkflowTaskScheduledEventAttributes{Attempt: attempt},
		}
		return e
	}
	failed := func(id int64, after time.Duration, as enumspb.EventType) *historypb.HistoryEvent {
		e := event(id, after)
		e.EventType = as
		return e
	}
	c := protocol.Checkpoint{Event: 45, At: at}
	for name, of := range map[string]struct {
		backwards []*historypb.HistoryEvent
		other     bool
	}{
		"the same":                     {[]*historypb.HistoryEvent{event(47, time.Hour), event(46, 0), event(45, 0)}, false},
		"restored long before":         {[]*historypb.HistoryEvent{event(45, time.Hour), scheduled(44, time.Hour, 1), event(43, time.Hour)}, true},
		"restored right before":        {[]*historypb.HistoryEvent{event(45, time.Hour), scheduled(44, time.Hour, 1), event(43, -time.Hour)}, true},
		"restored, with a signal":      {[]*historypb.HistoryEvent{event(47, time.Hour), scheduled(46, time.Hour, 1), event(45, time.Hour), event(44, time.Hour), event(43, -time.Hour)}, true},
		"a lost attempt":               {[]*historypb.HistoryEvent{event(45, time.Hour), scheduled(44, time.Hour, 3), event(43, -time.Hour)}, false},
		"a lost attempt, and a signal": {[]*historypb.HistoryEvent{event(46, time.Hour), scheduled(45, time.Hour, 3), event(44, time.Hour), event(43, -time.Hour)}, false},
		"a lost attempt after a failed one, and a timer": {[]*historypb.HistoryEvent{
			event(46, time.Hour), scheduled(45, time.Hour, 1), event(44, time.Hour), failed(43, -time.Second, enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED),
		}, false},
		"a lost attempt after one that timed out, and a timer": {[]*historypb.HistoryEvent{
			event(46, time.Hour), scheduled(45, time.Hour, 1), event(44, time.Hour), failed(43, -time.Second, enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT),
		}, false},
		"restored long before, then a failed attempt": {[]*historypb.HistoryEvent{
			event(45, time.Hour), scheduled(44, time.Hour, 1), failed(43, time.Hour, enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED),
		}, true},
		"restored, then a lost one": {[]*historypb.HistoryEvent{event(45, time.Hour), scheduled(44, time.Hour, 3), event(43, time.Hour)}, true},
	} {
		var place historyPlace
		decided, other := false, false
		for _, e := range of.backwards {
			require.False(t, decided, name)
			decided, other = place.read(c, e)
		}
		require.True(t, decided, name)
		require.Equal(t, of.other, other, name)
	}
}

// slowServer is a Temporal server with one workflow, which has a workflow task.
type slowServer struct {
	client.Client
	length  int64
	pending *workflowpb.PendingWorkflowTaskInfo
}

func (s *slowServer) WorkflowService() workflowservice.WorkflowServiceClient { return namespaceOnly{} }

type namespaceOnly struct {
	workflowservice.WorkflowServiceClient
}

func (namespaceOnly) DescribeNamespace(context.Context, *workflowservice.DescribeNamespaceRequest, ...grpc.CallOption) (*workflowservice.DescribeNamespaceResponse, error) {
	return &workflowservice.DescribeNamespaceResponse{NamespaceInfo: &namespacepb.NamespaceInfo{Id: "n"}}, nil
}

func (s *slowServer) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{HistoryLength: s.length}, PendingWorkflowTask: s.pending,
	}, nil
}

// A server that is slow to record a workflow task does not have its events yet: that is no sign of a restored database. Once the task is over
// without them, it is one, even if there are later checkpoints by then.
func TestSlowTaskIsNoSignOfARestoredDatabase_F4(t *testing.T) {
	for name, ended := range map[string]struct {
		length    int64
		suspected bool
	}{"recorded": {12, false}, "never recorded": {9, true}} {
		started := &workflowpb.PendingWorkflowTaskInfo{State: enumspb.PENDING_WORKFLOW_TASK_STATE_STARTED, Attempt: 1}
		server := &slowServer{length: 9, pending: started}
		latest := protocol.Checkpoint{ID: "web", Run: "r", N: 1, Event: 11}
		s := &supervisor{client: server, installation: protocol.Installation{NamespaceID: "n"}, latest: func() protocol.Checkpoint { return latest }}
		for range 3 {
			require.NoError(t, s.checkTemporal(t.Context()), name)
			require.False(t, s.temporal.suspected, name)
		}
		latest = protocol.Checkpoint{ID: "web", Run: "r", N: 2, Event: 8} // one that the server has
		server.length, server.pending = ended.length, nil
		require.NoError(t, s.checkTemporal(t.Context()), name)
		require.Equal(t, ended.suspected, s.temporal.suspected, name)
	}
}
