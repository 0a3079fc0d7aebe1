package operators

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// fleetOf is so many services like Web: web-00, web-01, and so on.
func fleetOf(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Replace(stage.Web, "name: web", fmt.Sprintf("name: web-%02d", i), 1))
	}
	return b.String()
}

// flood fills the run of a service that no worker serves until it takes no more signals.
func flood(w *stage.World, service string) {
	w.T.Helper()
	_, err := w.Client.ExecuteWorkflow(w.T.Context(), client.StartWorkflowOptions{ID: w.ID(service), TaskQueue: "nobody"},
		protocol.ServiceWorkflow, protocol.ServiceInput{Application: w.App, Service: service, StartMode: protocol.StartMode{Adopt: true}})
	require.NoError(w.T, err)
	for err == nil {
		err = w.Client.SignalWorkflow(w.T.Context(), w.ID(service), "", protocol.Refresh, protocol.RequestMeta{By: "flood"})
	}
	require.ErrorContains(w.T, err, "exceeded workflow execution limit for signal events")
}

// A service whose run takes no more signals holds up no other: all others are notified of what is published and of pauses,
// the application says which could not be, and tells it once it can be told.
func TestFloodedServiceHoldsUpNoOther_F1_F5(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{SignalsPerRun: 50})
	const flooded = "web-03" // others come before it, and after
	flood(w, flooded)
	w.Write(stage.TwoChannels + fleetOf(20))
	w.Publish()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		problem := applicationOf(w).Problem
		return strings.Contains(problem, "not notified: "+flooded), problem
	})
	w.Release("web-19", "v1")
	w.Await("web-19", "staging CONVERGED v1, production CONVERGED v1")

	var answer protocol.Answer
	began := time.Now()
	require.NoError(t, w.Update(protocol.ApplicationID(w.App), protocol.Pause, protocol.RequestMeta{By: "alice"}, &answer))
	w.Await("web-19", "staging PAUSED v1, production PAUSED v1")
	w.Await("web-00", "staging PAUSED, production PAUSED")
	t.Logf("paused after %s", time.Since(began))
	require.Eventually(t, func() bool {
		return strings.Contains(applicationOf(w).Problem, "not notified of a pause or its end: "+w.ID(flooded))
	}, stage.Patience, 20*time.Millisecond)

	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID(flooded), "", "flooded"))
	w.Await(flooded, "staging PAUSED, production PAUSED") // which it finds in the store
	require.Eventually(t, func() bool { return applicationOf(w).Problem == "" }, stage.Patience, 100*time.Millisecond)
}

// A pause of a runtime holds for applies even where the service has not heard of it, counts as no failed attempt, and
// its end lets them go.
func TestPauseHoldsForServicesWithoutTheSignal(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Await("web", "staging CONVERGED, production CONVERGED") // it has heard of all that there was
	kept, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	pause := protocol.ScopePause{Scope: entities.ScopeRuntime + w.App + "-rt", Pause: &entities.Pause{By: "alice", Reason: "drill", At: time.Now()}}
	require.NoError(t, kept.PutPause(t.Context(), w.App, pause))
	w.Release("web", "v1")
	w.AwaitThat("web", "held", func(s protocol.Status) bool {
		text := fmt.Sprint(s.Channels[0].Reasons)
		return strings.Contains(text, "is paused by alice") && strings.Contains(text, "drill")
	})
	require.Zero(t, w.Fake.At(w.App, "web", "staging").Applies())
	pause.Pause = nil
	require.NoError(t, kept.PutPause(t.Context(), w.App, pause))
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// Where many wait for places, no workflow task grants more than some.
func TestManyPlacesAreGrantedInSmallNumbers_C10(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.StopWorker()
	id := protocol.RuntimeID("many")
	const leases = 500
	for n := range leases {
		lease := entities.LeaseRequest{ID: fmt.Sprint(n), Holder: fmt.Sprintf("service/none/%d", n), Description: "x", Limit: leases, Timeout: time.Hour}
		_, err := w.Client.SignalWithStartWorkflow(t.Context(), id, protocol.SignalLease, lease,
			client.StartWorkflowOptions{TaskQueue: protocol.TaskQueue}, protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: "many", StartMode: protocol.StartMode{Adopt: true}})
		require.NoError(t, err)
	}
	w.StartWorker()
	byTask, granted := map[int64]int{}, 0
	require.Eventually(t, func() bool {
		clear(byTask)
		granted = 0
		for _, e := range w.History(id) {
			if e.EventType == enumspb.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED {
				byTask[e.GetSignalExternalWorkflowExecutionInitiatedEventAttributes().WorkflowTaskCompletedEventId]++
				granted++
			}
		}
		return granted == leases
	}, stage.Patience, time.Second)
	for _, n := range byTask {
		require.LessOrEqual(t, n, 100)
	}
	t.Logf("%d grants in %d workflow tasks", granted, len(byTask))
}
