package operators

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// reset resets a run to an event, as `temporal workflow reset` does.
func reset(w *stage.World, id, run string, event int64) (string, error) {
	w.T.Helper()
	answer, err := w.Client.ResetWorkflowExecution(w.T.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: run},
		Reason: "an operator's test", WorkflowTaskFinishEventId: event, RequestId: fmt.Sprint(run, event, time.Now().UnixNano()),
	})
	return answer.GetRunId(), err
}

// A service whose run is reset to any event of three releases, one of which was approved by a signal, stays at the newest:
// nothing that was applied before is applied again, and nobody has to approve anything twice.
func TestResetServiceStaysWhereItWas(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(approvals + stage.Web)
	w.Publish()
	for n, version := range []string{"v1", "v2", "v3"} {
		w.Release("web", version)
		before := "WAITING_MANUAL_APPROVAL"
		w.AwaitThat("web", version+" in staging", func(s protocol.Status) bool {
			return s.Channels[0].Current == version && s.Channels[0].Status == "CONVERGED" && s.Channels[1].Status == before
		})
		approval := `{"by":"alice","version":"` + version + `","topic":"production"}`
		if n == 1 {
			w.Signal("web", protocol.Approve, approval)
		} else {
			w.Act("web", protocol.Approve, approval)
		}
		w.Await("web", fmt.Sprintf("staging CONVERGED %s, production CONVERGED %s", version, version))
	}
	const want = "staging CONVERGED v3, production CONVERGED v3"
	id := w.ID("web")
	first := runOf(w, id)
	var events []int64
	for _, e := range w.History(id) {
		if e.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			events = append(events, e.EventId)
		}
	}
	require.Greater(t, len(events), 10)
	applied := len(w.Fake.Applies())
	for _, event := range events {
		run, err := reset(w, id, first, event)
		require.NoError(t, err, "event %d", event)
		since := time.Now()
		s := w.AwaitThat("web", "the newest after a reset to event "+fmt.Sprint(event), func(s protocol.Status) bool {
			return stage.Channels(s) == want && hasApproval(s, "alice") && strings.Contains(journal(s), "goes on from its checkpoint")
		})
		require.Len(t, approvalsOf(s, "v2"), 1)
		require.Less(t, time.Since(since), aMinute)
		require.Equal(t, run, runOf(w, id))
		require.Equal(t, applied, len(w.Fake.Applies()), "after a reset to event %d: %v", event, w.Fake.Applies())
	}
	require.Empty(t, w.Status("web").Refused)
	w.Release("web", "v4")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v4","topic":"production"}`)
	w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
}

func approvalsOf(s protocol.Status, version string) []entities.Approval {
	for _, r := range s.Releases {
		if r.Version == version {
			return r.Approvals
		}
	}
	return nil
}
