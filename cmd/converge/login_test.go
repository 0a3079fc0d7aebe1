package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/idptest"
)

// newLoggedInConsole returns a console whose user has logged in.
func newLoggedInConsole(t *testing.T, issuer *idptest.Issuer, args ...string) *console {
	t.Helper()
	c := newBrowserConsole(t)
	require.Equal(t, 0, run(t.Context(), c.Factory, append([]string{"login", issuer.URL}, args...)), "%s", &c.err)
	require.Contains(t, c.err.String(), "logged in as alice@shop.dev")
	return c
}

// newBrowserConsole returns a console with a browser that visits the printed page.
func newBrowserConsole(t *testing.T) *console {
	t.Helper()
	c := newConsole(t, nil)
	c.Now = time.Now
	read, write := io.Pipe()
	c.Err = io.MultiWriter(&c.err, write)
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := read.Read(buffer)
			if err != nil {
				return
			}
			if page, ok := strings.CutPrefix(strings.TrimSpace(string(buffer[:n])), "open "); ok && !strings.Contains(page, " ") {
				if answer, err := http.Get(page); err == nil { //nolint:gosec // our own issuer
					_ = answer.Body.Close()
				}
			}
		}
	}()
	t.Cleanup(func() { _ = write.Close() })
	return c
}

