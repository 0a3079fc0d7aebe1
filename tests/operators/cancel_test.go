package operators

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// cancel requests cancellation of a workflow, as the button in the Temporal UI does, and waits until status shows that
// it was refused.
func cancel(w *stage.World, id string, refused func() []entities.Refusal, instead string) {
	w.T.Helper()
	require.NoError(w.T, w.Client.CancelWorkflow(w.T.Context(), id, ""))
	require.Eventually(w.T, func() bool { return len(refused()) == 1 }, stage.Patience, 20*time.Millisecond)
	require.Equal(w.T, "request-cancel", refused()[0].Verb)
	require.Equal(w.T, "a workflow of Converge cannot be cancelled; instead: "+instead, refused()[0].Reason)
}

// running requires that a workflow runs on, in the same run.
func running(w *stage.World, id, run string) {
	w.T.Helper()
	d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), id, "")
	require.NoError(w.T, err)
	require.Equal(w.T, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, d.WorkflowExecutionInfo.Status)
	require.Equal(w.T, run, d.WorkflowExecutionInfo.Execution.RunId)
}

func runOf(w *stage.World, id string) string {
	w.T.Helper()
	d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), id, "")
	require.NoError(w.T, err)
	return d.WorkflowExecutionInfo.Execution.RunId
}

// A service whose cancellation is requested in the middle of an apply ends it, goes on, takes updates and signals,
// repairs drift, and says what to do instead.
func TestCancelledServiceContinues_F1(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	staging, production := w.Fake.At(w.App, "web", "staging"), w.Fake.At(w.App, "web", "production")
	letGo := staging.HangApplies()
	w.Release("web", "v1")
	require.NoError(t, w.Fake.Await(t.Context(), staging.Applying))
	run := runOf(w, w.ID("web"))
	cancel(w, w.ID("web"), func() []entities.Refusal { return w.Status("web").Refused },
		"to delete the service, converge channel delete "+w.App+"/web, or: to stop changes, converge pause "+w.App+"/web")
	letGo()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Equal(t, 1, staging.Applies(), "the apply that ran was left to end")

	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	w.Signal("web", protocol.Pause, `{"channel":"staging","by":"alice"}`)
	w.Await("web", "staging PAUSED v2, production CONVERGED v2")
	production.SetVersion("by hand")
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return production.Version() == "v2" }))
	w.Await("web", "staging PAUSED v2, production CONVERGED v2")
	running(w, w.ID("web"), run)
	require.Len(t, w.Status("web").Refused, 1, "one request is refused once")
}

// What a cancelled service was told before goes from run to run, and the next run may be cancelled again.
func TestCancelledServiceContinuesAsNew(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 60)
	w.RunWeb()
	first := runOf(w, w.ID("web"))
	require.NoError(t, w.Client.CancelWorkflow(t.Context(), w.ID("web"), ""))
	w.AwaitThat("web", "refused", func(s protocol.Status) bool { return len(s.Refused) == 1 })
	for until := time.Now().Add(stage.Patience); runOf(w, w.ID("web")) == first; {
		require.True(t, time.Now().Before(until), "no other run began")
		w.Act("web", protocol.Pause, `{"by":"alice"}`)
		w.Act("web", protocol.Resume, `{"by":"alice"}`)
	}
	require.NoError(t, w.Client.CancelWorkflow(t.Context(), w.ID("web"), ""))
	w.AwaitThat("web", "refused again", func(s protocol.Status) bool { return len(s.Refused) == 2 })
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}

// An application goes on as well: what is published afterwards arrives.
func TestCancelledApplicationContinues(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	id := protocol.ApplicationID(w.App)
	run := runOf(w, id)
	cancel(w, id, func() []entities.Refusal {
		var status protocol.ApplicationStatus
		query(w, id, &status)
		return status.Refused
	}, "to stop changes, converge pause "+w.App)
	w.Write(stage.TwoChannels + stage.Web + "description: changed\n")
	require.EqualValues(t, 2, w.Publish().Incarnation)
	w.AwaitThat("web", "incarnation 2", func(s protocol.Status) bool { return s.Incarnation == 2 })
	running(w, id, run)
}

// A runtime goes on as well: leases are granted afterwards.
func TestCancelledRuntimeContinues_C10(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	w.Write(stage.TwoChannels + "maxConcurrentApplies: 1\n" + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	id := protocol.RuntimeID(w.App + "-rt")
	run := runOf(w, id)
	cancel(w, id, func() []entities.Refusal {
		var status protocol.RuntimeStatus
		query(w, id, &status)
		return status.Refused
	}, "to stop applies there, converge runtime pause "+w.App+"-rt")
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	running(w, id, run)
}

func query(w *stage.World, id string, into any) {
	w.T.Helper()
	answer, err := temporaltest.Query(w.T.Context(), w.Client, id, protocol.QueryStatus)
	require.NoError(w.T, err)
	require.NoError(w.T, answer.Get(into))
}
