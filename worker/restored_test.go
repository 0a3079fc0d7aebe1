package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
)

// historian is a Temporal server with one run.
type historian struct {
	client.Client
	events  events // the last one first
	pending *workflowpb.PendingWorkflowTaskInfo
	err     error
}

func (h *historian) DescribeWorkflowExecution(context.Context, string, string) (*workflowservice.DescribeWorkflowExecutionResponse, error) {
	if h.err != nil {
		return nil, h.err
	}
	return &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{HistoryLength: h.events[0].GetEventId()}, PendingWorkflowTask: h.pending,
	}, nil
}

func (h *historian) WorkflowService() workflowservice.WorkflowServiceClient {
	return historyService{events: h.events}
}

type events []*historypb.HistoryEvent

type historyService struct {
	workflowservice.WorkflowServiceClient
	events
}

func (h historyService) GetWorkflowExecutionHistoryReverse(_ context.Context, r *workflowservice.GetWorkflowExecutionHistoryReverseRequest, _ ...grpc.CallOption) (*workflowservice.GetWorkflowExecutionHistoryReverseResponse, error) {
	page := h.events[len(r.GetNextPageToken()):]
	response := &workflowservice.GetWorkflowExecutionHistoryReverseResponse{History: &historypb.History{}}
	if size := int(r.GetMaximumPageSize()); len(page) > size {
		page, response.NextPageToken = page[:size], make([]byte, len(r.GetNextPageToken())+size)
	}
	response.History.Events = page
	return response, nil
}

// A workflow went back if its history ends before the event of a checkpoint, or has a later one there. The task of a checkpoint that the server
// did not answer is complete if the history has its event, and is not while an attempt of it may complete.
func TestHistoryAtThePlaceOfACheckpoint_F1(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	event := func(id int64, after time.Duration) *historypb.HistoryEvent {
		return &historypb.HistoryEvent{EventId: id, EventTime: timestamppb.New(at.Add(after))}
	}
	complete, discarded, unknown := activities.TaskEnd{Complete: true}, activities.TaskEnd{Discarded: true}, activities.TaskEnd{}
	running := &workflowpb.PendingWorkflowTaskInfo{Attempt: 2}
	c := protocol.Checkpoint{ID: "service/shop/web", Run: "r", Event: 45, At: at}
	for name, of := range map[string]struct {
		server   historian
		wentBack bool
		end      activities.TaskEnd
	}{
		"the same":                      {historian{events: events{event(47, time.Hour), event(46, 0), event(45, 0), event(44, 0)}}, false, complete},
		"restored, and continued":       {historian{events: events{event(46, time.Hour), event(45, time.Hour), event(44, -time.Hour)}}, true, discarded},
		"ends before":                   {historian{events: events{event(44, 0)}}, true, discarded},
		"ends before, and may complete": {historian{events: events{event(44, 0)}, pending: running}, true, unknown},
	} {
		s := &supervisor{client: &of.server}
		wentBack, err := s.wentBack(t.Context(), c, "r")
		require.NoError(t, err, name)
		require.Equal(t, of.wentBack, wentBack, name)
		end, err := s.taskEnd(t.Context(), c)
		require.NoError(t, err, name)
		require.Equal(t, of.end, end, name)
	}

	s := &supervisor{client: &historian{err: serviceerror.NewNotFound("no such run")}}
	end, err := s.taskEnd(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, discarded, end)
	s.client = &historian{err: errors.New("no answer")}
	_, err = s.taskEnd(t.Context(), c)
	require.Error(t, err)
	_, err = s.wentBack(t.Context(), c, "r")
	require.Error(t, err)
}