// A login, with both methods, gives each verb its own token until it expires. Other users cannot read the login.
func TestLogin(t *testing.T) {
	for name, args := range map[string][]string{"browser": nil, "device": {"--device"}} {
		t.Run(name, func(t *testing.T) {
			issuer := idptest.New(t)
			c := newLoggedInConsole(t, issuer, args...)
			file, err := c.loginFile()
			require.NoError(t, err)
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

			first, second := c.newAct("").Token, c.newAct("").Token
			require.NoError(t, c.tokenErr)
			require.Len(t, strings.Split(first, "."), 3)
			require.NotEqual(t, first, second, "a token serves one request")
			kept, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NotContains(t, string(kept), second, "a used token is not kept")
			c.token = noToken
			require.Empty(t, c.newAct("").Token)
			c.token = ""

			issuer.Revoke()
			require.Equal(t, outcome.Error, run(t.Context(), c.Factory, []string{"pause", "shop/web"}))
			require.Contains(t, c.err.String(), "your login has ended (invalid_grant); log in again: converge login "+issuer.URL)

			require.Equal(t, 0, run(t.Context(), c.Factory, []string{"logout"}))
			require.NoFileExists(t, file)
			require.Empty(t, c.newAct("").Token)
			require.NoError(t, c.tokenErr)
			left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*login*"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// If the installation has no issuer of tokens, a login does not disturb: the verb is sent again without it, with a note. A token that
// the user gave explicitly is required, so its refusal is an error.
func TestLoginWithoutDeclaredIdentity(t *testing.T) {
	c := newLoggedInConsole(t, idptest.New(t), "--device")
	refusal := &connection.RefusedError{Reason: "this application declares " + protocol.NoIdentity}
	c.api = &fakeAPI{statuses: map[string][]any{"service/shop/web": {protocol.Status{}}}, refuse: []error{refusal}, answer: protocol.Answer{Message: "paused"}}
	c.Dial = func(context.Context, connection.Settings) (connection.API, error) { return c.api, nil }
	require.Equal(t, 0, run(t.Context(), c.Factory, []string{"pause", "shop/web", "--reason", "drill"}), "%s", &c.err)
	sent := c.api.updates
	require.Len(t, sent, 2)
	require.Contains(t, sent[0], `"token":"`)
	require.NotContains(t, sent[1], "token")
	require.Contains(t, sent[1], `"reason":"drill"`)
	require.Contains(t, c.err.String(), "service/shop/web declares no token issuer: sent as ")

	c.api, c.Factory.api = &fakeAPI{refuse: []error{refusal}}, nil
	require.Equal(t, outcome.Error, run(t.Context(), c.Factory, []string{"pause", "shop/web", "--token", "a.b.c"}))
	require.Len(t, c.api.updates, 1)
}

// A login without a refresh token serves one verb, and none after its expiry.
func TestLoginWithoutRefreshToken(t *testing.T) {
	issuer := idptest.New(t)
	issuer.NoRefresh = true
	c := newLoggedInConsole(t, issuer, "--device")
	require.Contains(t, c.err.String(), "the login is valid for one verb, until ")
	require.NotEmpty(t, c.authToken())
	require.Empty(t, c.authToken())
	require.EqualError(t, c.tokenErr, "your login was already used for a verb; log in again: converge login "+issuer.URL)

	c = newLoggedInConsole(t, issuer, "--device")
	c.Now = func() time.Time { return time.Now().Add(time.Hour) }
	require.Empty(t, c.authToken())
	require.ErrorContains(t, c.tokenErr, "your login expired at ")
}

// Concurrent verbs take one token each, although a refresh token is valid only once.
func TestConcurrentVerbsTakeATokenEach(t *testing.T) {
	c := newLoggedInConsole(t, idptest.New(t), "--device")
	const verbs = 8
	tokens := make([]string, verbs)
	var all sync.WaitGroup
	for n := range tokens {
		all.Go(func() {
			var err error
			tokens[n], err = c.loginToken(t.Context())
			assert.NoError(t, err)
		})
	}
	all.Wait()
	slices.Sort(tokens)
	require.NotEmpty(t, tokens[0])
	require.Len(t, slices.Compact(tokens), verbs)
}

// A killed command does not lock the login forever. A running command locks it, and the error names the lock.
func TestStaleLoginLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "login.json.lock")
	unlock, err := acquireLock(t.Context(), name)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = acquireLock(ctx, name)
	require.ErrorContains(t, err, "another command holds your login ("+name+")")
	unlock()
	require.NoFileExists(t, name)

	_, err = acquireLock(t.Context(), name)
	require.NoError(t, err)
	long := time.Now().Add(-staleLockAge - time.Second)
	require.NoError(t, os.Chtimes(name, long, long))
	unlock, err = acquireLock(t.Context(), name)
	require.NoError(t, err)
	unlock()
}

// A refusal by the issuer is reported at once, not after a timeout of minutes.
func TestRefusedLogin(t *testing.T) {
	issuer := idptest.New(t)
	issuer.Refuses = "access_denied"
	c := newBrowserConsole(t)
	require.Equal(t, outcome.Error, run(t.Context(), c.Factory, []string{"login", issuer.URL, "--timeout", "20s"}))
	require.Contains(t, c.err.String(), "login at "+issuer.URL+": it was refused: access_denied")
}

// A command that makes several requests uses no single-use token, and runs without any.
func TestAcceptanceTakesNoToken_G3(t *testing.T) {
	for token, refused := range map[string]bool{"x.y.z": true, noToken: false, "": false} {
		c := newConsole(t, nil)
		c.token = token
		o := &acceptanceOptions{f: c.Factory, versions: []string{"1", "2"}}
		require.Equal(t, refused, o.check() != nil, token)
	}
}

// With --sign the issuer signs one act: the token that is sent is for it, and the login stays as it is.
func TestSign(t *testing.T) {
	issuer := idptest.New(t)
	c := newLoggedInConsole(t, issuer)
	c.api = &fakeAPI{statuses: map[string][]any{"service/shop/web": {protocol.Status{}}}, answer: protocol.Answer{Message: "approved"}}
	c.Dial = func(context.Context, connection.Settings) (connection.API, error) { return c.api, nil }
	file, err := c.loginFile()
	require.NoError(t, err)
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 0, run(t.Context(), c.Factory, []string{"approve", "shop/web", "v9", "go-live", "--comment", "tested", "--sign"}), "%s", &c.err)
	require.Len(t, c.api.updates, 1)
	_, sent, found := strings.Cut(c.api.updates[0], " approve ")
	require.True(t, found, c.api.updates[0])
	sent = strings.Replace(sent, `"ID"`, `"`+c.api.requestIDs[0]+`"`, 1)
	var fields map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(sent), &fields))
	var token string
	require.NoError(t, json.Unmarshal(fields["token"], &token))
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	require.NoError(t, err)
	_, namespace := c.api.Temporal()
	nonce, err := protocol.Act{Namespace: namespace, Receiver: "service/shop/web", Verb: "approve", Request: json.RawMessage(sent)}.Nonce()
	require.NoError(t, err)
	require.Contains(t, string(claims), `"nonce":"`+nonce+`"`)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))

	issuer.Refuses = "access_denied"
	require.Equal(t, outcome.Error, run(t.Context(), c.Factory, []string{"approve", "shop/web", "v9", "go-live", "--sign"}))
	require.Contains(t, c.err.String(), "sign at "+issuer.URL+": it was refused: access_denied")
	require.Equal(t, 0, run(t.Context(), c.Factory, []string{"logout"}))
	require.Equal(t, outcome.Error, run(t.Context(), c.Factory, []string{"approve", "shop/web", "v9", "go-live", "--sign"}))
	require.Contains(t, c.err.String(), "expected before: converge login ISSUER")
	require.Len(t, c.api.updates, 1)
}

// A command that does not answer is given up with what it has started, and watching has no person who signs.
func TestSignCommandEnds(t *testing.T) {
	c := newConsole(t, nil)
	c.Env = func(name string) string { return map[string]string{"CONVERGE_SIGN_COMMAND": "sleep 600 | cat"}[name] }
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("no answer"))
	defer cancel()
	_, err := c.tokenFor(ctx, "converge-act-1.x", false)
	require.EqualError(t, err, "CONVERGE_SIGN_COMMAND: no answer")

	require.Equal(t, outcome.Error, run(t.Context(), c.Factory, []string{"config", "watch", t.TempDir(), "--sign"}))
	require.Contains(t, c.err.String(), "--sign has a person sign each publication")
}
