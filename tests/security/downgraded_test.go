package security

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// replaced ends a workflow by starting it anew, as whoever may start workflows can.
func replacedBy(t *testing.T, w *stage.World, id, workflow string, input any) {
	t.Helper()
	_, err := w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		ID: id, TaskQueue: protocol.TaskQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING,
	}, workflow, input)
	require.NoError(t, err)
}

// Whoever starts the workflow of the installation does not pause everything by it: that takes the verb.
func TestStartPausesNothing_G1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	replacedBy(t, w, protocol.InstallationID(), protocol.InstallationWorkflow, protocol.InstallationInput{
		ID: "x", StartMode: protocol.StartMode{Adopt: true}, Pause: &entities.Pause{By: "alice", At: time.Now().Add(1000 * time.Hour)},
	})
	var s protocol.InstallationStatus
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		answer, err := temporaltest.Query(t.Context(), w.Client, protocol.InstallationID(), protocol.QueryStatus)
		return err == nil && answer.Get(&s) == nil && s.Schema != "", fmt.Sprint(err)
	})
	require.Nil(t, s.Pause)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}
