package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// fleet is a production on each of some runtimes, with a web that says where it is. The channel has these fields beside.
func fleet(channel string, runtimes ...string) string {
	text := `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: production, runtimes: [{selector: {app: APP}}], ` + channel + `}
`
	for _, name := range runtimes {
		text += fmt.Sprintf(`---
apiVersion: converge/v1
kind: Runtime
name: APP-%s
labels: {app: APP, place: %s}
fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 1, backoff: 100ms, maxBackoff: 1s}}
`, name, name)
	}
	return text + stage.Web + `onDelete: remove
`
}

// instancesOf is a fleet in one line: "eu-1 CONVERGED v1, eu-2 PAUSED v1", by name.
func instancesOf(w *world, s protocol.Status) string {
	var all []string
	for _, c := range s.Channels {
		for _, i := range c.Instances {
			all = append(all, strings.TrimSpace(strings.TrimPrefix(i.Name, w.App+"-")+" "+i.Status+" "+i.Target))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// awaitInstances waits until the fleet in one line is as wanted.
func (w *world) awaitInstances(want string) protocol.Status {
	w.T.Helper()
	return w.AwaitThat("web", want, func(s protocol.Status) bool { return instancesOf(w, s) == want })
}

// inFleet is the instance on a runtime.
func (w *world) inFleet(runtime string) *fakeruntime.ScriptedInstance {
	return w.Fake.At(w.App, "web", "production/"+w.App+"-"+runtime)
}

// pauseRuntime pauses a runtime of the fleet, or resumes it where nobody pauses it.
func (w *world) pauseRuntime(runtime string, by *entities.Pause) {
	w.T.Helper()
	kept, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	defer kept.Close() // what was written was answered for
	scope := protocol.ScopePause{Scope: entities.ScopeRuntime + w.App + "-" + runtime, Pause: by}
	require.NoError(w.T, kept.PutPause(w.T.Context(), w.App, scope))
	require.NoError(w.T, w.Client.SignalWorkflow(w.T.Context(), w.ID("web"), "", protocol.SignalScopePause, scope))
}

// In a fleet, an instance that is paused, hangs or fails holds up no other one; one that is added while a release is under way gets
// what the channel has, and one that is removed goes (A7, A16, A24).
func TestFleetOfRuntimes_A7_A16_A24(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	at := w.inFleet
	await := func(want string) protocol.Status { t.Helper(); return w.awaitInstances(want) }

	w.Write(fleet("autoRollback: false", "eu-1", "eu-2", "eu-3"))
	w.Publish()
	w.Release("web", "v1")
	await("eu-1 CONVERGED v1, eu-2 CONVERGED v1, eu-3 CONVERGED v1")

	w.pauseRuntime("eu-2", &entities.Pause{By: "alice", Reason: "upgrade", At: time.Now()})
	await("eu-1 CONVERGED v1, eu-2 PAUSED v1, eu-3 CONVERGED v1")
	release := at("eu-3").HangApplies()
	w.Release("web", "v2")
	await("eu-1 CONVERGED v2, eu-2 PAUSED v1, eu-3 CONVERGING v2")

	w.Write(fleet("autoRollback: false", "eu-2", "eu-3", "eu-4")) // eu-1 goes, and eu-4 comes
	w.Publish()
	await("eu-2 PAUSED v1, eu-3 CONVERGING v2, eu-4 CONVERGED") // to which nothing was released yet
	require.Empty(t, at("eu-1").Version(), "taken down")
	at("eu-3").FailAppliesPermanently(9, "image not found") // of whichever version it is asked for next
	release()
	s := w.AwaitThat("web", "one paused, one failed, one converged", func(s protocol.Status) bool {
		now := instancesOf(w, s)
		return strings.HasPrefix(now, "eu-2 PAUSED v1, eu-3 FAILED v2") && strings.HasSuffix(now, "eu-4 CONVERGED v2-i2")
	})
	require.Equal(t, &protocol.FleetStatus{Instances: 3, Version: "v2", AtVersion: 1, ByStatus: map[string]int{"FAILED": 1, "PAUSED": 1}}, s.Channels[0].Fleet)
	require.Equal(t, "v2-i2", at("eu-4").Version())
	at("eu-3").FailAppliesPermanently(0, "")
	w.pauseRuntime("eu-2", nil)
	w.Release("web", "v3")
	await("eu-2 CONVERGED v3, eu-3 CONVERGED v3, eu-4 CONVERGED v3")
}
