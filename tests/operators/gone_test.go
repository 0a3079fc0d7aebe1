package operators

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commandpb "go.temporal.io/api/command/v1"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// A minute is how long a service may be unmanaged, whatever was done to it.
const aMinute = time.Minute

// managedAgain waits until another run of a workflow answers, and returns how long that took. It may take as many looks of
// whoever supervises as are made in a minute; on a machine with too much to do those are made later as well.
func managedAgain(w *stage.World, id, before string, since time.Time) time.Duration {
	w.T.Helper()
	const looksInAMinute = 8
	epoch, first := looked(w)
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), id, "")
		if err != nil {
			return false, err.Error()
		}
		info := d.WorkflowExecutionInfo
		if info.CloseTime != nil || info.Execution.RunId == before {
			return false, info.Status.String()
		}
		_, err = temporaltest.Query(w.T.Context(), w.Client, id, protocol.QueryStatus)
		return err == nil, fmt.Sprint(err)
	})
	took := time.Since(since)
	now, last := looked(w)
	if now == epoch {
		last -= first
	}
	w.T.Logf("%s was managed again after %s, %d looks", id, took.Round(100*time.Millisecond), last)
	require.LessOrEqual(w.T, last, int64(looksInAMinute))
	return took
}

// looked returns how often somebody has looked after what is declared, and in which epoch of the installation.
func looked(w *stage.World) (epoch, times int64) {
	w.T.Helper()
	kept, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	defer kept.Close() // only read
	installation, err := kept.Installation(w.T.Context())
	require.NoError(w.T, err)
	times, _, err = kept.Lease(w.T.Context(), fmt.Sprintf("supervision-%d", installation.Epoch)) // renewed with each look
	require.NoError(w.T, err)
	return installation.Epoch, times
}

// approvals is an application whose production waits for a person.
const approvals = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt}]}
- name: production
  runtimes: [{name: APP-rt}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}, {manualApproval: {}}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 3, backoff: 100ms, maxBackoff: 1s}}
