package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// A request id is one act, however often and in whatever way it is sent.
func TestRequestIDIsOneAct_B7(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	act := `{"version":"v1","by":"ci","requestId":"ci-1"}`
	w.Signal("web", protocol.Release, act)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	var answer protocol.ReleaseAnswer
	require.NoError(t, w.Update(w.ID("web"), protocol.Release, json.RawMessage(act), &answer))
	require.Equal(t, "1", answer.ID)
	require.Len(t, w.Status("web").Releases, 1)
}

// Bad input changes nothing, is returned to who waits for an answer, and is kept for who does not.
func TestRefusedVerbs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	for _, c := range []struct{ verb, payload, want string }{
		{"release", `{"version":"v2"}`, `"by" is missing; expected the name of the caller`},
		{"release", `{"by":"bob"}`, `no version given`},
		{"release", `{"verzion":"v2","by":"bob"}`, `payload of release: unknown field "verzion"`},
		{"release", `{"version":2,"by":"bob"}`, `payload of release: "version" is a number; expected a text`},
		{"release", `{"version":"v 2","by":"bob"}`, `version "v 2": expected letters, digits and . _ + - : @ ~ =, beginning with a letter or digit`},
		{"release", `"v2"`, `payload of release: a text; expected an object`},
		{"release", `{"version":"v2","by":"bob","channelParameters":{"stagin":{"greeting":"x"}}}`, `no release channel "stagin"; expected one of staging, production`},
		{"pause", `{"channel":"stagin","by":"bob"}`, `no release channel "stagin"`},
		{"cancel", `{"version":"v9","by":"bob"}`, `no release of version "v9"; expected one of v1`},
		{"cancel", `{"version":"v1","by":"bob"}`, `v1 is over: production succeeded, staging succeeded`},
		{"retry", `{"version":"v1","by":"bob"}`, `v1 did not fail where it is the target`},
	} {
		err := w.Update(w.ID("web"), c.verb, json.RawMessage(c.payload), nil)
		require.ErrorContains(t, err, c.want, "update %s %s", c.verb, c.payload)
		w.Signal("web", c.verb, c.payload)
		w.AwaitThat("web", c.want, func(s protocol.Status) bool {
			return len(s.Refused) > 0 && s.Refused[len(s.Refused)-1].Verb == c.verb
		})
	}
	w.Signal("web", "aprove", `{"by":"bob"}`)
	s := w.AwaitThat("web", "unknown verb refused", func(s protocol.Status) bool {
		return s.Refused[len(s.Refused)-1].Verb == "aprove"
	})
	require.Contains(t, s.Refused[len(s.Refused)-1].Reason, "no such verb; expected one of release, ")
	require.Equal(t, "staging CONVERGED v1, production CONVERGED v1", stage.Channels(s))
	require.Len(t, s.Releases, 1)
}

// What is paused is observed and never applied; what was cancelled or failed can be tried again.
func TestPauseCancelRetry_A16_A18(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	require.Equal(t, w.App+"/web production is paused\nproduction: paused by bob\n  converge resume "+w.App+"/web --channel production", w.Act("web", "pause", `{"channel":"production","by":"bob","reason":"incident 12"}`))
	w.Release("web", "v2")
	s := w.Await("web", "staging CONVERGED v2, production PAUSED v1")
	require.Equal(t, "paused by bob: incident 12", s.Channels[1].Reasons[0].Text)
	require.Contains(t, w.Act("web", "cancel", `{"version":"v2","by":"bob"}`), "v2 cancelled in production")
	w.Act("web", "resume", `{"channel":"production","by":"bob"}`)
	w.Await("web", "staging CONVERGED v2, production CONVERGED v1")

	w.Fake.At(w.App, "web", "staging").FailAppliesPermanently(1, "quota")
	w.Release("web", "v3")
	w.Await("web", "staging ROLLED_BACK v2, production BLOCKED v1")
	w.Act("web", "retry", `{"version":"v3","by":"bob"}`)
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	w.Act("web", "refresh", `{"by":"bob"}`)
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
	require.Empty(t, w.Fake.Overlaps())
}

// What runs begins anew at the version that is there, by one apply that is no other's, past a pin, and once a pause is over.
func TestRestart_I1(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	w.Act("web", "pin", `{"channel":"staging","by":"bob"}`)
	w.Act("web", "pause", `{"channel":"production","by":"bob"}`)
	require.Contains(t, w.Act("web", "restart", `{"by":"bob","reason":"rotated secrets"}`),
		w.App+"/web restarts in staging, production\nstaging: v1 is being deployed\nproduction: paused by bob\n  converge resume ")
	w.Await("web", "staging CONVERGED v1, production PAUSED v1")
	w.Act("web", "resume", `{"channel":"production","by":"bob"}`)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	keys := map[string]bool{}
	var restarts []string
	for _, a := range w.Fake.Applies() {
		if strings.HasPrefix(a.Instance, w.App+"/web/") {
			require.False(t, keys[a.Key], a.Key)
			keys[a.Key] = true
			if a.Restart {
				restarts = append(restarts, strings.TrimPrefix(a.Instance, w.App+"/web/")+" "+a.Version)
			}
		}
	}
	require.Equal(t, []string{"staging v1", "production v1"}, restarts)
	require.Empty(t, w.Fake.Overlaps())
}

// explain is what a service answers to that query.
func (w *world) explain(service string) string {
	w.T.Helper()
	value, err := temporaltest.Query(w.T.Context(), w.Client, w.ID(service), protocol.QueryExplain)
	require.NoError(w.T, err)
	var e protocol.Explanation
	require.NoError(w.T, value.Get(&e))
	return strings.Join(e.Lines, "\n")
}

// Explain answers from workflow state alone, by the stock query.
func TestExplain_A13(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	release := w.Fake.At(w.App, "web", "staging").HangApplies()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGING v1, production WAITING_PRECONDITIONS")
	require.Contains(t, w.explain("web"), " WAIT  channel-stable/staging  v1 is being deployed to staging; since ")
	release()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// Signals of different names keep their order, though they come in one batch after the worker
// was unavailable.
func TestSignalsKeepTheirOrder_B7(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 0)
	w.RunWeb()
	w.StopWorker()
	for _, s := range [][2]string{
		{"pause", `{"channel":"staging","by":"bob"}`},
		{"resume", `{"channel":"staging","by":"bob"}`},
		{"pause", `{"channel":"production","by":"bob"}`},
		{"resume", `{"channel":"production","by":"bob"}`},
		{"pause", `{"channel":"production","by":"bob"}`},
		{"release", `{"version":"v2","by":"bob"}`},
		{"cancel", `{"version":"v2","channel":"production","by":"bob"}`},
		{"release", `{"version":"v3","by":"bob"}`},
	} {
		w.Signal("web", s[0], s[1])
	}
	w.StartWorker()
	s := w.Await("web", "staging CONVERGED v3, production PAUSED v1")
	require.Empty(t, s.Refused)
	require.Equal(t, "cancelled", s.Releases[1].Phases["production"])
}
