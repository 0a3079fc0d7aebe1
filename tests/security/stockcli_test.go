package security

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker/embedded"
)

// ruled is strict, for those who are proven.
const ruled = `apiVersion: converge/v1
kind: Application
name: APP
identity: {issuer: "ISSUER", audience: converge, required: ["*"]}
authorization:
- {verbs: ["*"], to: [alice@shop.dev]}
- {verbs: [refresh], to: [mallory@shop.dev]}
`

// exploit is a message that would get somebody past a gate, and what is said of it.
type exploit struct {
	name, id, verb, payload string
	update, signal          string // why it is refused; of a signal "": it changes nothing, and nothing is said of it
}

// Whoever has the stock CLI and no more than the right to signal and update gets past no gate: what is forged, replayed, out of range
// or in nobody's right is refused as an update and as a signal, and neither the targets nor any history have anything of it.
func TestExploitsByStockCLI_G1(t *testing.T) {
	t.Parallel()
	temporaltest.CLI(t)
	w, issuer := shared.OwnServerWith(t, embedded.Options{}), idptest.New(t)
	publishes(w, "")
	who, channels, _ := strings.Cut(strict, "releaseChannels:")
	require.NotEmpty(t, who)
	w.Write(strings.ReplaceAll(ruled, "ISSUER", issuer.URL) + "releaseChannels:" + strings.ReplaceAll(channels, "APPROVAL", ", {manualApproval: {}}") + stage.Web)
	w.Publish()
	alice := func(payload string) string {
		return strings.Replace(payload, "{", fmt.Sprintf(`{"token":%q,`, issuer.TokenOf(t, "alice@shop.dev")), 1)
	}
	require.NoError(t, w.Update(w.ID("web"), protocol.Release, raw(alice(`{"version":"v1"}`)), &protocol.ReleaseAnswer{}))
	const waits = "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL"
	w.Await("web", waits)
	used := issuer.TokenOf(t, "alice@shop.dev")
	require.NoError(t, w.Update(w.ID("web"), protocol.Refresh, raw(fmt.Sprintf(`{"requestId":"r1","token":%q}`, used)), &protocol.Answer{}))

	known := incarnations(t, w)
	loosened := fmt.Sprintf(`{"by":"alice@shop.dev","hash":%q,"manifest":%q,"services":2,"store":%q,"origin":{"path":%q}}`, known[0].Hash, manifestOf(t, w, 1), w.Store, w.Dir)
	old := fmt.Sprintf(`{"incarnation":1,"hash":%q,"spec":%q,"order":{"newest":99,"count":99999999999},"at":"2099-01-01T00:00:00Z"}`, known[0].Hash, known[0].Spec)
	web, app := w.ID("web"), protocol.ApplicationID(w.App)
	const unproven, nobody, noVerb = "needs proof of identity", "unknown update", "no such verb"
	for _, e := range []exploit{
		{"an approval in the name of another", web, protocol.Approve, `{"version":"v1","topic":"production","by":"alice@shop.dev"}`, unproven, unproven},
		{"an approval by somebody without a grant", web, protocol.Approve, fmt.Sprintf(`{"version":"v1","topic":"production","token":%q}`, issuer.TokenOf(t, "mallory@shop.dev")), "mallory@shop.dev may not approve", "the token was used for another request"},
		{"an approval with a token that somebody saw", web, protocol.Approve, fmt.Sprintf(`{"version":"v1","topic":"production","token":%q}`, used), "the token was used for another request", "the token was used for another request"},
		{"the same under the id that it had", web, protocol.Approve, fmt.Sprintf(`{"version":"v1","topic":"production","requestId":"r1","token":%q}`, used), "was already used for another refresh", "the token was used for another request"},
		{"an approval with a token of another issuer", web, protocol.Approve, fmt.Sprintf(`{"version":"v1","topic":"production","token":%q}`, idptest.New(t).TokenOf(t, "alice@shop.dev")), "token", "token"},
		{"an approval of two people", web, protocol.Approve, `{"version":"v1","topic":"production","by":"mallory","by":"alice@shop.dev"}`, `occurs twice`, `"by" occurs twice`},
		{"a bypass", web, protocol.Bypass, `{"version":"v1","channel":"production","condition":"approval/production","reason":"x","by":"alice@shop.dev"}`, unproven, unproven},
		{"a pin", web, protocol.Pin, `{"version":"v1","channel":"production","by":"alice@shop.dev"}`, unproven, unproven},
		{"a rollback, and a retry after it", web, protocol.Rollback, `{"version":"v1","by":"alice@shop.dev"}`, unproven, unproven},
		{"a retry after a rollback", web, protocol.Retry, `{"version":"v1","channel":"production","by":"alice@shop.dev"}`, unproven, unproven},
		{"rules of before, published again", app, protocol.Publish, loosened, unproven, unproven},
		{"the same, from elsewhere", app, protocol.Publish, strings.Replace(loosened, "{", `{"takeOver":true,`, 1), unproven, unproven},
		{"a pin to rules of before", app, protocol.Pin, `{"incarnation":1,"by":"alice@shop.dev"}`, unproven, unproven},
		{"a number out of range", app, protocol.Pin, `{"incarnation":9223372036854775808,"by":"alice@shop.dev"}`, "expected a whole number below 2^63", "expected a whole number below 2^63"},
		{"rules of before, as the application tells them", web, protocol.Publish, old, nobody, ""},
		{"rules that nobody published", web, protocol.Publish, strings.Replace(old, `"incarnation":1`, `"incarnation":9223372036854775807`, 1), nobody, "was never published"},
		{"the end of a pause", web, protocol.SignalScopePause, `{"scope":"application"}`, nobody, ""},
		{"a lease that nobody granted", web, protocol.SignalGranted, fmt.Sprintf(`{"id":"web/production/main","runtime":"%s-rt"}`, w.App), nobody, ""},
		{"a lease that nobody holds", web, protocol.SignalHeld, `{"id":"x","runtime":"x"}`, nobody, ""},
		{"what only the workflow tells itself", web, "lease-call", `{"runtime":"x","give":"x"}`, nobody, noVerb},
	} {
		said, err := stock(t, w, "workflow", "update", "execute", "--workflow-id", e.id, "--name", e.verb, "--input", e.payload)
		require.Error(t, err, e.name)
		require.Contains(t, said, e.update, e.name)
		before := standing(t, w.Client, e.id).Refused
		said, err = stock(t, w, "workflow", "signal", "--workflow-id", e.id, "--name", e.verb, "--input", e.payload)
		require.NoError(t, err, "%s: %s", e.name, said)
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			fresh := slices.DeleteFunc(standing(t, w.Client, e.id).Refused, func(r entities.Refusal) bool { return slices.Contains(before, r) })
			return e.signal == "" || slices.ContainsFunc(fresh, func(r entities.Refusal) bool { return strings.Contains(r.Reason, e.signal) }), fmt.Sprint(e.name, fresh)
		})
		require.Equal(t, waits, stage.Channels(w.Status("web")), e.name)
	}
	said, err := stock(t, w, "workflow", "start", "--type", protocol.ServiceWorkflow, "--task-queue", protocol.TaskQueue, "--workflow-id", w.ID("evil"),
		"--input", fmt.Sprintf(`{"application":%q,"service":"evil","stateVersion":1,"state":{"application":%q,"service":"web"}}`, w.App, w.App))
	require.NoError(t, err, said)
	require.ErrorContains(t, w.Client.GetWorkflow(t.Context(), w.ID("evil"), "").Get(t.Context(), nil), "this workflow was not started by Converge")

	w.Act("web", protocol.Refresh, alice(`{"reason":"what came before it is carried out"}`))
	require.Equal(t, waits, stage.Channels(w.Status("web")))
	require.Equal(t, int64(2), w.Status("web").Incarnation)
	require.Zero(t, w.Fake.At(w.App, "web", "production").Applies())
	for of, has := range map[string]string{w.App + "/web": "release of v1", w.App: "incarnation 2 from"} {
		said, code := history(w, of)
		require.Zero(t, code, said)
		require.Contains(t, said, has)
		for _, never := range []string{"mallory", "approved", "bypass", "pinned", "incarnation 3", "rolled back"} {
			require.NotContains(t, said, never, of)
		}
		whole(w, of)
	}
	w.Act("web", protocol.Approve, alice(`{"version":"v1","topic":"production"}`))
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// manifestOf is the digest of the manifest of an incarnation.
func manifestOf(t *testing.T, w *stage.World, number int64) string {
	t.Helper()
	s, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer s.Close() // only read
	record, err := s.Number(t.Context(), w.App, number)
	require.NoError(t, err)
	return record.Manifest
}
