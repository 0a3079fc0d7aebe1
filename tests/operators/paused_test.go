package operators

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/deployment"
	"github.com/converge-engine/converge/worker/embedded"
)

// examined are the findings of `converge admin doctor` with a code.
func examined(w *stage.World, code string) (found []deployment.Finding) {
	w.T.Helper()
	out, _, _ := tried(w, "admin", "doctor", "--output", "json")
	var report deployment.Report
	require.NoError(w.T, json.Unmarshal([]byte(out), &report))
	for _, f := range report.Findings {
		if f.Code == code {
			found = append(found, f)
		}
	}
	return found
}

// awaitFinding waits until `converge admin doctor` finds one thing that an operator paused.
func awaitFinding(w *stage.World) deployment.Finding {
	w.T.Helper()
	var found []deployment.Finding
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		found = examined(w, deployment.PausedByOperator)
		return len(found) == 1, fmt.Sprint(found)
	})
	return found[0]
}

// awaitNoFinding waits until it finds nothing that an operator paused.
func awaitNoFinding(w *stage.World) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		found := examined(w, deployment.PausedByOperator)
		return len(found) == 0, fmt.Sprint(found)
	})
}

// While no worker runs that could resume it, doctor names a paused observation, who paused it, since when and why. Once one runs, it is
// resumed, and drift is repaired.
func TestPausedObservationIsNamed_F10(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	o := operated{w, w.ID("web")}
	id := o.repeated(protocol.ActivityObserve)
	w.StopWorker()
	require.NoError(t, pauseActivity(o, id))
	found := awaitFinding(w)
	require.Equal(t, w.ID("web"), found.What)
	require.Regexp(t, `^its activity Observe \(\d+\) is paused by an operator \(olga\) since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC: an operator's test; changes and drift are not seen`, found.Why)
	require.Equal(t, fmt.Sprintf("temporal activity unpause --workflow-id %s --activity-id %s", w.ID("web"), id), found.Next)
	staging := w.Fake.At(w.App, "web", "staging")
	staging.SetDrifted(true)
	applies, began := staging.Applies(), time.Now()
	w.StartWorker()
	awaitFake(t, w.Fake, func() bool { return staging.Applies() > applies })
	require.Less(t, time.Since(began), aMinute)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	awaitNoFinding(w)
}

// named waits until `converge status` of a service and of its application say what an operator paused, and end with 1, and explain too.
// doctor finds the same.
func named(w *stage.World, want string) deployment.Finding {
	w.T.Helper()
	found := awaitFinding(w)
	require.Equal(w.T, w.ID("web"), found.What)
	require.Regexp(w.T, want, found.Why)
	for _, of := range []string{w.App + "/web", w.App} {
		_, said, code := tried(w, "status", of)
		require.Equal(w.T, 1, code, said)
		require.Contains(w.T, said, w.ID("web")+": "+found.Why+". To undo that: "+found.Next)
	}
	out, said, code := tried(w, "explain", w.App+"/web")
	require.Equal(w.T, 1, code, said)
	require.Contains(w.T, out+said, w.ID("web")+": "+found.Why+". To undo that: "+found.Next)
	return found
}

