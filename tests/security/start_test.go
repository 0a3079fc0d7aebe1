package security

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// Whoever can start a workflow makes a service believe no state: a first run that brings some, that knows nothing, that is named
// otherwise than its input, or that would come back with the same input, ends at once. What is declared is looked after again.
func TestForgedStartBringsNoState_G1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	publishes(w, ", {manualApproval: {}}")
	w.Release("web", "v1")
	const waits = "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL"
	w.Await("web", waits)
	id := w.ID("web")
	carried := protocol.CarriedState{StateVersion: 1, State: withoutApproval(t, w, id)}
	w.StopWorker()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), id, "", "an operator's test"))

	const scheduled = "by a schedule"
	starts := map[string]func() (string, client.StartWorkflowOptions, protocol.ServiceInput){
		"state": func() (string, client.StartWorkflowOptions, protocol.ServiceInput) {
			return id, client.StartWorkflowOptions{}, protocol.ServiceInput{Service: "web", CarriedState: carried}
		},
		"state beside a checkpoint, tried again": func() (string, client.StartWorkflowOptions, protocol.ServiceInput) {
			again := &temporal.RetryPolicy{InitialInterval: time.Millisecond}
			return w.ID("api"), client.StartWorkflowOptions{RetryPolicy: again}, protocol.ServiceInput{
				Service: "api", CarriedState: carried, StartMode: protocol.StartMode{Adopt: true},
			}
		},
		"under another id": func() (string, client.StartWorkflowOptions, protocol.ServiceInput) {
			return "service/" + w.App + "/other", client.StartWorkflowOptions{}, protocol.ServiceInput{
				Service: "web", StartMode: protocol.StartMode{Adopt: true},
			}
		},
		scheduled: func() (string, client.StartWorkflowOptions, protocol.ServiceInput) {
			return w.ID("later"), client.StartWorkflowOptions{CronSchedule: "@every 1s"}, protocol.ServiceInput{
				Service: "later", StartMode: protocol.StartMode{Adopt: true},
			}
		},
		"that knows nothing": func() (string, client.StartWorkflowOptions, protocol.ServiceInput) {
			return w.ID("blank"), client.StartWorkflowOptions{}, protocol.ServiceInput{Service: "blank"}
		},
	}
	runs := map[string]client.WorkflowRun{}
	for what, start := range starts {
		id, options, in := start()
		options.ID, options.TaskQueue, in.Application = id, protocol.TaskQueue, w.App
		if id == w.ID("api") { // it runs already
			require.NoError(t, w.Client.TerminateWorkflow(t.Context(), id, "", "an operator's test"))
		}
		run, err := w.Client.ExecuteWorkflow(t.Context(), options, protocol.ServiceWorkflow, in)
		require.NoError(t, err, what)
		runs[what] = run
	}
	w.StartWorker()
	for what, run := range runs {
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			d, err := w.Client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
			require.NoError(t, err, what)
			return d.WorkflowExecutionInfo.Status == enumspb.WORKFLOW_EXECUTION_STATUS_FAILED, what + ": " + d.WorkflowExecutionInfo.Status.String()
		})
		err := w.Client.GetWorkflow(t.Context(), run.GetID(), run.GetRunID()).GetWithOptions(t.Context(), nil, client.WorkflowRunGetOptions{DisableFollowingRuns: true})
		if what != scheduled { // which the server starts again, to end again
			require.ErrorContains(t, err, "this workflow was not started by Converge", what)
		}
	}
	runsAgain(w, id)
	w.Await("web", waits)
	require.Zero(t, w.Fake.At(w.App, "web", "production").Applies())
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// withoutApproval is the state of a service from its checkpoint, in which production asks for no approval.
func withoutApproval(t *testing.T, w *stage.World, id string) json.RawMessage {
	t.Helper()
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer s.Close() // only read
	var plain json.RawMessage
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		c, err := s.Checkpoint(t.Context(), id)
		if err != nil {
			return false, err.Error()
		}
		require.NoError(t, c.State.Unpack(&plain))
		return bytes.Contains(plain, []byte(`"approval/production"`)), "no approval in its checkpoint"
	})
	var all map[string]any
	require.NoError(t, json.Unmarshal(plain, &all))
	for _, channel := range all["spec"].(map[string]any)["channels"].([]any) {
		delete(channel.(map[string]any), "conditions")
	}
	plain, err = json.Marshal(all)
	require.NoError(t, err)
	return plain
}

// runsAgain waits until a workflow that was ended runs.
func runsAgain(w *stage.World, id string) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), id, "")
		require.NoError(w.T, err)
		return d.WorkflowExecutionInfo.Status == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, d.WorkflowExecutionInfo.Status.String()
	})
}
