package tests

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/gittest"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// A commit that is denied keeps every version that contains it out of a channel which does not have it, in later incarnations, too,
// until the denial is lifted; where it is there already, nothing is held.
func TestDeniedCommitStaysOut_A20(t *testing.T) {
	w := newWorld(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	r := gittest.New(t)
	commit := func(message, version, denied string) string {
		yaml := strings.ReplaceAll(stage.TwoChannels+stage.Web, "APP", w.App)
		if denied != "" {
			yaml = strings.Replace(yaml, "- {name: production, ", "- {name: production, protections: [{name: bad, deniedCommits: {commits: ["+denied+"], reason: loses orders}}], ", 1)
		}
		return r.Commit(t, message, map[string]string{"deploy/converge.yaml": yaml + "version: " + version + "\n"}).String()
	}
	commit("Begin", "v1", "")
	_, stop := watchRepository(t, w, r)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	stop()

	bad := commit("Sell to everybody", "v2", "")
	commit("Deny it", "v2", `"`+bad[:7]+`"`)
	_, stop = watchRepository(t, w, r)
	says := "commit " + bad[:12] + " Ada: Sell to everybody of incarnation 2 is denied: loses orders"
	held := func(s protocol.Status) bool {
		return strings.Contains(strings.Join(explain.Lines(s, "production", time.Now()), "\n"), says)
	}
	w.Await("web", "staging CONVERGED v2, production BLOCKED v1")
	w.AwaitThat("web", says, held)
	commit("Sell less", "v3", `"`+bad[:7]+`"`)
	w.Await("web", "staging CONVERGED v3, production BLOCKED v1")
	w.AwaitThat("web", "still "+says, held)

	commit("Lift it", "v3", "")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	commit("Deny it again", "v4", `"`+bad+`"`)
	w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
	stop()
}

// Where commits are not known a denial cannot be judged: nothing enters but what a person lets pass.
func TestDenialWithoutCommitsHolds_A20(t *testing.T) {
	w := newWorld(t)
	w.Write(strings.Replace(stage.TwoChannels, "- {name: production, ", "- {name: production, protections: [{name: bad, deniedCommits: {commits: [4be1a90]}}], ", 1) + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.AwaitThat("web", "staging at v1, and production held", func(s protocol.Status) bool {
		said := strings.Join(explain.Lines(s, "production", time.Now()), "\n")
		return strings.Contains(said, "incarnation 1 is from "+w.Dir+", whose commits are not known") && s.Channels[0].Status == "CONVERGED"
	})
	w.Act("web", protocol.Bypass, `{"by":"bob","version":"v1","channel":"production","condition":"bad","reason":"read it"}`)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// Who is notified of a release hears which commits it brings to the channel.
func TestNotificationHasCommits_A20(t *testing.T) {
	w := newWorld(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	events := make(chan activities.Event, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		var e activities.Event
		if json.NewDecoder(q.Body).Decode(&e) == nil && e.Service != "" {
			events <- e
		}
	}))
	t.Cleanup(hook.Close)
	r := gittest.New(t)
	commit := func(message, version string) {
		yaml := strings.Replace(stage.TwoChannels, "releaseChannels:", "notifications: [{name: chat, url: \""+hook.URL+"\", events: [succeeded]}]\nreleaseChannels:", 1)
		r.Commit(t, message, map[string]string{"deploy/converge.yaml": strings.ReplaceAll(yaml+stage.Web, "APP", w.App) + "version: " + version + "\n"})
	}
	heard := func(channel, version string) string {
		for e := range events {
			if e.Entry.Channel == channel && strings.HasPrefix(e.Entry.Version, version) {
				var subjects []string
				for _, i := range e.Commits.Commits {
					for _, c := range i.Commits {
						subjects = append(subjects, c.Subject)
					}
				}
				return strings.Join(subjects, ", ")
			}
		}
		return ""
	}
	commit("Begin", "v1")
	_, stop := watchRepository(t, w, r)
	defer stop()
	require.Equal(t, "Begin", heard("production", "v1"))
	r.Commit(t, "Aside", map[string]string{"README": "1"})
	commit("Sell more", "v2")
	require.Equal(t, "Sell more, Aside", heard("production", "v2"))
}