// What changes something, or decides whether something changes, stays paused, since that may be why it was paused: status, explain and doctor
// name it, and it continues when it is resumed.
func TestPausedWorkIsNamedAndStaysPaused_F2_F10(t *testing.T) {
	t.Parallel()
	t.Run("apply", func(t *testing.T) {
		t.Parallel()
		w := shared.OwnServer(t, 0)
		w.RunWeb()
		o := operated{w, w.ID("web")}
		staging := w.Fake.At(w.App, "web", "staging")
		letGo := staging.HangApplies()
		w.Release("web", "v2")
		awaitFake(t, w.Fake, staging.Applying)
		pauseAll(o, protocol.ActivityApply)
		named(w, `^its activity Apply \(\d+\) is paused by an operator \(olga\) since .+: an operator's test; the apply waits`)
		awaitFake(t, w.Fake, func() bool { return !staging.Applying() }) // its worker has learned of the pause
		letGo()
		applies := staging.Applies()
		passes(w)
		require.Equal(t, applies, staging.Applies())
		require.NoError(t, unpauseActivity(o, o.anyOf(protocol.ActivityApply)))
		w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
		require.Empty(t, w.Fake.Overlaps())
		awaitNoFinding(w)
	})
	t.Run("check", func(t *testing.T) {
		t.Parallel()
		w := shared.OwnServer(t, 0)
		w.Write(stage.TwoChannels + stage.Web + "dependencies: [{service: api, rule: stable}]\n" + strings.Replace(stage.Web, "name: web", "name: api", 1))
		w.Publish()
		w.Release("web", "v1")
		o := operated{w, w.ID("web")}
		o.repeated(protocol.ActivityCheck)
		o.act(pauseActivity, protocol.ActivityCheck)
		w.Release("api", "v1")
		w.Await("api", "staging CONVERGED v1, production CONVERGED v1")
		named(w, `^its activity Check \(\d+\) is paused by an operator \(olga\) since .+: an operator's test; the conditions that it evaluates keep their last result`)
		passes(w)
		require.Equal(t, "staging WAITING_PRECONDITIONS, production WAITING_PRECONDITIONS", stage.Channels(w.Status("web")))
		require.NoError(t, unpauseActivity(o, o.anyOf(protocol.ActivityCheck)))
		w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
		awaitNoFinding(w)
	})
}

// An application whose notification of its services is paused is named as well; they are notified once it is resumed.
func TestPausedNotificationIsNamed_F10(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	w.StopWorker()
	var silent atomic.Bool
	silent.Store(true)
	w.StartWorkerOver(func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		if silent.Load() && strings.Contains(method, "SignalW") {
			return errors.New("no signal passes")
		}
		return invoke(ctx, method, req, reply, c, o...)
	})
	w.Write(strings.Replace(stage.TwoChannels+stage.Web, "kind: Service\n", "kind: Service\ndescription: published meanwhile\n", 1))
	w.Publish()
	o := operated{w, protocol.ApplicationID(w.App)}
	o.repeated(protocol.ActivityNotify)
	pauseAll(o, protocol.ActivityNotify)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // the attempt that ran has ended
		all := o.pending(protocol.ActivityNotify)
		return len(all) == 1 && all[0].State == enumspb.PENDING_ACTIVITY_STATE_PAUSED, fmt.Sprint(all)
	})
	silent.Store(false)
	found := awaitFinding(w)
	require.Equal(t, o.id, found.What)
	require.Regexp(t, `^its activity Notify \(\d+\) is paused by an operator \(olga\) since .+; what depends on it waits$`, found.Why)
	_, said, code := tried(w, "status")
	require.Equal(t, 1, code)
	require.Contains(t, said, o.id+": "+found.Why)
	passes(w)
	require.EqualValues(t, 1, w.Status("web").Incarnation)
	require.NoError(t, unpauseActivity(o, o.anyOf(protocol.ActivityNotify)))
	w.AwaitThat("web", "incarnation 2", func(s protocol.Status) bool { return s.Incarnation == 2 })
	awaitNoFinding(w)
}

// passes waits until the supervising worker has checked twice more: what it undoes is undone by then.
func passes(w *stage.World) {
	w.T.Helper()
	epoch, first := looked(w)
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		now, n := looked(w)
		return now != epoch || n >= first+2, fmt.Sprint(n, first)
	})
}

