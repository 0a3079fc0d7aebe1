package upgrade

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	sdkworker "go.temporal.io/sdk/worker"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/deployment"
	"github.com/converge-engine/converge/worker/embedded"
)

const deploymentName = "converge"

// pollLasts is how long workers may be silent here, where the server ends polls after five seconds.
const pollLasts = 20 * time.Second

// world is an application of several services on a server of its own, whose workers are of several versions.
type world struct {
	*stage.World
	services []string
}

func newWorld(t *testing.T, services int) *world {
	t.Helper()
	w := &world{World: shared.Unserved(t, embedded.Options{DrainageInterval: 2 * time.Second, PollExpiration: 5 * time.Second})}
	yaml := stage.TwoChannels
	for n := range services {
		name := fmt.Sprintf("web%d", n)
		w.services = append(w.services, name)
		yaml += strings.ReplaceAll(stage.Web, "name: web", "name: "+name) + "initialVersion: v1\n"
	}
	w.Write(yaml)
	return w
}

// begin publishes, and waits until everything runs v1.
func (w *world) begin() {
	w.T.Helper()
	w.Publish()
	w.everywhere("v1", w.services...)
}

func (w *world) everywhere(version string, services ...string) {
	w.T.Helper()
	for _, name := range services {
		w.Await(name, fmt.Sprintf("staging CONVERGED %[1]s, production CONVERGED %[1]s", version))
	}
}

// serve starts a worker of a build that becomes the current one.
func (w *world) serve(build string) (stop func()) {
	w.T.Helper()
	return w.StartWorkerAs(worker.Options{Deployment: worker.Deployment{Name: deploymentName, Build: build, SetCurrent: true, PollTimeout: pollLasts}})
}

// versioning is what the server says of where a workflow runs.
func (w *world) versioning(id string) *workflowpb.WorkflowExecutionVersioningInfo {
	w.T.Helper()
	d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), id, "")
	require.NoError(w.T, err)
	require.Equal(w.T, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, d.WorkflowExecutionInfo.Status)
	return d.WorkflowExecutionInfo.GetVersioningInfo()
}

func (w *world) buildOf(id string) string {
	w.T.Helper()
	return w.versioning(id).GetDeploymentVersion().GetBuildId()
}

// arrive waits until workflows are on a build.
func (w *world) arrive(build string, ids ...string) {
	w.T.Helper()
	for _, id := range ids {
		temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
			return w.buildOf(id) == build, fmt.Sprintf("%s is on %q, not on %q", id, w.buildOf(id), build)
		})
	}
}

func (w *world) ids(services ...string) []string {
	var ids []string
	for _, name := range services {
		ids = append(ids, w.ID(name))
	}
	return ids
}

// current is the build that is current.
func (w *world) current() string {
	w.T.Helper()
	d, err := w.Client.WorkerDeploymentClient().GetHandle(deploymentName).Describe(w.T.Context(), client.WorkerDeploymentDescribeOptions{})
	require.NoError(w.T, err)
	if v := d.Info.RoutingConfig.CurrentVersion; v != nil {
		return v.BuildID
	}
	return ""
}

// drained waits until the server says that a build has no workflows left.
func (w *world) drained(build string) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		v, err := w.Client.WorkerDeploymentClient().GetHandle(deploymentName).DescribeVersion(w.T.Context(), client.WorkerDeploymentDescribeVersionOptions{BuildID: build})
		if err != nil || v.Info.DrainageInfo == nil {
			return false, fmt.Sprint(err)
		}
		return v.Info.DrainageInfo.DrainageStatus == client.WorkerDeploymentVersionDrainageStatusDrained, "draining"
	})
}

// examine is what `converge admin doctor` finds.
func (w *world) examine() (found []string) {
	w.T.Helper()
	report := deployment.Namespace{Client: w.Client, Name: embedded.Namespace, PollTimeout: pollLasts}.Examine(w.T.Context())
	require.NotEmpty(w.T, report.Examined)
	for _, f := range report.Findings {
		require.NotEmpty(w.T, f.Next)
		found = append(found, f.Code+" "+f.What+": "+f.Why)
	}
	return found
}

