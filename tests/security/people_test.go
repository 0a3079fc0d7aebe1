package security

import (
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// proven is a channel that takes two people's approval, each proven, and people who may pause it.
const proven = `apiVersion: converge/v1
kind: Application
name: APP
identity: {issuer: "ISSUER", audience: converge, required: [approve, reject, pause, resume]}
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
func tried(t *testing.T, w *stage.World, service, verb string, payload func() string, why string) {
	t.Helper()
	err := w.Update(w.ID(service), verb, raw(payload()), &protocol.Answer{})
	require.ErrorContains(t, err, why, "update")
	before := w.Status(service).Refused
	w.Signal(service, verb, payload())
	s := w.AwaitThat(service, "a refusal", func(s protocol.Status) bool {
		return len(s.Refused) > 0 && !slices.ContainsFunc(before, func(r entities.Refusal) bool { return r == s.Refused[len(s.Refused)-1] })
	})
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
		return fmt.Sprintf(`{"version":"v1","topic":"go-live","requestId":%q,"token":%q,"to":["api","web"]}`, id, token)
	}
	require.Contains(t, w.Act("web", protocol.Approve, approval(alice, "r1")), "1 of 2")
	require.Contains(t, w.Act("web", protocol.Approve, approval(alice, "r1")), "1 of 2", "a retry is answered as before")
	require.Contains(t, w.Act("api", protocol.Approve, approval(alice, "r1")), "1 of 2", "one request to several services")

	const used = "the token was used for another request"
	for _, service := range []string{"web", "api"} {
		for verb, payload := range map[string]string{
			protocol.Pause: fmt.Sprintf(`{"requestId":"r2","token":%q}`, alice), protocol.Resume: fmt.Sprintf(`{"requestId":"r5","token":%q}`, alice),
			protocol.Reject: fmt.Sprintf(`{"version":"v1","topic":"go-live","token":%q}`, alice), protocol.Approve: approval(alice, "r3"),
		} {
			tried(t, w, service, verb, func() string { return payload }, used)
		}
		for _, same := range []string{malleated(t, alice), encodedOtherwise(t, alice)} {
			tried(t, w, service, protocol.Approve, func() string { return approval(same, "r4") }, used)
		}
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
	require.Equal(t, []string{"approved go-live", "pause", "resume"}, actsOfPeople(t, w))
}

// actsOfPeople are the lines of the trail that are of people and not of releases, a word or two of each.
func actsOfPeople(t *testing.T, w *stage.World) (out []string) {
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

// A token that is read in the history of one service is worth nothing at another one, under no id; and a request that names its
// receivers is refused by any other service.
func TestATokenOfOneServiceServesNoOther_G3(t *testing.T) {
	t.Parallel()
	w, issuer := worldOf(t, proven)
	w.Release("web", "v1")
	w.Release("api", "v1")
	seen := fmt.Sprintf(`{"version":"v1","topic":"go-live","requestId":"r1","token":%q}`, issuer.TokenOf(t, "alice@shop.dev"))
	require.Contains(t, w.Act("web", protocol.Approve, seen), "1 of 2")
	tried(t, w, "api", protocol.Approve, func() string { return seen }, "the token was used for another request")
	named := fmt.Sprintf(`{"version":"v1","topic":"go-live","requestId":"r2","token":%q,"to":["web"]}`, issuer.TokenOf(t, "bob@shop.dev"))
	tried(t, w, "api", protocol.Approve, func() string { return named }, `the request is for web, not for api ("to")`)
	require.Contains(t, w.Act("api", protocol.Approve, fmt.Sprintf(`{"version":"v1","topic":"go-live","token":%q}`, issuer.TokenOf(t, "carol@shop.dev"))), "1 of 2", "nobody else approved")
	require.ErrorContains(t, w.Update(protocol.ApplicationID(w.App), protocol.Pause, raw(fmt.Sprintf(`{"token":%q,"to":["web"]}`, issuer.TokenOf(t, "dave@shop.dev"))), &protocol.Answer{}), `"to" names services`)
}

// A request id belongs to one verb, content and person: nobody else is answered what was asked under it, not even with a token.
func TestARequestIDAnswersOnlyItsCaller_G3(t *testing.T) {
	t.Parallel()
	w, issuer := worldOf(t, proven)
	w.Release("web", "v1")
	approval := func(token string) string {
		return fmt.Sprintf(`{"version":"v1","topic":"go-live","requestId":"r1","token":%q}`, token)
	}
	require.Contains(t, w.Act("web", protocol.Approve, approval(issuer.TokenOf(t, "alice@shop.dev"))), "1 of 2")
	const used = `request id "r1" was already used for another approve, by alice@shop.dev`
	tried(t, w, "web", protocol.Approve, func() string { return approval("worth.no.thing") }, "the token")
	tried(t, w, "web", protocol.Approve, func() string { return approval(issuer.TokenOf(t, "bob@shop.dev")) }, used)
	tried(t, w, "web", protocol.Reject, func() string { return approval(issuer.TokenOf(t, "alice@shop.dev")) }, used)
	require.Contains(t, w.Act("web", protocol.Approve, approval(issuer.TokenOf(t, "alice@shop.dev"))), "1 of 2", "with a new token: the same person")
}

// guarded names who approves and who pauses, and has somebody else approve than who released.
const guarded = `apiVersion: converge/v1
kind: Application
name: APP
identity: {issuer: "ISSUER", audience: converge}
authorization:
- {verbs: [pause], to: [alice@shop.dev]}
releaseChannels:
- name: production
  runtimes: [{name: APP-rt}]
  preconditions: [{sharedManualApproval: {name: go-live, minApprovers: 2, approvers: ["group:sre", alice@shop.dev], notReleaser: true}}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

// A person is one person, and proven where it is said who may: nobody is another by stating a name, by an address that is not
// verified or not called that any more, or by letters that look like others. Who released does not approve it. Nothing of
// what was tried is in the trail.
func TestAPersonIsOnePerson_G3(t *testing.T) {
	t.Parallel()
	w, issuer := worldOf(t, guarded)
	sre := map[string]any{"sub": "u-2", "email": "bob@shop.dev", "email_verified": true, "groups": []string{"sre"}}
	as := func(claims map[string]any, over ...any) string {
		own := maps.Clone(claims)
		for n := 0; n < len(over); n += 2 {
			own[over[n].(string)] = over[n+1]
		}
		return issuer.Token(t, own)
	}
	tried(t, w, "web", protocol.Release, func() string { return `{"version":"v1","by":"test"}` }, "release needs proof of identity")
	require.NoError(t, w.Update(w.ID("web"), protocol.Release, raw(fmt.Sprintf(`{"version":"v1","token":%q}`, as(sre))), &protocol.ReleaseAnswer{}))

	for why, payload := range map[string]func() string{
		`"token" is missing`: func() string { return `{"version":"v1","topic":"go-live","by":"alice@shop.dev"}` },
		"u-9 may not approve": func() string {
			return approving(as(sre, "sub", "u-9", "email", "alice@shop.dev", "email_verified", false, "groups", nil))
		},
		"u-8 may not approve": func() string {
			return approving(as(sre, "sub", "u-8", "email", "alice@shop.dev", "email_verified", nil, "groups", nil))
		},
		"letters of Cyrillic and of Latin": func() string { return approving(as(sre, "sub", "u-7", "email", "аlice@shop.dev")) },
		"invisible character":              func() string { return approving(as(sre, "sub", "u-7", "email", "alice\u200b@shop.dev")) },
		"bob@shop.dev released v1":         func() string { return approving(as(sre)) },
		"bob@new.dev released v1":          func() string { return approving(as(sre, "email", "bob@new.dev")) },
	} {
		tried(t, w, "web", protocol.Approve, payload, why)
	}
	tried(t, w, "web", protocol.Pause, func() string { return `{"by":"alice@shop.dev"}` }, "pause needs proof of identity, since only certain callers may")
	tried(t, w, "web", protocol.Pause, func() string { return `{"by":"аlice@shop.dev"}` }, "letters of Cyrillic and of Latin")
	s := w.AwaitThat("web", "it waiting", func(s protocol.Status) bool { return s.Channels[0].Status == "WAITING_MANUAL_APPROVAL" })
	require.Contains(t, s.Channels[0].Conditions[0].Reason, "0 of 2, by any of group:sre, alice@shop.dev except bob@shop.dev (the releaser)")

	carol := as(sre, "sub", "u-3", "email", "carol@shop.dev")
	require.Contains(t, w.Act("web", protocol.Approve, approving(carol)), "1 of 2 (carol@shop.dev)")
	renamed := func() string { return approving(as(sre, "sub", "u-3", "email", "carol@new.dev")) }
	tried(t, w, "web", protocol.Approve, renamed, "carol@new.dev has already approved v1 for go-live; another person must approve")
	w.Act("web", protocol.Approve, approving(issuer.TokenOf(t, "alice@shop.dev")))
	w.Await("web", "production CONVERGED v1")
	require.Equal(t, []string{"approved go-live", "approved go-live"}, actsOfPeople(t, w))
}

func approving(token string) string {
	return fmt.Sprintf(`{"version":"v1","topic":"go-live","token":%q}`, token)
}

// What a token says of itself is anybody's to write: bytes that are no text are refused as any other mistake, and the workflow
// goes on.
func TestATokenThatIsNoText(t *testing.T) {
	t.Parallel()
	w, issuer := worldOf(t, proven)
	w.Release("web", "v1")
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	for name, audience := range map[string]string{"bytes": "\xff\x9b", "cut within a letter": "x" + strings.Repeat("€", 200)} {
		token := part(`{"alg":"ES256"}`) + "." + part(`{"iss":"`+issuer.URL+`","aud":"`+audience+`"}`) + "." + part("x")
		tried(t, w, "web", protocol.Pause, func() string { return fmt.Sprintf(`{"token":%q}`, token) }, "the token is for the audience")
		require.Empty(t, w.Status("web").Pauses, name)
	}
	require.NotEmpty(t, w.Act("web", protocol.Pause, fmt.Sprintf(`{"token":%q}`, issuer.TokenOf(t, "alice@shop.dev"))))
}
