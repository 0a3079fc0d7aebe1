package security

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// looseRules is the configuration of strictRules before anything was restricted.
const looseRules = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- name: production
  runtimes: [{name: APP-rt}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

const strictRules = `apiVersion: converge/v1
kind: Application
name: APP
identity: {issuer: "ISSUER", audience: converge}
authorization:
- {verbs: [pin, release], to: ["group:oncall"]}
- {verbs: [pinApplication], to: ["group:lead"]}
releaseChannels:
- name: production
  runtimes: [{name: APP-rt}]
  preconditions: [{sharedManualApproval: {name: go-live, minApprovers: 2, approvers: ["group:sre"]}}]
  protections: [{ref: bad}]
---
apiVersion: converge/v1
kind: Protection
name: bad
deniedVersions: {versions: [v2, v3], reason: they lose orders}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms}
`

// A pin to an incarnation without rules brings back its payloads, and no older rules: who may do what, approvals and denied versions
// are those of the newest incarnation, also of one that is published while the pin holds.
func TestPinKeepsTheNewestRules_G2(t *testing.T) {
	t.Parallel()
	w, issuer := worldOf(t, looseRules)
	w.Release("web", "v1")
	w.Await("web", "production CONVERGED v1")
	as := func(group string) string {
		return issuer.Token(t, map[string]any{"sub": group, "email": group + "@shop.dev", "email_verified": true, "groups": []string{group}})
	}
	publishRules := func(rules string) {
		t.Helper()
		w.Write(strings.ReplaceAll(rules, "ISSUER", issuer.URL) + stage.Web + strings.ReplaceAll(stage.Web, "web", "api"))
		_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true})
		require.NoError(t, err)
	}
	strict := strings.Replace(strictRules, "versions: [v2, v3]", "versions: [v2]", 1)
	publishRules(strict)
	w.AwaitThat("web", "the second incarnation", func(s protocol.Status) bool { return s.Incarnation == 2 })

	application := protocol.ApplicationID(w.App)
	pin := func(group string) error {
		return w.Update(application, protocol.Pin, raw(fmt.Sprintf(`{"incarnation":1,"reason":"back","token":%q}`, as(group))), &protocol.Answer{})
	}
	require.ErrorContains(t, pin("oncall"), "oncall@shop.dev may not pinApplication")
	require.NoError(t, pin("lead"))
	under := func(incarnation int64) {
		t.Helper()
		w.AwaitThat("web", "the pinned incarnation", func(s protocol.Status) bool {
			return s.Incarnation == 1 && strings.Contains(textOf(t, s), fmt.Sprintf("incarnation 1, under the rules of incarnation %d", incarnation))
		})
	}
	under(2)
	release := func(version, as string) error {
		return w.Update(w.ID("web"), protocol.Release, raw(fmt.Sprintf(`{"version":%q,%s}`, version, as)), &protocol.ReleaseAnswer{})
	}
	require.ErrorContains(t, release("v2", `"by":"test"`), "release needs proof of identity")
	require.ErrorContains(t, release("v2", fmt.Sprintf(`"token":%q`, as("lead"))), "lead@shop.dev may not release")
	require.NoError(t, release("v2", fmt.Sprintf(`"token":%q`, as("oncall"))))
	held := func(version string) {
		t.Helper()
		s := w.AwaitThat("web", version+" to be denied", func(s protocol.Status) bool {
			return strings.Contains(textOf(t, s), version+" is denied: they lose orders")
		})
		require.Contains(t, textOf(t, s), "approval/go-live")
		require.Equal(t, "v1", s.Channels[0].Current)
	}
	held("v2")

	publishRules(strictRules)
	under(3)
	require.NoError(t, release("v3", fmt.Sprintf(`"token":%q`, as("oncall"))))
	held("v3")

	at, err := store.Open(t.Context(), w.Store)
	require.NoError(t, err)
	defer at.Close()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // the line is written after the answer
		lines, err := at.Audit(t.Context(), w.App, "")
		require.NoError(t, err)
		return slices.ContainsFunc(lines, func(l entities.AuditEntry) bool {
			return l.Text == w.App+" pinned to incarnation 1" && l.Who.Name == "lead@shop.dev"
		}), fmt.Sprint(lines)
	})
	require.ErrorContains(t, w.Update(application, protocol.Unpin, raw(fmt.Sprintf(`{"token":%q}`, as("oncall"))), &protocol.Answer{}), "oncall@shop.dev may not pinApplication")
	require.NoError(t, w.Update(application, protocol.Unpin, raw(fmt.Sprintf(`{"token":%q}`, as("lead"))), &protocol.Answer{}))
	w.AwaitThat("web", "the newest incarnation", func(s protocol.Status) bool { return s.Incarnation == 3 })
	held("v3")
}

// What a pin changes is a change by who pinned it: they do not approve it themselves.
func TestWhoPinsDoesNotApprove_G3(t *testing.T) {
	t.Parallel()
	rules := strings.Replace(guarded, "minApprovers: 2", "minApprovers: 1", 1)
	w, issuer := worldOf(t, rules)
	as := func(name string) string {
		return issuer.Token(t, map[string]any{"sub": name, "email": name + "@shop.dev", "email_verified": true, "groups": []string{"sre"}})
	}
	approve := func(version, name string) string {
		return fmt.Sprintf(`{"version":%q,"topic":"go-live","token":%q}`, version, as(name))
	}
	require.NoError(t, w.Update(w.ID("web"), protocol.Release, raw(fmt.Sprintf(`{"version":"v1","token":%q}`, as("bob"))), &protocol.ReleaseAnswer{}))
	w.Act("web", protocol.Approve, approve("v1", "carol"))
	w.Await("web", "production CONVERGED v1")
	w.Write(strings.ReplaceAll(rules, "ISSUER", issuer.URL) + strings.Replace(stage.Web, "default: hello", "default: bye", 1))
	_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true, Token: as("ann")})
	require.NoError(t, err)
	w.Act("web", protocol.Approve, approve("v1-i2", "carol"))
	w.Await("web", "production CONVERGED v1-i2")

	require.NoError(t, w.Update(protocol.ApplicationID(w.App), protocol.Pin, raw(fmt.Sprintf(`{"incarnation":1,"reason":"back","token":%q}`, as("dave"))), &protocol.Answer{}))
	w.AwaitThat("web", "the config release of the pin", func(s protocol.Status) bool { return strings.Contains(textOf(t, s), "dave@shop.dev (the releaser)") })
	tried(t, w, "web", protocol.Approve, func() string { return approve("v1-i1", "dave") }, "dave@shop.dev released v1-i1")
	w.Act("web", protocol.Approve, approve("v1-i1", "ann"))
	w.Await("web", "production CONVERGED v1-i1")
}

func textOf(t *testing.T, s protocol.Status) string {
	t.Helper()
	data, err := json.Marshal(s)
	require.NoError(t, err)
	return string(data)
}
