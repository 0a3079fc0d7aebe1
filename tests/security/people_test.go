package security

import (
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// proven is a channel that takes two people's approval, each proven, and people who may pause it.
const proven = `apiVersion: converge/v1
kind: Application
name: APP
identity: {issuer: "ISSUER", audience: converge, required: [approve, pause, resume]}
releaseChannels:
- name: production
  runtimes: [{name: APP-rt}]
  preconditions: [{sharedManualApproval: {name: go-live, minApprovers: 2}}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

// worldOf publishes a configuration whose people an issuer proves, with two services and v1 of web released.
func worldOf(t *testing.T, configuration string) (*stage.World, *idptest.Issuer) {
	t.Helper()
	w, issuer := shared.World(t), idptest.New(t)
	w.Write(strings.ReplaceAll(configuration, "ISSUER", issuer.URL) + stage.Web + strings.ReplaceAll(stage.Web, "web", "api"))
	w.Publish()
	return w, issuer
}

// tried sends a verb as an update and as a signal, which are refused for the same reason.
func tried(t *testing.T, w *stage.World, service, verb, payload, why string) {
	t.Helper()
	err := w.Update(w.ID(service), verb, raw(payload), &protocol.Answer{})
	require.ErrorContains(t, err, why, "update")
	before := len(w.Status(service).Refused)
	w.Signal(service, verb, payload)
	s := w.AwaitThat(service, "a refusal", func(s protocol.Status) bool { return len(s.Refused) > min(before, 9) })
	require.Contains(t, s.Refused[len(s.Refused)-1].Reason, why, "signal")
}

// A token serves one request: with another request id it is refused, whatever the verb and the service, as an update and as
// a signal, with its signature or its encoding written otherwise too. The same request again is the same act. The trail has it once.
func TestATokenServesOneRequest(t *testing.T) {
	t.Parallel()
	w, issuer := worldOf(t, proven)
	w.Release("web", "v1")
	w.Release("api", "v1")
	alice := issuer.TokenOf(t, "alice@shop.dev")
	approval := func(token, id string) string {
		return fmt.Sprintf(`{"version":"v1","topic":"go-live","requestId":%q,"token":%q}`, id, token)
	}
	require.Contains(t, w.Act("web", protocol.Approve, approval(alice, "r1")), "1 of 2")
	require.Contains(t, w.Act("web", protocol.Approve, approval(alice, "r1")), "1 of 2", "a retry is answered as before")
	require.Contains(t, w.Act("api", protocol.Approve, approval(alice, "r1")), "1 of 2", "one request to several services")

	const used = "the token has served another request"
	for _, service := range []string{"web", "api"} {
		tried(t, w, service, protocol.Pause, fmt.Sprintf(`{"requestId":"r2","token":%q}`, alice), used)
		tried(t, w, service, protocol.Pause, fmt.Sprintf(`{"requestId":"r1","token":%q}`, alice), used)
		tried(t, w, service, protocol.Pause, fmt.Sprintf(`{"token":%q}`, alice), used)
		tried(t, w, service, protocol.Approve, approval(alice, "r3"), used)
		tried(t, w, service, protocol.Approve, approval(malleated(t, alice), "r3"), used)
		tried(t, w, service, protocol.Approve, approval(encodedOtherwise(t, alice), "r3"), used)
		require.Empty(t, w.Status(service).Pauses)
	}

	signal := fmt.Sprintf(`{"reason":"incident","token":%q}`, issuer.TokenOf(t, "alice@shop.dev"))
	w.Signal("web", protocol.Pause, signal)
	w.AwaitThat("web", "a pause", func(s protocol.Status) bool { return len(s.Pauses) == 1 })
	w.Act("web", protocol.Resume, fmt.Sprintf(`{"token":%q}`, issuer.TokenOf(t, "alice@shop.dev")))
	w.Signal("web", protocol.Pause, signal)
	w.Signal("web", protocol.Approve, `{"by":"mallory"}`) // the last of the refusals: what came before it was carried out
	s := w.AwaitThat("web", "what came after it refused", func(s protocol.Status) bool {
		return s.Refused[len(s.Refused)-1].By == "mallory"
	})
	require.Empty(t, s.Pauses, "a signal that is sent again is the same request")
	require.Equal(t, []string{"approved go-live", "pause", "resume"}, acts(t, w))
}

// acts are the lines of the trail that are of people and not of releases, a word or two of each.
func acts(t *testing.T, w *stage.World) (out []string) {
	t.Helper()
	for _, text := range trail(t, w) {
		switch {
		case strings.HasPrefix(text, "approved"):
			out = append(out, text)
		case strings.Contains(text, "paused"):
			out = append(out, "pause")
		case strings.Contains(text, "resumed"):
			out = append(out, "resume")
		}
	}
	return out
}

func raw(payload string) json.RawMessage { return json.RawMessage(payload) }

// malleated is the same token under another valid signature: of (r, s) and (r, n-s) ECDSA accepts both.
func malleated(t *testing.T, token string) string {
	t.Helper()
	parts := strings.Split(token, ".")
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	require.NoError(t, err)
	s := new(big.Int).SetBytes(sig[32:])
	s.Sub(elliptic.P256().Params().N, s).FillBytes(sig[32:])
	return parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(sig)
}

// encodedOtherwise is the same token with bits of its signature's base64 set that stand for nothing.
func encodedOtherwise(t *testing.T, token string) string {
	t.Helper()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + string(alphabet[last|1])
}
