package security

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// releasers is a channel into which alice alone may release, proven.
const releasers = `apiVersion: converge/v1
kind: Application
name: APP
identity: {issuer: "ISSUER", audience: converge, required: [release]}
authorization:
- {verbs: [release], releaseChannels: [production], to: [alice@shop.dev]}
releaseChannels:
- {name: production, runtimes: [{name: APP-rt}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

// One token proves who releases several services: each judges by its own grants. Whoever has none releases none of them, and the
// token serves no other release.
func TestJointReleaseIsJudgedByEachService_A14_B8(t *testing.T) {
	t.Parallel()
	w, issuer := worldOf(t, releasers)
	release := func(proof, version string) error {
		var answer protocol.JointAnswer
		return w.Update(protocol.ApplicationID(w.App), protocol.Release, raw(fmt.Sprintf(
			`{%s,"requestId":"%s","services":{"web":{"version":%q},"api":{"version":%q}}}`, proof, version, version, version)), &answer)
	}
	require.ErrorContains(t, release(`"by":"alice@shop.dev"`, "v1"), `release needs proof of identity: "token" is missing`)
	mallory := fmt.Sprintf(`"token":%q`, issuer.TokenOf(t, "mallory@shop.dev"))
	require.ErrorContains(t, release(mallory, "v1"), "is refused: api: mallory@shop.dev may not release in production; allowed: alice@shop.dev; web: mallory@shop.dev may not release")
	for _, service := range []string{"web", "api"} {
		require.Empty(t, w.Status(service).Releases)
	}
	alice := fmt.Sprintf(`"token":%q`, issuer.TokenOf(t, "alice@shop.dev"))
	require.NoError(t, release(alice, "v2"))
	require.NoError(t, release(alice, "v2"), "the same request is the same release")
	require.ErrorContains(t, release(alice, "v3"), "the token was used for another request")
	for _, service := range []string{"web", "api"} {
		s := w.AwaitThat(service, "v2", func(s protocol.Status) bool { return stage.Channels(s) == "production CONVERGED v2" })
		require.Len(t, s.Releases, 1)
		require.Equal(t, "alice@shop.dev", s.Releases[0].By)
	}
}