// Idle services, the application and the runtime move to the version that becomes current; a service with an apply under
// way stays until that ends, is released to meanwhile, and follows. The old version is then drained.
func TestWorkflowsMoveToTheCurrentVersion_F3(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	stop := w.serve("one")
	w.begin()
	busy := w.services[0]
	apply := w.Fake.At(w.App, busy, "staging")
	letGo := apply.HangApplies()
	w.Release(busy, "v2")
	require.NoError(t, w.Fake.Await(t.Context(), apply.Applying))

	w.serve("two")
	w.arrive("two", append(w.ids(w.services[1:]...), protocol.ApplicationID(w.App))...)
	require.Equal(t, "one", w.buildOf(w.ID(busy)), "an apply ends where it began")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // the server's list is a little late
		all, err := deployment.Namespace{Client: w.Client, Name: embedded.Namespace}.Serving(t.Context())
		return err == nil && len(all) == 2 && all[0].Build == "two" && all[0].Current && all[0].Workflows > 3 && all[1].Build == "one" && !all[1].Current && all[1].Workflows == 1,
			fmt.Sprint(all, err)
	})
	letGo()
	w.everywhere("v2", busy)
	w.arrive("two", w.ID(busy))
	w.drained("one")
	stop()
	require.Equal(t, 2, apply.Applies(), "v1 and v2, once each")

	w.Release(w.services[1], "v2")
	w.everywhere("v2", w.services[1])
	w.Write(stage.TwoChannels + strings.ReplaceAll(stage.Web, "name: web", "name: later") + "initialVersion: v1\n")
	w.Publish()
	w.everywhere("v1", "later")
	w.arrive("two", w.ID("later"))
}

// A version whose workers are gone does not keep its workflows: the current one takes them over, and they are nobody's
// override afterwards.
func TestVersionWithoutWorkersIsLeftAlone(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	w := newWorld(t, 3)
	require.Equal(t, []string{deployment.NoWorkers + " namespace default: no worker has polled for 20s"}, w.examine())
	stop := w.serve("one")
	w.begin()
	stop()
	began := time.Now()
	w.Signal(w.services[0], protocol.Release, `{"version":"v2","by":"ci"}`)
	w.serve("two")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		found := w.examine()
		return slices.Contains(found, deployment.VersionWithoutWorkers+" converge:one: 5 workflows are pinned to it, and no worker serves it"), strings.Join(found, "\n")
	})
	w.arrive("two", w.ids(w.services...)...)
	t.Logf("taken over within %s", time.Since(began).Round(time.Second))
	w.everywhere("v2", w.services[0])
	for _, id := range w.ids(w.services...) {
		require.Nil(t, w.versioning(id).GetVersioningOverride(), id)
	}
	w.drained("one")
	require.Empty(t, w.examine())
}

// Where an operator pinned a workflow it stays, and is left in peace.
func TestPinOfAnOperatorStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.serve("one")
	w.begin()
	pinned := w.ID(w.services[0])
	_, err := w.Client.UpdateWorkflowExecutionOptions(t.Context(), client.UpdateWorkflowExecutionOptionsRequest{
		WorkflowId: pinned, WorkflowExecutionOptionsChanges: client.WorkflowExecutionOptionsChanges{
			VersioningOverride: &client.VersioningOverrideChange{Value: &client.PinnedVersioningOverride{
				Version: sdkworker.WorkerDeploymentVersion{DeploymentName: deploymentName, BuildID: "one"},
			}},
		},
	})
	require.NoError(t, err)
	events := len(w.History(pinned))
	w.serve("two")
	w.arrive("two", w.ID(w.services[1]), protocol.ApplicationID(w.App))
	require.Equal(t, "one", w.buildOf(pinned))
	require.Len(t, w.History(pinned), events, "it is not woken")
	require.Contains(t, w.examine(), deployment.PinnedByOperator+" "+pinned+": pinned to converge:one, independent of the current version")
	w.Release(w.services[0], "v2")
	w.everywhere("v2", w.services[0])
	require.Equal(t, "one", w.buildOf(pinned))
}

// A worker of a version that was replaced may start again; that is no wish to go back.
func TestReplacedVersionDoesNotBecomeCurrentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 1)
	stop := w.serve("one")
	w.begin()
	w.serve("two")
	w.arrive("two", w.ID(w.services[0]))
	stop()
	w.serve("one")
	w.drained("one")
	require.Equal(t, "two", w.current())
	w.Release(w.services[0], "v2")
	w.everywhere("v2", w.services[0])
	require.Equal(t, "two", w.buildOf(w.ID(w.services[0])))
}

// Services that were begun by workers without versions go on where versions are introduced, and back.
func TestVersionsAreIntroducedToLiveServices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	w.StartWorker()
	w.begin()
	w.StopWorker()
	w.serve("one")
	for _, name := range w.services {
		w.Release(name, "v2")
	}
	w.everywhere("v2", w.services...)
	w.arrive("one", w.ids(w.services...)...)
}
