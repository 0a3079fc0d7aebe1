package security

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// anybody leaves it to anybody to approve.
const anybody = `apiVersion: converge/v1
kind: Application
name: APP
identity: {issuer: "ISSUER", audience: converge}
releaseChannels:
- name: production
  runtimes: [{name: APP-rt}]
  preconditions: [{sharedManualApproval: {name: go-live}}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

// What was said of a release while anybody could counts no longer once the rules say who may, and that it takes proof: nobody
// approves beforehand in the name of somebody who will be asked. Who may under the new rules says it again.
func TestApprovalsFollowTheRules_G3(t *testing.T) {
	t.Parallel()
	for name, stricter := range map[string]func(string) string{
		"approvers": func(c string) string {
			return strings.Replace(c, "{name: go-live}", "{name: go-live, approvers: [bob@shop.dev]}", 1)
		},
		"grants": func(c string) string {
			return strings.Replace(c, "releaseChannels:", "authorization: [{verbs: [approve], to: [bob@shop.dev]}]\nreleaseChannels:", 1)
		},
		"proof": func(c string) string {
			return strings.Replace(c, "audience: converge", "audience: converge, required: [approve]", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, issuer := shared.World(t), idptest.New(t)
			base := strings.ReplaceAll(anybody, "ISSUER", issuer.URL)
			paused := strings.Replace(base, "{sharedManualApproval", "{manualApproval: {}}, {sharedManualApproval", 1)
			w.Write(paused + stage.Web)
			w.Publish()
			w.Release("web", "v1")
			w.Act("web", protocol.Approve, `{"version":"v1","topic":"go-live","by":"bob@shop.dev"}`)
			w.Write(stricter(base) + stage.Web)
			w.Publish()
			s := w.AwaitThat("web", "the new rules", func(s protocol.Status) bool { return s.Incarnation == 2 })
			require.Equal(t, "WAITING_MANUAL_APPROVAL", s.Channels[0].Status)
			require.Len(t, s.Channels[0].Conditions, 1)
			require.Contains(t, s.Channels[0].Conditions[0].Reason, "0 of 1")
			require.Contains(t, s.Channels[0].Conditions[0].Reason, "; withdrawn: bob@shop.dev stated (")
			require.Contains(t, strings.Join(trail(t, w), "\n"), "approval withdrawn: go-live by bob@shop.dev")
			w.Act("web", protocol.Approve, fmt.Sprintf(`{"version":"v1","topic":"go-live","token":%q}`, issuer.TokenOf(t, "bob@shop.dev")))
			w.Await("web", "production CONVERGED v1")
		})
	}
}

// Where two people approve, and people can prove who they are, nobody is two of them by stating another name.
func TestTwoApproversAreTwoPeople_G3(t *testing.T) {
	t.Parallel()
	w, issuer := worldOf(t, strings.Replace(anybody, "{name: go-live}", "{name: go-live, minApprovers: 2}", 1))
	w.Release("web", "v1")
	w.Act("web", protocol.Approve, approving(issuer.TokenOf(t, "alice@shop.dev")))
	tried(t, w, "web", protocol.Approve, func() string { return `{"version":"v1","topic":"go-live","by":"bob@shop.dev"}` }, "approve needs proof of identity")
	w.Act("web", protocol.Approve, approving(issuer.TokenOf(t, "bob@shop.dev")))
	w.Await("web", "production CONVERGED v1")
}
