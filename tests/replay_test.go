package tests

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/histories"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/workflows"
)

var record = flag.Bool("record", false, "record the histories that are replayed (make histories)")

// recorded holds a folder for each version of the workflows' logic that was ever released, and recordInto names the one
// that `make histories` writes. A folder that is frozen is refused.
const (
	recorded   = "testdata/histories"
	recordInto = "v1"
)

// The histories of every released version of the logic replay with the present one.
func TestRecordedHistoriesReplay(t *testing.T) {
	files, err := filepath.Glob(recorded + "/*/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files, "no recorded histories; make them with: make histories")
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			require.NoError(t, replayer(t).ReplayWorkflowHistoryFromJSONFile(stage.Quiet{}, file))
		})
	}
}

func replayer(t *testing.T) worker.WorkflowReplayer {
	t.Helper()
	r, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{
		Interceptors: []interceptor.WorkerInterceptor{&workflows.Arrivals{}},
	})
	require.NoError(t, err)
	r.RegisterWorkflowWithOptions(workflows.Service, workflow.RegisterOptions{Name: protocol.ServiceWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Application, workflow.RegisterOptions{Name: protocol.ApplicationWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Runtime, workflow.RegisterOptions{Name: protocol.RuntimeWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Installation, workflow.RegisterOptions{Name: protocol.InstallationWorkflow})
	r.RegisterWorkflowWithOptions(workflows.Plan, workflow.RegisterOptions{Name: protocol.PlanWorkflow})
	return r
}

// The replay test can fail: a history that the workflow would not have made is refused.
func TestForeignHistoryDoesNotReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	events := w.History(w.ID("web"))
	require.NoError(t, replayer(t).ReplayWorkflowHistory(stage.Quiet{}, &historypb.History{Events: events}))
	for _, e := range events {
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			a.ActivityType.Name = "Other"
		}
	}
	require.Error(t, replayer(t).ReplayWorkflowHistory(stage.Quiet{}, &historypb.History{Events: events}))
}

// TestRecordHistories records real runs: a life with everything that the logic has branches for, in
// runs short enough to continue as new on the way.
func TestRecordHistories(t *testing.T) {
	if !*record {
		t.Skip("records only with -record: make histories")
	}
	require.NoError(t, histories.Writable(recorded, recordInto))
	dir := filepath.Join(recorded, recordInto)
	w := shortRuns(t, 150)
	w.App = "recorded"
	live(w)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	w.recordRuns(w.ID("web"), filepath.Join(dir, "service"))
	w.recordRuns(protocol.ApplicationID(w.App), filepath.Join(dir, "application"))
	w.App = "gated"
	gatedLife(w)
	w.recordRuns(w.ID("web"), filepath.Join(dir, "gated"))
	w.recordRuns(protocol.ApplicationID(w.App), filepath.Join(dir, "gated-application"))
	w.recordRuns(protocol.RuntimeID(w.App+"-rt"), filepath.Join(dir, "gated-runtime"))
	w.App = "planned"
	plannedLife(w)
	w.recordRuns(protocol.PlanOfIncarnation(w.App, "production", 1).ID(), filepath.Join(dir, "plan"))
}

// live leads a service through a life: publications, releases by update and signal, failure,
// retry, fix, pause, cancel, drift, failing readings, refusals, configuration changes.
func live(w *world) {
	t := w.T
	staging, production := w.Fake.At(w.App, "web", "staging"), w.Fake.At(w.App, "web", "production")
	w.Write(stage.TwoChannels + stage.Web + "initialVersion: v1\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	for n := 2; n < 6; n++ {
		w.Signal("web", protocol.Release, fmt.Sprintf(`{"version":"v%d","by":"ci","requestId":"r%d"}`, n, n))
		w.Await("web", fmt.Sprintf("staging CONVERGED v%d, production CONVERGED v%d", n, n))
	}
	staging.FailApplies(1, "try again")
	w.Release("web", "v6")
	w.Await("web", "staging CONVERGED v6, production CONVERGED v6")
	production.FailAppliesPermanently(1, "no such image")
	w.Release("web", "v7")
	w.Await("web", "staging CONVERGED v7, production ROLLED_BACK v6")
	w.Act("web", protocol.Retry, `{"version":"v7","by":"bob"}`)
	w.Await("web", "staging CONVERGED v7, production CONVERGED v7")
	w.Act("web", protocol.Pause, `{"channel":"production","by":"bob"}`)
	w.Release("web", "v8")
	w.Await("web", "staging CONVERGED v8, production PAUSED v7")
	w.Act("web", protocol.Cancel, `{"version":"v8","by":"bob"}`)
	w.Signal("web", protocol.Resume, `{"channel":"production","by":"bob"}`)
	w.Signal("web", "nonsense", `{"by":"bob"}`)
	w.Signal("web", protocol.Release, `{"by":"bob"}`)
	w.Await("web", "staging CONVERGED v8, production CONVERGED v7")
	staging.SetVersion("by-hand")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return staging.Version() == "v8", staging.Version() })
	w.Await("web", "staging CONVERGED v8, production CONVERGED v7")
	staging.FailReadings(3, "unreachable")
	w.Act("web", protocol.Refresh, `{"by":"bob"}`)
	w.Await("web", "staging UNKNOWN v8, production CONVERGED v7")
	w.Await("web", "staging CONVERGED v8, production CONVERGED v7")
	staging.SettleAfter(3)
	production.SettleAfter(3)
	w.Release("web", "v9")
	w.Await("web", "staging CONVERGED v9, production CONVERGED v9")
	w.Write(stage.TwoChannels + stage.Web + "perReleaseChannel: [{releaseChannel: production, parameters: {greeting: hi}}]\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v9, production CONVERGED v9-i2")
	w.Write(stage.TwoChannels + stage.Web + "releaseChannels: [staging]\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v9, production ORPHANED v9-i2")
}

// recordRuns writes every run of a workflow, newest first, to base-1.json and so on.
func (w *world) recordRuns(id, base string) {
	run := ""
	for n := 1; ; n++ {
		var h historypb.History
		events := w.Client.GetWorkflowHistory(w.T.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for events.HasNext() {
			e, err := events.Next()
			require.NoError(w.T, err)
			h.Events = append(h.Events, e)
		}
		data, err := temporalproto.CustomJSONMarshalOptions{}.Marshal(&h)
		require.NoError(w.T, err)
		require.NoError(w.T, os.WriteFile(fmt.Sprintf("%s-%d.json", base, n), data, 0o600))
		if run = h.Events[0].GetWorkflowExecutionStartedEventAttributes().GetContinuedExecutionRunId(); run == "" {
			return
		}
	}
}
