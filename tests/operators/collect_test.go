package operators

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/client/collect"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// forgetEnded has the server delete all runs that have ended, as it does by itself when their retention is over.
func forgetEnded(w *stage.World) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		page, err := w.Client.ListWorkflow(w.T.Context(), &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default", Query: "ExecutionStatus != 'Running'"})
		require.NoError(w.T, err)
		for _, e := range page.GetExecutions() {
			_, _ = w.Client.WorkflowService().DeleteWorkflowExecution(w.T.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: "default", WorkflowExecution: e.GetExecution(),
			})
		}
		return len(page.GetExecutions()) == 0, fmt.Sprintf("%d runs are left", len(page.GetExecutions()))
	})
}

// The store of a service that lives is collected, long after all that it had was new: what no history has goes, and what Temporal still
// has histories of stays until it has them no more. Then the service is released, released again as what it was at first,
// and ended, and everything that this needs is there.
func TestCollectedUnderALivingService_F11(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 60)
	w.RunWeb()
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	signalled, err := s.PutPayload(t.Context(), entities.Payload{Service: "signalled"})
	require.NoError(t, err)
	w.Signal("web", "refresh", `{"by":"alice","junk":"`+signalled+`"}`) // which is refused, so that the history alone has it
	for n := 2; n <= 12; n++ {
		version := fmt.Sprintf("v%d", n)
		w.Release("web", version)
		w.Await("web", fmt.Sprintf("staging CONVERGED %s, production CONVERGED %s", version, version))
	}
	orphan, err := s.PutPayload(t.Context(), entities.Payload{Service: "orphan"})
	require.NoError(t, err)
	has := func(digest string) bool {
		fresh, err := store.Open(t.Context(), w.Store)
		require.NoError(t, err)
		_, err = fresh.Payload(t.Context(), digest)
		require.True(t, err == nil || store.IsNotFound(err), "%v", err)
		return err == nil
	}
	later := time.Duration(0)
	run := func(namespace string) error {
		later += 24 * 365 * time.Hour
		_, err := collect.Collector{Client: w.Client, Namespace: namespace, Store: s, Collection: store.Collection{
			By: "a test", Now: time.Now().Add(later), Grace: time.Hour, Keep: time.Hour,
		}}.Run(t.Context())
		return err
	}
	require.ErrorContains(t, run("temporal-system"), "[other-namespace]")
	require.NoError(t, run("default"))
	require.NoError(t, run("default"))
	require.False(t, has(orphan))
	require.True(t, has(signalled), "there is a history of it")
	forgetEnded(w)
	require.NoError(t, run("default"))
	require.NoError(t, run("default"))
	require.False(t, has(signalled), "nothing refers to it any more")

	for _, version := range []string{"v13", "v2"} {
		w.Release("web", version)
		w.Await("web", fmt.Sprintf("staging CONVERGED %s, production CONVERGED %s", version, version))
	}
	id := w.ID("web")
	before, since := runOf(w, id), time.Now()
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), id, "", "cleaning up"))
	managedAgain(w, id, before, since)
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}

// From the command line: a dry run changes nothing, the first run sets aside what is old, a later one removes it, and what a service is
// made of stays. What is asked for too early is refused before anything is opened.
func TestCollectedFromTheCommandLine_F11(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.RunWeb()
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	orphan, err := s.PutPayload(t.Context(), entities.Payload{Service: "orphan"})
	require.NoError(t, err)
	kept, aside := filepath.Join(w.Store, "payloads", orphan), filepath.Join(w.Store, "unreferenced", "payloads", orphan)
	old := func(path string) {
		ago := time.Now().Add(-48 * time.Hour)
		require.NoError(t, os.Chtimes(path, ago, ago))
	}
	collects := func(arguments ...string) (all store.CollectedKind) {
		t.Helper()
		var kinds []store.CollectedKind
		require.NoError(t, json.Unmarshal([]byte(cli(w, append([]string{"admin", "store", "gc", "--store", w.Store, "--output", "json"}, arguments...)...)), &kinds))
		for _, k := range kinds {
			all.SetAside.N, all.Removed.N, all.Kept.N = all.SetAside.N+k.SetAside.N, all.Removed.N+k.Removed.N, all.Kept.N+k.Kept.N
		}
		return all
	}

	_, said, code := tried(w, "admin", "store", "gc", "--store", w.Store, "--older-than", "1m", "--keep", "2160h")
	require.Equal(t, 1, code)
	require.Contains(t, said, "--older-than is 1m0s and --keep is 2160h0m0s; expected at least 1h0m0s, and 0")

	require.Zero(t, collects().SetAside.N, "it is new")
	old(kept)
	require.Equal(t, 1, collects("--dry-run").SetAside.N)
	require.FileExists(t, kept)
	require.Contains(t, cli(w, "admin", "store", "gc", "--store", w.Store), "\t1 (74 B)\t-")
	require.NoFileExists(t, kept)
	require.Zero(t, collects().Removed.N, "it is aside since a moment ago")
	old(aside)
	require.Equal(t, 1, collects().Removed.N)
	require.NoFileExists(t, aside)
	require.NotZero(t, collects().Kept.N)
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
}
