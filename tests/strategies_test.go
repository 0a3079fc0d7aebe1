package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// approved is TwoChannels with an approval before production.
var approved = strings.ReplaceAll(stage.TwoChannels, "releaseChannelStable: {releaseChannel: staging}}", "releaseChannelStable: {releaseChannel: staging}}, {sharedManualApproval: {name: go-live}}")

// versions are the full versions that were applied to an instance, in order.
func versions(w *world, channel string) []string {
	var out []string
	for _, a := range w.Fake.Applies() {
		if a.Instance == w.App+"/web/"+channel {
			out = append(out, a.Version)
		}
	}
	return out
}

// Several releases wait for an approval; the last one is a hotfix. It is approved, and is in production with one apply; those before
// it say what they were superseded by. One of them can wait again only where nothing newer runs.
func TestHotfixPassesWhatWaits_B3(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(approved + stage.Web)
	w.Publish()
	for _, version := range []string{"v1", "v2", "v3", "hotfix"} {
		w.Release("web", version)
		w.AwaitThat("web", version+" in staging", func(s protocol.Status) bool { return s.Releases[0].Phases["staging"] == "succeeded" })
	}
	w.Act("web", protocol.Approve, `{"version":"hotfix","topic":"go-live","by":"alice"}`)
	s := w.Await("web", "staging CONVERGED hotfix, production CONVERGED hotfix")
	require.Equal(t, []string{"hotfix"}, versions(w, "production"))
	require.Equal(t, []string{"v1", "v2", "v3", "hotfix"}, versions(w, "staging"))
	for _, r := range s.Releases[1:] {
		require.Equal(t, "skipped", r.Phases["production"], r.Version)
		require.Equal(t, "superseded by hotfix", r.Reasons["production"], r.Version)
	}
	require.ErrorContains(t, w.Update(w.ID("web"), protocol.Retry, map[string]string{"version": "v3", "by": "alice"}, &protocol.Answer{}),
		"v3 cannot be retried: production: the newer hotfix is the target")
	require.ErrorContains(t, w.Update(w.ID("web"), protocol.Release, map[string]string{"version": "v4", "by": "ci", "strategy": "soon"}, &protocol.Answer{}),
		`no strategy "soon"`)
}

// A release that comes immediately ends the apply of the one before it, which hangs, and waits for its end: two never run at once.
func TestImmediateEndsWhatHangs_B3_F5(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	staging := w.Fake.At(w.App, "web", "staging")
	letGo := staging.HangApplies()
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGING v2, production WAITING_PRECONDITIONS v1")
	require.NoError(t, w.Fake.Await(t.Context(), func() bool { return len(versions(w, "staging")) == 2 }))
	w.Act("web", protocol.Release, `{"version":"v3","by":"ci","strategy":"immediate"}`)
	w.AwaitThat("web", "v2 skipped", func(s protocol.Status) bool {
		return s.Releases[1].Phases["staging"] == "skipped" && s.Releases[1].Reasons["staging"] == "superseded by v3"
	})
	letGo()
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	require.Empty(t, w.Fake.Overlaps())
	require.Equal(t, []string{"v1", "v3"}, versions(w, "production"))
}
