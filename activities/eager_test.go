package activities

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

// An attempt starts without a heartbeat only if it was requested a moment ago: not if the request time is unknown, long ago by either
// clock, or was used before.
func TestOnlyRecentRequestsAreEager_F7(t *testing.T) {
	answer := func(activity, token string) *workflowservice.RespondWorkflowTaskCompletedResponse {
		return &workflowservice.RespondWorkflowTaskCompletedResponse{ActivityTasks: []*workflowservice.PollActivityTaskQueueResponse{
			{TaskToken: []byte(token), ActivityType: &commonpb.ActivityType{Name: activity}},
		}}
	}
	taken := func(e *eager, token string) bool { _, ok := e.take([]byte(token)); return ok }
	e := &eager{}
	now := time.Now()
	e.record(answer(protocol.ActivityApply, "now"), now)
	e.record(answer(protocol.ActivityApply, "late"), now.Add(-heartbeatInterval))
	e.record(answer(protocol.ActivityObserve, "reading"), now)
	require.True(t, taken(e, "now"))
	require.False(t, taken(e, "now"), "one attempt per request")
	require.False(t, taken(e, "late"))
	require.False(t, taken(e, "reading"))
	require.False(t, taken(e, "of a poll"))

	suspended := now.Round(0).Add(-time.Hour) // by the wall clock alone: the monotonic clock stood still
	e.record(answer(protocol.ActivityRemove, "before"), suspended)
	require.False(t, taken(e, "before"))
	for n := range 5000 {
		e.record(answer(protocol.ActivityApply, fmt.Sprint(n)), now.Add(time.Duration(n)*10*time.Millisecond))
	}
	require.LessOrEqual(t, len(e.requested), 1000, "unused records are dropped")
}
