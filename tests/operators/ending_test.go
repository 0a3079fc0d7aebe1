package operators

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// apart is two channels that wait for nothing, each other included.
const apart = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt}]}
- {name: production, runtimes: [{name: APP-rt}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 3, backoff: 100ms, maxBackoff: 1s}}
`

// While an apply hangs the server suggests again and again that the run ends. Until it can, all goes on: a rollback of
// the other channel goes out at once, drift there is repaired, a release arrives. Then the run ends.
func TestSuggestedEndBlocksNoCaller_F5(t *testing.T) {
	t.Parallel()
	w := shared.OwnServer(t, 60)
	w.Write(apart + stage.Web)
	w.Publish()
	staging, production := w.Fake.At(w.App, "web", "staging"), w.Fake.At(w.App, "web", "production")
	for _, version := range []string{"v1", "v2"} {
		w.Release("web", version)
		w.Await("web", "staging CONVERGED "+version+", production CONVERGED "+version)
	}
	letGo := staging.HangApplies()
	w.Release("web", "v3")
	w.Await("web", "staging CONVERGING v3, production CONVERGED v3")
	run := runOf(w, w.ID("web"))
	for len(w.History(w.ID("web"))) < 80 {
		w.Act("web", protocol.Pause, `{"channel":"staging","by":"alice"}`)
		w.Act("web", protocol.Resume, `{"channel":"staging","by":"alice"}`)
	}

	began := time.Now()
	w.Act("web", protocol.Rollback, `{"channel":"production","by":"alice","reason":"errors"}`)
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return production.Version() == "v2" }))
	t.Logf("rolled back after %s", time.Since(began))
	w.Await("web", "staging CONVERGING v3, production ROLLED_BACK v2")
	production.SetVersion("by hand")
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return production.Version() == "v2" }))
	w.Release("web", "v4")
	w.Await("web", "staging CONVERGING v3, production CONVERGED v4")
	running(w, w.ID("web"), run)
	t.Logf("%d events in a run that was to end after 60", len(w.History(w.ID("web"))))

	letGo()
	w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
	require.Eventually(t, func() bool { return runOf(w, w.ID("web")) != run }, stage.Patience, 20*time.Millisecond)
	require.Empty(t, w.Fake.Overlaps())
}
