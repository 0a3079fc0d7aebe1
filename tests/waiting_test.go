package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// Fifty releases wait for an approval. The fifty-first, a hotfix, is released, approved and in production with one apply there; what
// waits meanwhile says what it was superseded by.
func TestHotfixWhileFiftyWait_B3_B4_I3(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(approved + stage.Web)
	w.Publish()
	for n := range 50 {
		version := fmt.Sprintf("v%d", n+1)
		w.Release("web", version)
		w.AwaitThat("web", version+" in staging", func(s protocol.Status) bool { return s.Releases[0].Phases["staging"] == "succeeded" })
	}
	w.Release("web", "hotfix")
	w.AwaitThat("web", "hotfix in staging", func(s protocol.Status) bool { return s.Releases[0].Phases["staging"] == "succeeded" })
	w.Act("web", protocol.Approve, `{"version":"hotfix","topic":"go-live","by":"alice"}`)
	s := w.Await("web", "staging CONVERGED hotfix, production CONVERGED hotfix")
	require.Equal(t, []string{"hotfix"}, versions(w, "production"))
	require.Len(t, versions(w, "staging"), 51)
	require.Equal(t, "superseded by hotfix", s.Releases[1].Reasons["production"])
}

// oneApproved has one channel, which an approval holds.
var oneApproved = strings.NewReplacer(
	"- {name: staging, runtimes: [{name: APP-rt}]}\n", "",
	"{releaseChannelStable: {releaseChannel: staging}}", "{sharedManualApproval: {name: go-live}}",
).Replace(stage.TwoChannels)

// inTurn has the oldest release go first.
const inTurn = stage.Web + "maestro: {strategy: train}\n"

// While more releases wait than are kept whole, runs end and the workflow is terminated; then one from the middle goes, made of the
// very bytes that it was accepted with, and what waits before another is ended by one act of the stock kind.
func TestWhatWaitsBehindManyIsKept_B3_F1_F8(t *testing.T) {
	w := shortRuns(t, 200)
	w.Write(oneApproved + inTurn)
	w.Publish()
	const many = state.MaxLoaded + 30
	for n := range many {
		w.Release("web", fmt.Sprintf("v%d", n+1))
	}
	run := w.awaitRunAfter("web", "")
	w.awaitOffloaded(many - state.MaxLoaded - 1) // but for the one that is next
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "by mistake"))
	w.awaitAnotherRun("web", run)
	w.awaitOffloaded(many - state.MaxLoaded - 1)

	w.Act("web", protocol.Approve, `{"version":"v5","topic":"go-live","by":"alice"}`)
	w.AwaitThat("web", "v5 in production", func(s protocol.Status) bool {
		return slices.ContainsFunc(s.Releases, func(r protocol.ReleaseStatus) bool { return r.Version == "v5" && r.Phases["production"] == "succeeded" })
	})
	kept, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	record, err := kept.Version(t.Context(), w.App, "web", "v5")
	require.NoError(t, err)
	require.Len(t, w.Fake.Applies(), 1)
	require.Equal(t, record.Payloads["production"], w.Fake.Applies()[0].Payload)

	answer := w.Act("web", protocol.Cancel, fmt.Sprintf(`{"olderThan":"v%d","by":"bob"}`, many-1))
	require.Contains(t, answer, fmt.Sprintf("%d releases, v6 to v%d, cancelled in production", many-7, many-2))
	require.Contains(t, answer, fmt.Sprintf("production: v%d waits for approval/go-live", many-1))
	w.awaitOffloaded(0)
}

func (w *world) awaitAnotherRun(service, before string) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(w.T.Context(), w.ID(service), "")
		return err == nil && d.WorkflowExecutionInfo.Execution.RunId != before && d.WorkflowExecutionInfo.Status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING, "it is not back"
	})
}

// awaitOffloaded waits until the store alone knows what so many releases of web are made of.
func (w *world) awaitOffloaded(n int) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		have := w.offloaded()
		return have == n, fmt.Sprintf("%d, want %d", have, n)
	})
}

// offloaded is how many releases of web the store alone knows what they are made of.
func (w *world) offloaded() (n int) {
	w.T.Helper()
	s := state.New("", "")
	require.NoError(w.T, w.Query(w.ID("web"), protocol.QueryState, s))
	for _, r := range s.Releases {
		if r.Offloaded() {
			n++
		}
	}
	return n
}

// A change of configuration that renders to what waits already opens nothing, though the store alone knows what that is made of.
func TestConfigurationOfWhatTheStoreKnows_B9(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(oneApproved + inTurn)
	w.Publish()
	const many = state.MaxLoaded + 5
	for n := range many {
		w.Release("web", fmt.Sprintf("v%d", n+1))
	}
	for n := many; n > 2; n-- {
		w.Act("web", protocol.Cancel, fmt.Sprintf(`{"version":"v%d","by":"bob"}`, n))
	}
	w.awaitOffloaded(1) // v2, which waits behind v1
	w.Write(oneApproved + strings.Replace(inTurn, `VERSION: "${{ version }}"`, `VERSION: "v2"`, 1))
	w.Publish()
	w.AwaitThat("web", "the new configuration", func(s protocol.Status) bool { return s.Incarnation == 2 })
	w.awaitOffloaded(0)                            // it was looked up
	w.Act("web", protocol.Refresh, `{"by":"bob"}`) // after all of that
	require.Equal(t, fmt.Sprintf("v%d", many), w.Status("web").Version, "nothing was opened")
}
