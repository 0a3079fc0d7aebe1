package tests

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes/custom"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// oneFlow is a channel whose applies are the workflow Deploy, on the task queue QUEUE.
const oneFlow = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: production, runtimes: [{name: APP-flow}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-flow
custom:
  apply: {workflow: {type: Deploy, taskQueue: QUEUE}, timeout: 2m}
  env: {REGION: eu, TOKEN: {workerEnv: TOKEN}}
  retry: {maxAttempts: 2, backoff: 100ms, maxBackoff: 1s}
`

// deployed has the service web released to it, and waits for nothing.
func deployed(w *world, queue, service string) {
	w.Write(strings.ReplaceAll(oneFlow, "QUEUE", queue) + service)
	w.Publish()
	w.Release("web", "v1")
}

// serve has a worker of the user's own run Deploy.
func serve(t *testing.T, c client.Client, queue string, deploy any) (stop func()) {
	t.Helper()
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflowWithOptions(deploy, workflow.RegisterOptions{Name: "Deploy"})
	require.NoError(t, w.Start())
	return w.Stop
}

// flow is the id of the workflow that applies web.
func flow(w *world) string {
	return protocol.ApplyWorkflowID(w.App + "/web/production/main/" + w.App + "-flow")
}

// flowRun is the last run of the workflow that applies web: how it is, and which.
func flowRun(w *world) (enums.WorkflowExecutionStatus, string) {
	found, err := w.Client.DescribeWorkflowExecution(w.T.Context(), flow(w), "")
	if err != nil {
		return enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED, err.Error()
	}
	return found.GetWorkflowExecutionInfo().GetStatus(), found.GetWorkflowExecutionInfo().GetExecution().GetRunId()
}

// awaitRun waits until the workflow is so, and returns which run it is.
func awaitRun(w *world, want enums.WorkflowExecutionStatus) (id string) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		var status enums.WorkflowExecutionStatus
		status, id = flowRun(w)
		return status == want, fmt.Sprint(status, " ", id)
	})
	return id
}

// A workflow of the user's own applies: it is told what a command is told, but no secret, and what it returns is kept as its output.
func TestWorkflowApplies_D28(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := make(chan custom.WorkflowInput, 1)
	defer serve(t, w.Client, w.App, func(ctx workflow.Context, in custom.WorkflowInput) (map[string]string, error) {
		got <- in
		return map[string]string{"message": "hello " + in.Version}, nil
	})()
	deployed(w, w.App, stage.Web)
	w.Await("web", "production CONVERGED v1")
	in := <-got
	require.Positive(t, in.Sequence)
	in.Sequence, in.Epoch, in.ServiceID = 0, 0, ""
	require.Equal(t, custom.WorkflowInput{
		Application: w.App, Service: "web", Channel: "production", Instance: "main", Version: "v1", Runtime: w.App + "-flow",
		Env: map[string]string{"REGION": "eu", "GREETING": "hello", "VERSION": "v1"},
	}, in)

	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	logs, err := s.Logs(t.Context(), w.App, "web", "production/main")
	require.NoError(t, err)
	require.Len(t, logs, 1)
	require.Equal(t, "{\"message\":\"hello v1\"}\n", logs[0].Stdout)
	require.Equal(t, "workflow Deploy", logs[0].Command)
}

// The worker of Converge is restarted while the workflow runs: it is not started again.
func TestWorkflowIsFoundAgain_D28(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 0)
	defer serve(t, w.Client, w.App, func(ctx workflow.Context, in custom.WorkflowInput) error {
		if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
			return nil
		}
		workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
		return workflow.NewContinueAsNewError(ctx, "Deploy", in)
	})()
	deployed(w, w.App, stage.Web)
	first := awaitRun(w, enums.WORKFLOW_EXECUTION_STATUS_RUNNING)
	w.StopWorker()
	w.StartWorker()
	require.NoError(t, w.Client.SignalWorkflow(t.Context(), flow(w), first, "go", nil))
	w.Await("web", "production CONVERGED v1")
	found, err := w.Client.DescribeWorkflowExecution(t.Context(), flow(w), "")
	require.NoError(t, err)
	require.Equal(t, first, found.GetWorkflowExecutionInfo().GetFirstRunId())
}

// An apply that is asked to end has its workflow cancelled, which ends as it likes; one that is terminated is.
func TestWorkflowIsCancelled_D28(t *testing.T) {
	t.Parallel()
	for terminate, want := range map[bool]enums.WorkflowExecutionStatus{
		false: enums.WORKFLOW_EXECUTION_STATUS_CANCELED, true: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED,
	} {
		t.Run(want.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			defer serve(t, w.Client, w.App, func(ctx workflow.Context, _ custom.WorkflowInput) error {
				if terminate {
					ctx, _ = workflow.NewDisconnectedContext(ctx) // it does not listen
				}
				return workflow.Sleep(ctx, time.Hour)
			})()
			deployed(w, w.App, stage.Web)
			awaitRun(w, enums.WORKFLOW_EXECUTION_STATUS_RUNNING)
			text, err := json.Marshal(map[string]any{"version": "v1", "by": "bob", "terminate": terminate})
			require.NoError(t, err)
			w.Act("web", protocol.Cancel, string(text))
			awaitRun(w, want)
		})
	}
}

// What cannot be is said: nobody there, another type, a result that is none, a failure for good.
func TestWorkflowThatCannotApply_D28(t *testing.T) {
	t.Parallel()
	nothing := func(workflow.Context, custom.WorkflowInput) error { return nil }
	for name, row := range map[string]struct {
		deploy any // nil: nobody polls
		as     string
		want   string
	}{
		"no worker polls": {nil, "Deploy", "no worker polls task queue APP for workflows in namespace"},
		"another type":    {nothing, "Other", "the workers of task queue APP cannot start it: unable to find workflow type: Deploy"},
		"no JSON": {
			func(workflow.Context, custom.WorkflowInput) ([]byte, error) { return []byte{1}, nil }, "Deploy",
			`its result is not JSON (encoding "binary/plain"); expected a JSON value or nothing`,
		},
		"fails for good": {func(workflow.Context, custom.WorkflowInput) error {
			return temporal.NewNonRetryableApplicationError("no such cluster", "", nil)
		}, "Deploy", "workflow Deploy: no such cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if row.deploy != nil {
				user := worker.New(w.Client, w.App, worker.Options{})
				user.RegisterWorkflowWithOptions(row.deploy, workflow.RegisterOptions{Name: row.as})
				require.NoError(t, user.Start())
				defer user.Stop()
			}
			deployed(w, w.App, stage.Web)
			want := strings.ReplaceAll(row.want, "APP", w.App)
			w.AwaitThat("web", want, func(s protocol.Status) bool {
				text, err := json.Marshal(s)
				return err == nil && strings.Contains(strings.ReplaceAll(string(text), `\"`, `"`), want)
			})
			if row.deploy == nil { // and it goes on by itself when somebody does
				defer serve(t, w.Client, w.App, nothing)()
				w.Await("web", "production CONVERGED v1")
			}
		})
	}
}
