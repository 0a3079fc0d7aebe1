package security

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// bound is the configuration in which an approval needs a token for the one act, except of CI.
var bound = strings.Replace(proven, "identity: {", "identity: {bound: [approve, pause, restart], boundExcept: [ci@shop.dev], ", 1)

// act is one request, and the token that its issuer signs for it.
type act struct {
	w             *stage.World
	service, verb string
	payload       map[string]any
	receiver      string // else the id of the service's workflow
	namespace     string // else that of the world
}

// nonce is that of a token for the act.
func (a act) nonce(t *testing.T) string {
	t.Helper()
	request, err := json.Marshal(a.payload)
	require.NoError(t, err)
	receiver := a.receiver
	if receiver == "" {
		receiver = a.w.ID(a.service)
	}
	namespace := a.namespace
	if namespace == "" {
		namespace = "default"
	}
	nonce, err := protocol.Act{Namespace: namespace, Receiver: receiver, Verb: a.verb, Request: request}.Nonce()
	require.NoError(t, err)
	return nonce
}

// with is the payload with a token.
func (a act) with(t *testing.T, token string) string {
	t.Helper()
	fields := maps.Clone(a.payload)
	fields["token"] = token
	text, err := json.Marshal(fields)
	require.NoError(t, err)
	return string(text)
}

// boundTo is a token of a person for an act.
func boundTo(t *testing.T, issuer *idptest.Issuer, email string, a act, own map[string]any) string {
	t.Helper()
	claims := map[string]any{"sub": "of " + email, "email": email, "email_verified": true, "nonce": a.nonce(t)}
	maps.Copy(claims, own)
	return issuer.Token(t, claims)
}

// Where an act needs a token for it, no other one serves: not one for no act, nor for an act that differs in one field, nor an old one, nor the
// same one again. CI that cannot request such tokens is excepted by its name.
func TestTokenForOneAct_G3(t *testing.T) {
	t.Parallel()
	w, issuer := worldOf(t, bound)
	w.Release("web", "v1")
	w.Release("api", "v1")
	approval := func(id string) act {
		return act{w: w, service: "web", verb: protocol.Approve, payload: map[string]any{"version": "v1", "topic": "go-live", "comment": "tested", "requestId": id}}
	}
	refused := func(a act, token func() string, why string) {
		t.Helper()
		tried(t, w, a.service, a.verb, func() string { return a.with(t, token()) }, why)
	}

	refused(approval("r1"), func() string { return issuer.TokenOf(t, "alice@shop.dev") }, "was issued for no act")
	tried(t, w, "web", protocol.RestartService, func() string { return `{"by":"alice@shop.dev"}` }, "restart needs proof of identity") // required does not name it
	for what, change := range map[string]func(*act){
		"the service":    func(a *act) { a.receiver = w.ID("api") },
		"the namespace":  func(a *act) { a.namespace = "other" },
		"the verb":       func(a *act) { a.verb = protocol.Reject },
		"the version":    func(a *act) { a.payload["version"] = "@1" },
		"the topic":      func(a *act) { a.payload["topic"] = "staging" },
		"the comment":    func(a *act) { a.payload["comment"] = "not tested" },
		"the request id": func(a *act) { a.payload["requestId"] = "r9" },
		"a field more":   func(a *act) { a.payload["to"] = []string{"web"} },
		"a field less":   func(a *act) { delete(a.payload, "comment") },
	} {
		t.Log("differs in " + what)
		other := approval("r1")
		change(&other)
		refused(approval("r1"), func() string { return boundTo(t, issuer, "alice@shop.dev", other, nil) }, "was issued for another act")
	}
	old := map[string]any{"iat": time.Now().Add(-6 * time.Minute).Unix()}
	refused(approval("r1"), func() string { return boundTo(t, issuer, "alice@shop.dev", approval("r1"), old) }, "more than 5m0s ago")

	token := boundTo(t, issuer, "alice@shop.dev", approval("r1"), nil)
	require.Contains(t, w.Act("web", protocol.Approve, approval("r1").with(t, token)), "1 of 2")
	require.Contains(t, w.Act("web", protocol.Approve, approval("r1").with(t, token)), "1 of 2", "a retry is answered as before")
	refused(approval("r2"), func() string { return token }, "was issued for another act")

	// A verb that demands no such token accepts one for this act, and none for another.
	rejection := act{w: w, service: "api", verb: protocol.Reject, payload: map[string]any{"version": "v1", "topic": "go-live", "requestId": "r3"}}
	other := approval("r3")
	refused(rejection, func() string { return boundTo(t, issuer, "bob@shop.dev", other, nil) }, "was issued for another act")

	// An issuer of CI takes no nonce, and lets a job choose the audience.
	for what, aud := range map[string]any{
		"another act":          idptest.Audience + "#" + other.nonce(t),
		"another one, too":     []string{idptest.Audience, idptest.Audience + "#" + other.nonce(t)},
		"this one, for others": "other#" + rejection.nonce(t),
	} {
		t.Log("an audience of " + what)
		why := "was issued for another act"
		if aud == "other#"+rejection.nonce(t) {
			why = "the token is for the audience"
		}
		refused(rejection, func() string { return boundTo(t, issuer, "bob@shop.dev", rejection, map[string]any{"aud": aud}) }, why)
	}
	audience := map[string]any{"aud": idptest.Audience + "#" + rejection.nonce(t), "nonce": ""}
	require.Contains(t, w.Act("api", protocol.Reject, rejection.with(t, boundTo(t, issuer, "bob@shop.dev", rejection, audience))), "rejected by bob@shop.dev")

	ci := approval("r4")
	w.Act("web", protocol.Approve, ci.with(t, issuer.TokenOf(t, "ci@shop.dev")))

	// One act on several services.
	both := act{w: w, service: "web", verb: protocol.Pause, receiver: protocol.ServiceID(w.App, "*"), payload: map[string]any{"requestId": "r5", "to": []string{"api", "web"}}}
	token = boundTo(t, issuer, "alice@shop.dev", both, nil)
	for _, service := range []string{"web", "api"} {
		w.Act(service, protocol.Pause, both.with(t, token))
	}
}