// A workflow that an operator paused stays paused. It is not taken for a missing one; status, explain, doctor and requests say who paused it
// and how it is resumed. Afterwards it does what it was sent, and repairs drift, without a second apply of anything.
func TestPausedWorkflowIsNamedAndStaysPaused_F1_F2_F10(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{WorkflowPause: true})
	w.RunWeb()
	ended, since := runOf(w, w.ID("web")), time.Now()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "an earlier run"))
	managedAgain(w, w.ID("web"), ended, since)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	staging, production := w.Fake.At(w.App, "web", "staging"), w.Fake.At(w.App, "web", "production")
	letGo := staging.HangApplies()
	w.Release("web", "v2")
	awaitFake(t, w.Fake, staging.Applying)
	run := runOf(w, w.ID("web"))
	pauseWorkflow(w, w.ID("web"))
	found := named(w, `^its workflow is paused by an operator \(olga\) since \d{4}-.+: an operator's test; it deploys and repairs nothing`)
	require.Equal(t, "temporal workflow unpause --workflow-id "+w.ID("web"), found.Next)
	out, _, _ := tried(w, "status", w.App)
	require.NotContains(t, out, "UNMANAGED", "an earlier run ended")
	_, said, code := tried(w, "pause", w.App+"/web", "--reason", "because")
	require.Equal(t, 1, code)
	require.Contains(t, said, found.Next)
	w.Signal("web", protocol.Release, `{"by":"ci","version":"v3"}`)
	letGo()
	production.SetDrifted(true)
	passes(w)
	d, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED, d.WorkflowExecutionInfo.Status)
	require.Zero(t, production.Changes()-1, "v1 alone")
	unpauseWorkflow(w, w.ID("web"))
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	require.Equal(t, run, runOf(w, w.ID("web")))
	require.Empty(t, w.Fake.Overlaps())
	awaitNoFinding(w)
}

func pauseWorkflow(w *stage.World, id string) {
	w.T.Helper()
	_, err := w.Client.WorkflowService().PauseWorkflowExecution(w.T.Context(), &workflowservice.PauseWorkflowExecutionRequest{
		Namespace: "default", WorkflowId: id, Identity: "olga", Reason: "an operator's test", RequestId: "pause",
	})
	require.NoError(w.T, err)
}

func unpauseWorkflow(w *stage.World, id string) {
	w.T.Helper()
	_, err := w.Client.WorkflowService().UnpauseWorkflowExecution(w.T.Context(), &workflowservice.UnpauseWorkflowExecutionRequest{
		Namespace: "default", WorkflowId: id, Identity: "olga", RequestId: "unpause",
	})
	require.NoError(w.T, err)
}

// An application whose workflow an operator paused does not hide its services, and takes no publication until it is resumed.
func TestPausedApplicationIsNamed_F10(t *testing.T) {
	t.Parallel()
	w := shared.OwnServerWith(t, embedded.Options{WorkflowPause: true})
	w.RunWeb()
	id := protocol.ApplicationID(w.App)
	pauseWorkflow(w, id)
	found := awaitFinding(w)
	require.Equal(t, id, found.What)
	for _, arguments := range [][]string{{"status"}, {"status", w.App}} {
		out, said, code := tried(w, arguments...)
		require.Equal(t, 1, code)
		require.Regexp(t, `(?m)^web\sstaging\sCONVERGED`, out)
		require.Contains(t, said, id+": "+found.Why+". To undo that: "+found.Next)
	}
	_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true})
	require.ErrorContains(t, err, "temporal workflow unpause --workflow-id "+id)
	passes(w)
	unpauseWorkflow(w, id)
	w.Write(strings.Replace(stage.TwoChannels+stage.Web, "kind: Service\n", "kind: Service\ndescription: published afterwards\n", 1))
	w.Publish()
	w.AwaitThat("web", "incarnation 2", func(s protocol.Status) bool { return s.Incarnation == 2 })
	awaitNoFinding(w)
}

// An override of the version of a workflow, on workers that have no version, changes nothing: the server refuses one to a version that no
// worker has (one to a version that has workers is in tests/upgrade).
func TestVersionOverrideChangesNothing_F1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	override := func(to client.VersioningOverride) error {
		_, err := w.Client.UpdateWorkflowExecutionOptions(t.Context(), client.UpdateWorkflowExecutionOptionsRequest{
			WorkflowId:                      w.ID("web"),
			WorkflowExecutionOptionsChanges: client.WorkflowExecutionOptionsChanges{VersioningOverride: &client.VersioningOverrideChange{Value: to}},
		})
		return err
	}
	pinned := client.PinnedVersioningOverride{Version: sdkworker.WorkerDeploymentVersion{DeploymentName: "converge", BuildID: "none"}}
	require.ErrorContains(t, override(&pinned), "is not present in task queue")
	require.NoError(t, override(&client.AutoUpgradeVersioningOverride{}))
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	w.Fake.At(w.App, "web", "staging").SetDrifted(true)
	awaitFake(t, w.Fake, func() bool { return w.Fake.At(w.App, "web", "staging").Applies() == 3 })
}
