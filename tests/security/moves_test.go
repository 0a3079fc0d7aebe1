package security

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// moving is a channel with an approval and a check that passes while the switch says on.
const moving = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- name: production
  runtimes: [RUNTIME]
  preconditions: [{sharedManualApproval: {name: go-live}}]
  protections: [{name: slo, command: {command: [sh, -c, 'test -e SWITCH || exit 3']}, interval: 1s, lifecycle: [postApproval: {}]}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-a
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
---
apiVersion: converge/v1
kind: Runtime
name: APP-b
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

// A channel that the configuration puts on another runtime stays where it is until a config release has passed every gate:
// nothing is applied meanwhile. It is refused where it is not said that it moves. The trail names the move.
func TestAnotherRuntimeIsAConfigRelease_G2(t *testing.T) {
	t.Parallel()
	w := shared.World(t)
	on := func(runtime string) {
		w.Write(strings.NewReplacer("RUNTIME", runtime, "SWITCH", w.Dir+"/switch").Replace(moving) + stage.Web)
	}
	on("{name: APP-a}")
	open(t, w.Dir)
	w.Publish()
	w.Release("web", "v1")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"go-live"}`)
	w.Await("web", "production CONVERGED v1")
	production := w.Fake.At(w.App, "web", "production")
	require.Equal(t, 1, production.Applies())

	on("{name: APP-b}")
	_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "mallory", Fake: true})
	require.True(t, errors.Is(err, publish.ErrRefused), "%v", err)
	require.ErrorContains(t, err, "web would move from runtime "+w.App+"-a to "+w.App+"-b in production")

	shut(t, w.Dir)
	on("{name: APP-b, movedFrom: {runtime: APP-a}}")
	w.Publish()
	s := w.AwaitThat("web", "a config release that waits for approval", func(s protocol.Status) bool {
		return s.Channels[0].Status == "WAITING_MANUAL_APPROVAL"
	})
	require.Equal(t, w.App+"-a", s.Channels[0].Runtime)
	require.Equal(t, w.App+"-b", s.Channels[0].MovesTo)
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1-i2","topic":"go-live"}`)
	w.AwaitThat("web", "a check that holds it", func(s protocol.Status) bool { return s.Channels[0].Status == "BLOCKED" })
	w.Act("web", protocol.Refresh, `{"by":"mallory"}`)
	w.Signal("web", protocol.Retry, `{"by":"mallory","version":"v1-i2"}`)
	w.AwaitThat("web", "a refusal", func(s protocol.Status) bool { return len(s.Refused) > 0 })
	require.Equal(t, 1, production.Applies(), "nothing was applied past the gates")

	open(t, w.Dir)
	s = w.AwaitThat("web", "it on the other runtime", func(s protocol.Status) bool {
		return stage.Channels(s) == "production CONVERGED v1-i2"
	})
	require.Equal(t, w.App+"-b", s.Channels[0].Runtime)
	require.Len(t, s.Channels[0].PreviousPlacements, 1)
	require.Equal(t, "v1 was left on "+w.App+"-a: orphaned; it stays there", s.Channels[0].PreviousPlacements[0].Text)
	require.Equal(t, 2, production.Applies())
	require.Contains(t, trail(t, w), "target v1 → v1-i2 on "+w.App+"-b instead of "+w.App+"-a")
}

// trail is what the audit trail says, a line each: what the store has, and what the service still keeps.
func trail(t *testing.T, w *stage.World) (texts []string) {
	t.Helper()
	at, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer at.Close()
	answer, err := temporaltest.Query(t.Context(), w.Client, w.ID("web"), protocol.QueryHistory)
	require.NoError(t, err)
	var kept protocol.HistoryAnswer
	require.NoError(t, answer.Get(&kept))
	lines, err := at.Audit(t.Context(), w.App, "web")
	require.NoError(t, err)
	for _, l := range append(lines, kept.Entries...) {
		texts = append(texts, l.Text)
	}
	return texts
}

// open has the check pass, shut has it fail.
func open(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "switch"), nil, 0o600))
}

func shut(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.Remove(filepath.Join(dir, "switch")))
}