`

// end is a way in which an operator ends the workflow of a service for good.
type end struct {
	name string
	do   func(w *stage.World, id string)
	why  string
}

var ends = []end{
	{"terminated", func(w *stage.World, id string) {
		require.NoError(w.T, w.Client.TerminateWorkflow(w.T.Context(), id, "", "cleaning up"))
	}, "its workflow was terminated by "},
	{"deleted", func(w *stage.World, id string) {
		_, err := w.Client.WorkflowService().DeleteWorkflowExecution(w.T.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
			Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id},
		})
		require.NoError(w.T, err)
	}, "its workflow was deleted"},
}

// A service whose workflow is ended for good is managed again within a minute, with all that people did: what runs, what
// waits, what was approved and paused. Drift that came meanwhile is repaired.
func TestEndedServiceIsManagedAgain_F1(t *testing.T) {
	t.Parallel()
	for _, how := range ends {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			w := shared.OwnServer(t, 0)
			w.Write(approvals + stage.Web)
			w.Publish()
			w.Release("web", "v1")
			w.Await("web", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
			w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
			w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
			w.Act("web", protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)
			w.Release("web", "v2")
			w.Await("web", "staging CONVERGED v2, production PAUSED v1")
			w.Signal("web", protocol.Approve, `{"by":"carol","version":"v2","topic":"production"}`)
			w.AwaitThat("web", "carol's approval", func(s protocol.Status) bool { return hasApproval(s, "carol") })
			staging := w.Fake.At(w.App, "web", "staging")
			applies := staging.Applies()

			id := w.ID("web")
			run, since := runOf(w, id), time.Now()
			how.do(w, id)
			staging.SetVersion("by hand")
			managedAgain(w, id, run, since)
			s := w.AwaitThat("web", "as before", func(s protocol.Status) bool {
				return stage.Channels(s) == "staging CONVERGED v2, production PAUSED v1"
			})
			require.True(t, hasApproval(s, "carol"))
			require.Contains(t, journal(s), "continues from its checkpoint: "+how.why)
			require.NoError(t, w.Fake.Await(t.Context(), func() bool { return staging.Version() == "v2" }))
			require.Equal(t, applies+1, staging.Applies(), "the drift was repaired, nothing else applied")
			require.Equal(t, 1, w.Fake.At(w.App, "web", "production").Applies())
			w.Act("web", protocol.Resume, `{"by":"bob","channel":"production"}`)
			w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
		})
	}
}

func hasApproval(s protocol.Status, by string) bool {
	return slices.ContainsFunc(s.Releases, func(r protocol.ReleaseStatus) bool {
		return slices.ContainsFunc(r.Approvals, func(a entities.Approval) bool { return a.Who.Name == by })
	})
}

func journal(s protocol.Status) (text string) {
	for _, l := range s.Journal {
		text += l.Text + "\n"
	}
	return text
}

// A service whose workflow was failed, by a worker of somebody else's say, is managed again as well.
func TestFailedServiceIsManagedAgain_F1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	id := w.ID("web")
	run := runOf(w, id)
	w.StopWorker()
	w.Signal("web", protocol.Refresh, `{"by":"alice"}`)
	fail(w, id)
	since := time.Now()
	w.StartWorker()
	managedAgain(w, id, run, since)
	s := w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Contains(t, journal(s), "continues from its checkpoint: its workflow ended: failed: an operator's test")
}

// fail answers the next task of a workflow, in place of a worker, with that the workflow has failed.
func fail(w *stage.World, id string) {
	w.T.Helper()
	answer(w, id, &commandpb.Command{
		CommandType: enumspb.COMMAND_TYPE_FAIL_WORKFLOW_EXECUTION,
		Attributes: &commandpb.Command_FailWorkflowExecutionCommandAttributes{
			FailWorkflowExecutionCommandAttributes: &commandpb.FailWorkflowExecutionCommandAttributes{
				Failure: &failurepb.Failure{Message: "an operator's test"},
			},
		},
	})
}

// answer answers the next task of a workflow, in place of a worker, with a command.
func answer(w *stage.World, id string, command *commandpb.Command) {
	w.T.Helper()
	server := w.Client.WorkflowService()
	ctx, stop := context.WithTimeout(w.T.Context(), stage.Patience)
	defer stop()
	for {
		task, err := server.PollWorkflowTaskQueue(ctx, &workflowservice.PollWorkflowTaskQueueRequest{
			Namespace: "default", TaskQueue: &taskqueuepb.TaskQueue{Name: protocol.TaskQueue},
		})
		require.NoError(w.T, err)
		if task.GetWorkflowExecution().GetWorkflowId() != id {
			continue // nobody asks for it any more; its worker gets it once it has timed out
		}
		_, err = server.RespondWorkflowTaskCompleted(ctx, &workflowservice.RespondWorkflowTaskCompletedRequest{
			Namespace: "default", TaskToken: task.GetTaskToken(), Commands: []*commandpb.Command{command},
		})
		require.NoError(w.T, err)
		return
	}
}

// looks waits until whoever supervises has looked so often more.
func looks(w *stage.World, times int64) {
	w.T.Helper()
	_, before := looked(w)
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		_, n := looked(w)
		return n >= before+times, fmt.Sprint(n, " after ", before)
	})
}

// A service that is ended is missed though another workflow was started at the same time, so that there are as many as before.
func TestEndedServiceIsMissedThoughAnotherBegan(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	looks(w, 6) // until workflows are counted only
	id := w.ID("web")
	run, since := runOf(w, id), time.Now()
	ends[0].do(w, id)
	_, err := w.Client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: protocol.RuntimeID("other"), TaskQueue: "nobody"},
		protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: "other"})
	require.NoError(t, err)
	managedAgain(w, id, run, since)
}

// What could not be looked after in one look, as the store did not have it, is in a later one.
func TestLookThatCouldNotSeeAllIsMadeAgain_F1(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	w.StopWorker()
	id := w.ID("web")
	run := runOf(w, id)
	back := lose(w, "manifests")
	ends[0].do(w, id)
	w.StartWorker()
	looks(w, 6) // until workflows are counted only
	back()
	managedAgain(w, id, run, time.Now())
}

// Nothing is known of a service that was published a moment ago and is started only now: nobody is told that it came to harm, and
// nothing is held against it.
func TestServiceThatHadNotBegunIsStarted_F1(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(approvals + stage.Web)
	published := time.Now()
	w.Publish()
	w.AwaitThat("web", "its configuration", func(s protocol.Status) bool { return s.Incarnation == 1 })
	id := w.ID("web")
	run, since := runOf(w, id), time.Now()
	ends[1].do(w, id)
	w.Lose("checkpoints/service")
	managedAgain(w, id, run, since)
	require.GreaterOrEqual(t, time.Since(published), 30*time.Second, "until then it is its application's to start")
	s := w.AwaitThat("web", "its configuration", func(s protocol.Status) bool { return s.Incarnation == 1 })
	require.NotContains(t, journal(s), "deleted")
	require.Nil(t, s.Restarts)
}
