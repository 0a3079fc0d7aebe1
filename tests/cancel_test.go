package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// greeting publishes the service with another default, which changes the payload of both channels.
func greeting(w *world, text string) {
	w.Write(stage.TwoChannels + strings.Replace(stage.Web, "default: hello", "default: "+text, 1))
	w.Publish()
}

// A version that was cancelled before it came to production does not come there with the configuration, which comes under the version that
// is there. A configuration that was cancelled itself does not, and that is said.
func TestConfigurationReachesChannelThatKeepsItsVersion_B9_I2_I4(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	w.Act("web", protocol.Pause, `{"channel":"production","by":"bob"}`)
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production PAUSED v1")
	greeting(w, "hi")
	w.Await("web", "staging CONVERGED v2-i2, production PAUSED v1")
	require.Contains(t, w.Act("web", protocol.Cancel, `{"version":"v2","by":"bob","reason":"wrong prices"}`),
		"v2 cancelled in production. v2-i2 kept in production as configuration 2 for the current version")
	w.Act("web", protocol.Resume, `{"channel":"production","by":"bob"}`)
	s := w.Await("web", "staging CONVERGED v2-i2, production CONVERGED v1-i2")
	require.Equal(t, "v2-i2 converged in staging, v1-i2 converged in production", s.Headline)
	require.Equal(t, map[string]string{"production": "v1-i2"}, s.Releases[0].KeptVersions)

	greeting(w, "hey")
	w.Await("web", "staging CONVERGED v2-i3, production CONVERGED v1-i3")
	w.Act("web", protocol.Pause, `{"channel":"production","by":"bob"}`)
	greeting(w, "ahoy")
	w.Await("web", "staging CONVERGED v2-i4, production PAUSED v1-i3")
	w.Act("web", protocol.Cancel, `{"version":"v2-i4","by":"bob","reason":"too loud"}`)
	w.Act("web", protocol.Resume, `{"channel":"production","by":"bob"}`)
	s = w.Await("web", "staging CONVERGED v2-i4, production CONVERGED v1-i3")
	lacks := "configuration 4 was not deployed here, because v2-i4 was cancelled: by bob: too loud"
	require.Equal(t, lacks, s.Channels[1].MissingConfig)
	require.Contains(t, s.Notes, "production: "+lacks)
	require.Equal(t, "v2-i4 converged in staging, v1-i3 converged in production; in production "+lacks, s.Headline)
	require.Equal(t, []string{"v1", "v1-i2", "v1-i3"}, versions(w, "production"))
	require.Equal(t, []string{"v1", "v2", "v2-i2", "v2-i3", "v2-i4"}, versions(w, "staging"))
}

// A rollback that says so goes on while its channel is paused, which stays paused.
func TestRollbackWhilePaused_A16_A22(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	w.Act("web", protocol.Pause, `{"channel":"production","by":"bob"}`)
	require.Contains(t, w.Act("web", protocol.Rollback, `{"by":"alice"}`),
		"v2 is rolled back in staging to v1; skipped: production (paused by bob); to do so while it is paused: converge rollback "+w.App+"/web v2 --while-paused")
	w.Await("web", "staging ROLLED_BACK v1, production PAUSED v2")
	require.Contains(t, w.Act("web", protocol.Rollback, `{"by":"alice","version":"v2","whilePaused":true}`), "v2 is rolled back in production to v1")
	w.Await("web", "staging ROLLED_BACK v1, production PAUSED v1")
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return w.Fake.At(w.App, "web", "production").Version() == "v1" }))
}
