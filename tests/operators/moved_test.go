package operators

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// Another Temporal takes over the store of one that is lost: all that was declared is managed again within a minute, with
// what waits, what is paused and what was approved. Should the old one live after all, nothing that it wants is applied any
// more. A worker that is not told to take over refuses to start.
func TestStoreOutlivesTemporal_F2(t *testing.T) {
	t.Parallel()
	old := shared.OwnServer(t, 0)
	old.Write(approvals + stage.Web)
	old.Publish()
	old.Release("web", "v1")
	old.Await("web", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	old.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	old.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	old.Act("web", protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)
	old.Release("web", "v2")
	old.Await("web", "staging CONVERGED v2, production PAUSED v1")

	w := shared.Unserved(t, embedded.Options{})
	w.App, w.Dir, w.Store, w.Fake = old.App, old.Dir, old.Store, old.Fake
	_, err := worker.Start(t.Context(), w.Client, worker.Options{Store: w.Store})
	var elsewhere *worker.ElsewhereError
	require.ErrorAs(t, err, &elsewhere)
	require.ErrorContains(t, err, "belongs to the namespace default")
	require.ErrorContains(t, err, "--take-over")
	_, err = worker.Start(t.Context(), w.Client, worker.Options{Store: w.Store, Owner: "converge dev"})
	require.ErrorAs(t, err, &elsewhere, "the store is not its own")

	moved := time.Now()
	w.StartWorkerAs(worker.Options{TakeOver: true})
	managedAgain(w, protocol.ApplicationID(w.App), "", moved)
	managedAgain(w, w.ID("web"), "", moved)
	w.Await("web", "staging CONVERGED v2, production PAUSED v1")
	staging := w.Fake.At(w.App, "web", "staging")
	applies := staging.Applies()
	staging.SetVersion("by hand")
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return staging.Version() == "v2" }))
	old.Release("web", "v3") // or the new one may have repaired it before the old one has seen it
	old.AwaitThat("web", "a refusal", func(s protocol.Status) bool { return strings.Contains(reasons(s), "refused") })
	require.Equal(t, applies+1, staging.Applies(), "by the new one alone")
	w.Act("web", protocol.Resume, `{"by":"bob","channel":"production"}`)
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v2","topic":"production"}`)
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.True(t, w.Publish().Unchanged, "the application knows what it is at")
}

// An application that is ended takes its services, its pin and its pause along to the next run, and what is published meanwhile
// arrives.
func TestEndedApplicationIsManagedAgain(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	id := protocol.ApplicationID(w.App)
	var answer protocol.Answer
	require.NoError(t, w.Update(id, protocol.Pause, protocol.RequestMeta{By: "alice", Reason: "drill"}, &answer))
	w.Await("web", "staging PAUSED v1, production PAUSED v1")
	run, since := runOf(w, id), time.Now()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), id, "", "cleaning up"))
	managedAgain(w, id, run, since)
	var status protocol.ApplicationStatus
	query(w, id, &status)
	require.EqualValues(t, 1, status.Newest)
	require.Equal(t, "alice", status.Pause.By)
	require.NoError(t, w.Update(id, protocol.Resume, protocol.RequestMeta{By: "alice"}, &answer))
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// What people did while the store was away is in no checkpoint. The history of the run that was ended has it.
func TestWhatTheCheckpointMissedIsCarriedOut(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	w.StopWorker()
	w.Signal("web", protocol.Pause, `{"by":"alice","channel":"production"}`)
	w.Signal("web", protocol.Release, `{"by":"ci","version":"v2"}`)
	id := w.ID("web")
	run := runOf(w, id)
	require.NoError(t, w.Client.TerminateWorkflow(context.Background(), id, "", "cleaning up"))
	since := time.Now()
	w.StartWorker()
	managedAgain(w, id, run, since)
	w.Await("web", "staging CONVERGED v2, production PAUSED v1")
}
