package operators

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// reset resets a run to an event, as `temporal workflow reset` does.
func reset(w *stage.World, id, run string, event int64) (string, error) {
	w.T.Helper()
	return resetTo(w, id, run, event)
}

// resetWithout is reset with `--reapply-exclude All`: the run is not sent again what came after the event.
func resetWithout(w *stage.World, id, run string, event int64) (string, error) {
	w.T.Helper()
	return resetTo(w, id, run, event, enumspb.RESET_REAPPLY_EXCLUDE_TYPE_SIGNAL, enumspb.RESET_REAPPLY_EXCLUDE_TYPE_UPDATE)
}

func resetTo(w *stage.World, id, run string, event int64, without ...enumspb.ResetReapplyExcludeType) (string, error) {
	w.T.Helper()
	answer, err := w.Client.ResetWorkflowExecution(w.T.Context(), &workflowservice.ResetWorkflowExecutionRequest{
		Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id, RunId: run},
		Reason: "an operator's test", WorkflowTaskFinishEventId: event, RequestId: fmt.Sprint(run, event, time.Now().UnixNano()),
		ResetReapplyExcludeTypes: without,
	})
	return answer.GetRunId(), err
}

// completed are the events of a run that end workflow tasks: those to which it can be reset.
func completed(w *stage.World, id string) (events []int64) {
	w.T.Helper()
	for _, e := range w.History(id) {
		if e.EventType == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
			events = append(events, e.EventId)
		}
	}
	return events
}

// A service whose run is reset to any event of three releases, one of which was approved by a signal, stays at the newest:
// nothing that was applied before is applied again, and nobody has to approve anything twice.
func TestResetServiceStaysWhereItWas_F1_F2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(approvals + stage.Web)
	w.Publish()
	for n, version := range []string{"v1", "v2", "v3"} {
		w.Release("web", version)
		before := "WAITING_MANUAL_APPROVAL"
		w.AwaitThat("web", version+" in staging", func(s protocol.Status) bool {
			return s.Channels[0].Current == version && s.Channels[0].Status == "CONVERGED" && s.Channels[1].Status == before
		})
		approval := `{"by":"alice","version":"` + version + `","topic":"production"}`
		if n == 1 {
			w.Signal("web", protocol.Approve, approval)
		} else {
			w.Act("web", protocol.Approve, approval)
		}
		w.Await("web", fmt.Sprintf("staging CONVERGED %s, production CONVERGED %s", version, version))
	}
	const want = "staging CONVERGED v3, production CONVERGED v3"
	id := w.ID("web")
	first := runOf(w, id)
	events := completed(w, id)
	require.Greater(t, len(events), 10)
	applied := len(w.Fake.Applies())
	for _, event := range events {
		run, err := reset(w, id, first, event)
		require.NoError(t, err, "event %d", event)
		since := time.Now()
		s := w.AwaitThat("web", "the newest after a reset to event "+fmt.Sprint(event), func(s protocol.Status) bool {
			return stage.Channels(s) == want && hasApproval(s, "alice") && strings.Contains(journal(s), "continues from its checkpoint")
		})
		require.Len(t, approvalsOf(s, "v2"), 1)
		require.Less(t, time.Since(since), aMinute)
		require.Equal(t, run, runOf(w, id))
		require.Equal(t, applied, len(w.Fake.Applies()), "after a reset to event %d: %v", event, w.Fake.Applies())
	}
	require.Empty(t, w.Status("web").Refused)
	w.Release("web", "v4")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v4","topic":"production"}`)
	w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
}

// A reset that leaves out what came after its event, as an operator may wish, takes nothing back either: what was accepted is in
// the checkpoint, and what came after that, while no worker ran, in the history of the run that was reset.
func TestResetWithoutReapplyTakesNothingBack_F1_F2(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	for _, version := range []string{"v1", "v2"} {
		w.Release("web", version)
		w.Await("web", fmt.Sprintf("staging CONVERGED %[1]s, production CONVERGED %[1]s", version))
	}
	w.Signal("web", protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)
	w.Await("web", "staging CONVERGED v2, production PAUSED v2")
	id := w.ID("web")
	first := runOf(w, id)
	for _, event := range completed(w, id) {
		run, err := resetWithout(w, id, first, event)
		require.NoError(t, err, "event %d", event)
		since := time.Now()
		w.AwaitThat("web", "the newest after a reset to event "+fmt.Sprint(event), func(s protocol.Status) bool {
			return stage.Channels(s) == "staging CONVERGED v2, production PAUSED v2" && strings.Contains(journal(s), "continues from its checkpoint")
		})
		require.Less(t, time.Since(since), aMinute)
		require.Equal(t, run, runOf(w, id))
	}
	w.StopWorker()
	w.Signal("web", protocol.Release, `{"by":"ci","version":"v3"}`)
	_, err := resetWithout(w, id, runOf(w, id), completed(w, id)[0])
	require.NoError(t, err)
	w.StartWorker()
	w.Await("web", "staging CONVERGED v3, production PAUSED v2")
	w.Act("web", protocol.Resume, `{"by":"bob","channel":"production"}`)
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	for name, versions := range appliedTo(w, "web/staging", "web/production") { // what was just being applied may be so again
		require.Equal(t, []string{"v1", "v2", "v3"}, slices.Compact(versions), name)
	}
}

// Signals that a run had not taken in when it was reset are carried out once, in their order; and what is said in the same words afterwards is meant.
func TestSignalsOfAResetAreCarriedOutOnce_F1(t *testing.T) {
	t.Parallel()
	const drill, over = `{"by":"bob","channel":"production","reason":"drill"}`, `{"by":"bob","channel":"production"}`
	const paused, free = "staging CONVERGED v1, production PAUSED v1", "staging CONVERGED v1, production CONVERGED v1"
	for name, to := range map[string]func([]int64) int64{
		"to the first task": func(e []int64) int64 { return e[0] }, "to the last one": func(e []int64) int64 { return e[len(e)-1] },
	} {
		for _, missed := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", missed ", missed), func(t *testing.T) {
				t.Parallel()
				w := shared.OwnServer(t, 0)
				w.Write(stage.TwoChannels + stage.Web)
				w.Publish()
				w.Release("web", "v1")
				w.Await("web", free)
				w.Signal("web", protocol.Pause, drill)
				w.Await("web", paused)
				if !missed {
					w.Signal("web", protocol.Resume, over)
					w.Await("web", free)
				}
				w.StopWorker() // which keeps the checkpoint
				if missed {
					w.Signal("web", protocol.Resume, over)
					w.Signal("web", protocol.Pause, drill)
				}
				id := w.ID("web")
				run, err := reset(w, id, runOf(w, id), to(completed(w, id)))
				require.NoError(t, err)
				if !missed { // to the run that was reset
					w.Signal("web", protocol.Pause, drill)
				}
				w.StartWorker()
				var lines []entities.AuditEntry
				temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
					lines = trailOf(w, "web")
					return countOf(lines, "drill") == 2, fmt.Sprint(lines)
				})
				w.Await("web", paused)
				require.Equal(t, run, runOf(w, id))
				everyNumberOnce(w, lines)
			})
		}
	}
}

func approvalsOf(s protocol.Status, version string) []entities.Approval {
	for _, r := range s.Releases {
		if r.Version == version {
			return r.Approvals
		}
	}
	return nil
}
