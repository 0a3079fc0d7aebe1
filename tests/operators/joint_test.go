package operators

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// pair is a world with two services that run v1, and a joint release of v2 of both that is being decided: web has promised its
// part, and api cannot, since what its versions mean cannot be read. Found ends that.
func pair(t *testing.T) (w *stage.World, worker func() (kill func()), found func()) {
	t.Helper()
	c := commanded{shared.OwnServer(t, 0)}
	c.StopWorker()
	w = c.World
	w.Write(strings.Replace(apart, "fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 3, backoff: 100ms, maxBackoff: 1s}}",
		"custom: {apply: {command: [\"true\"]}}", 1) + stage.Web + strings.Replace(stage.Web, "name: web", "name: api", 1))
	worker = func() func() {
		process := c.startProcess()
		return func() {
			require.NoError(t, process.Process.Kill())
			_ = process.Wait() // reports the kill
		}
	}
	return w, worker, func() { require.NoError(t, os.Remove(filepath.Join(w.Store, "versions", w.App, "api"))) }
}

// proposed releases v2 of both as autumn, by a signal, and waits until one has promised.
func proposed(w *stage.World) {
	w.T.Helper()
	require.NoError(w.T, os.MkdirAll(filepath.Join(w.Store, "versions", w.App), 0o700))
	require.NoError(w.T, os.WriteFile(filepath.Join(w.Store, "versions", w.App, "api"), nil, 0o600))
	require.NoError(w.T, w.Client.SignalWorkflow(w.T.Context(), protocol.ApplicationID(w.App), "", protocol.Release, protocol.JointRequest{
		RequestMeta: protocol.RequestMeta{By: "alice"}, ID: "autumn", Services: map[string]protocol.ServiceVersion{"web": {Version: "v2"}, "api": {Version: "v2"}},
	}))
	w.AwaitThat("web", "a promise", func(s protocol.Status) bool { return strings.Contains(journal(s), "release autumn: v2 promised") })
	require.Empty(w.T, w.Status("web").Releases)
	require.Empty(w.T, w.Status("api").Releases)
}

// A worker that dies between the promises and the decision leaves no half of a release: the next one goes on, and every service
// carries out its part once. So it is when an operator ends the coordinator then, or a service that has promised.
func TestJointReleaseIsAtomicAfterCrashes_B8(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		do   func(w *stage.World, kill func())
	}{
		{"worker", func(_ *stage.World, kill func()) { kill() }},
		{"coordinator", func(w *stage.World, _ func()) { ends[0].do(w, protocol.ApplicationID(w.App)) }},
		{"coordinator, deleted", func(w *stage.World, _ func()) { ends[1].do(w, protocol.ApplicationID(w.App)) }},
		{"coordinator, reset", func(w *stage.World, _ func()) {
			id := protocol.ApplicationID(w.App)
			_, err := resetWithout(w, id, runOf(w, id), completed(w, id)[0])
			require.NoError(w.T, err)
		}},
		{"coordinator, cancelled", func(w *stage.World, _ func()) {
			require.NoError(w.T, w.Client.CancelWorkflow(w.T.Context(), protocol.ApplicationID(w.App), ""))
		}},
		{"service", func(w *stage.World, _ func()) { ends[0].do(w, w.ID("web")) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, worker, found := pair(t)
			kill := worker()
			w.Publish()
			proposed(w)
			tt.do(w, kill)
			if tt.name == "worker" {
				worker()
			}
			found()
			for _, service := range []string{"web", "api"} {
				s := w.AwaitThat(service, "its part", func(s protocol.Status) bool {
					return stage.Channels(s) == "staging CONVERGED v2, production CONVERGED v2"
				})
				require.Len(t, s.Releases, 1)
				require.Equal(t, "autumn", s.Releases[0].ID)
			}
			temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
				phase := phaseOf(t.Context(), w)
				return phase == protocol.JointCommitted, phase
			})
		})
	}
}

// phaseOf is that of the last joint release, as its application says.
func phaseOf(ctx context.Context, w *stage.World) string {
	var s protocol.ApplicationStatus
	value, err := temporaltest.Query(ctx, w.Client, protocol.ApplicationID(w.App), protocol.QueryStatus)
	if err == nil {
		err = value.Get(&s)
	}
	switch {
	case err != nil:
		return err.Error()
	case len(s.Releases) == 0:
		return "none"
	}
	return s.Releases[len(s.Releases)-1].Phase
}

// A service that cannot be asked has all of a release refused in the end, and so does one whose workflow is gone at once. While
// the store is away nothing is accepted; once it is back the same request is.
func TestJointReleaseNeedsAllServicesAndTheStore_B8(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 0)
	w.Write(apart + stage.Web + strings.Replace(stage.Web, "name: web", "name: api", 1))
	w.Publish()
	release := func(id string) error {
		handle, err := w.Client.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: protocol.ApplicationID(w.App), UpdateName: protocol.Release, WaitForStage: client.WorkflowUpdateStageCompleted,
			Args: []any{json.RawMessage(`{"by":"alice","id":"` + id + `","services":{"web":{"version":"v1"},"api":{"version":"v1"}}}`)},
		})
		require.NoError(t, err)
		return handle.Get(t.Context(), nil)
	}
	back := lose(w, "releases")
	require.ErrorContains(t, release("autumn"), "the store does not answer")
	back()
	require.NoError(t, release("autumn"))
	for _, service := range []string{"web", "api"} {
		w.Await(service, "staging CONVERGED v1, production CONVERGED v1")
	}
	require.Contains(t, cli(w, "status", w.App+"@autumn"), "RELEASE autumn api v1: staging succeeded, production succeeded\nRELEASE autumn web v1: ")
	require.Contains(t, cli(w, "release", w.App, "web=v2", "api=v2", "--wait"), "api v2 converged in staging, production.\nweb v2 converged in staging, production.\n")
	ends[0].do(w, w.ID("api"))
	require.ErrorContains(t, release("winter"), "release winter is refused: api: it is not managed")
	require.Len(t, w.Status("web").Releases, 2)
}
