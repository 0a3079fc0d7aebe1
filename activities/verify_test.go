package activities

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// issuer is an identity provider on loopback: discovery and keys.
type issuer struct {
	*httptest.Server

	mu       sync.Mutex
	keys     []jose.JSONWebKey
	named    string // in its discovery document; empty: its URL
	down     map[string]bool
	requests map[string]int
}

func newIssuer(t *testing.T, keys ...jose.JSONWebKey) *issuer {
	t.Helper()
	i := &issuer{keys: keys, down: map[string]bool{}, requests: map[string]int{}}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.requests[r.URL.Path]++
	w.Header().Set("Content-Type", "application/json")
	var answer any
	switch {
	case i.down[r.URL.Path]:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case r.URL.Path == "/.well-known/openid-configuration":
		name := i.named
		if name == "" {
			name = i.URL
		}
		answer = map[string]any{"issuer": name, "jwks_uri": i.URL + "/keys"}
	default:
		set := jose.JSONWebKeySet{}
		for _, key := range i.keys {
			set.Keys = append(set.Keys, key.Public())
		}
		answer = set
	}
	_ = json.NewEncoder(w).Encode(answer) // a test with an incomplete answer fails
}

func (i *issuer) change(do func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	do()
}

func ecKey(t *testing.T, id string) jose.JSONWebKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"}
}

// sign returns a token with valid claims, except those in own.
func (i *issuer) sign(t *testing.T, key jose.JSONWebKey, own map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, nil)
	require.NoError(t, err)
	signed, err := signer.Sign(i.claims(t, own))
	require.NoError(t, err)
	token, err := signed.CompactSerialize()
	require.NoError(t, err)
	return token
}

func (i *issuer) claims(t *testing.T, own map[string]any) []byte {
	t.Helper()
	claims := map[string]any{
		"iss": i.URL, "aud": "converge", "sub": "u-1", "email": "alice@shop.dev", "email_verified": true, "groups": []string{"sre", "dev"},
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, own)
	data, err := json.Marshal(claims)
	require.NoError(t, err)
	return data
}

func (i *issuer) request(token string) protocol.VerifyRequest {
	return protocol.VerifyRequest{Identity: entities.Identity{Issuer: i.URL, Audience: "converge"}, Token: token, RequestID: "r"}
}

// A token proves the identity of the approver.
func TestVerify_A14(t *testing.T) {
	key := ecKey(t, "k1")
	i := newIssuer(t, key)
	a := newActivities(t, &server{})
	whoIs := func(r protocol.VerifyRequest) entities.Who {
		answer, _, err := run[protocol.VerifyAnswer](t, a.Verify, r)
		require.NoError(t, err)
		return answer.Who
	}
	alice := entities.Who{Name: "alice@shop.dev", Groups: []string{"sre", "dev"}, Proven: true, Subject: i.URL + " u-1"}
	require.Equal(t, alice, whoIs(i.request(i.sign(t, key, nil))))
	require.Equal(t, alice, whoIs(i.request(i.sign(t, key, map[string]any{"aud": []string{"other", "converge"}, "email_verified": true}))))
	require.Equal(t, map[string]int{"/.well-known/openid-configuration": 1, "/keys": 1}, i.requests, "keys are cached")

	require.Equal(t, "u-1", whoIs(i.request(i.sign(t, key, map[string]any{"email_verified": false}))).Name, "unverified address")
	require.Equal(t, "u-1", whoIs(i.request(i.sign(t, key, map[string]any{"email_verified": nil}))).Name, "no verification claim")
	require.Equal(t, "u-1", whoIs(i.request(i.sign(t, key, map[string]any{"email": ""}))).Name)
	require.Equal(t, []string{"sre"}, whoIs(i.request(i.sign(t, key, map[string]any{"groups": []string{"sre", "ѕre", "a\u200bb"}}))).Groups)
	var groups []string
	for n := range 203 {
		groups = append(groups, fmt.Sprint("g", n))
	}
	many := whoIs(i.request(i.sign(t, key, map[string]any{"groups": groups})))
	require.Len(t, many.Groups, 200)
	grants := []entities.Grant{{Verbs: []string{"approve"}, To: []string{"group:g202"}}}
	require.EqualError(t, entities.Authorize(grants, "approve", nil, many),
		"alice@shop.dev may not approve; allowed: group:g202; the token has 3 more groups than the 200 that count")
	named := i.request(i.sign(t, key, map[string]any{"login": "al", "team": "core"}))
	named.Identity.UserClaim, named.Identity.GroupsClaim = "login", "team"
	require.Equal(t, entities.Who{Name: "al", Groups: []string{"core"}, Proven: true, Subject: i.URL + " u-1"}, whoIs(named))

	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	second := jose.JSONWebKey{Key: rsaKey, KeyID: "k2", Algorithm: string(jose.RS256), Use: "sig"}
	i.change(func() { i.keys = append(i.keys, second) })
	require.Equal(t, alice, whoIs(i.request(i.sign(t, second, nil))), "new keys are fetched")
}

// Without discovery, the keys are read from the URL in the identity.
func TestVerifyByKeysURL_A14(t *testing.T) {
	key := ecKey(t, "k1")
	i := newIssuer(t, key)
	i.down["/.well-known/openid-configuration"] = true
	r := i.request(i.sign(t, key, nil))
	r.Identity.KeysURL = i.URL + "/elsewhere"
	answer, _, err := run[protocol.VerifyAnswer](t, newActivities(t, &server{}).Verify, r)
	require.NoError(t, err)
	require.Equal(t, "alice@shop.dev", answer.Who.Name)
	require.Equal(t, map[string]int{"/elsewhere": 1}, i.requests)
}

// A token that expired while its request waited, for an unavailable issuer or a workflow that had ended, is valid if it was valid on
// arrival. Its use is recorded for a day, so that it is rejected afterwards.
func TestVerifyUsesTheArrivalTime_G3(t *testing.T) {
	key := ecKey(t, "k1")
	i := newIssuer(t, key)
	a := newActivities(t, &server{})
	now := time.Now()
	token := func(issued, expires time.Duration) protocol.VerifyRequest {
		return i.request(i.sign(t, key, map[string]any{"jti": rand.Text(), "iat": now.Add(issued).Unix(), "exp": now.Add(expires).Unix()}))
	}
	waited := token(-3*time.Hour, -2*time.Hour)
	waited.At = now.Add(-150 * time.Minute)
	answer, _, err := run[protocol.VerifyAnswer](t, a.Verify, waited)
	require.NoError(t, err)
	require.Equal(t, "alice@shop.dev", answer.Who.Name)
	waited.RequestID = "another"
	_, _, err = run[protocol.VerifyAnswer](t, a.Verify, waited)
	requireRefused(t, err, "the token was used for another request")

	for name, c := range map[string]struct {
		issued, expires, came time.Duration
		text                  string
	}{
		"expired before arrival": {-3 * time.Hour, -2 * time.Hour, -time.Hour, "the token expired"},
		"issued after arrival":   {-time.Minute, time.Hour, -time.Hour, "is in the future"},
		"arrived too long ago":   {-49 * time.Hour, -48 * time.Hour, -48*time.Hour - time.Minute, "the token expired"},
		"arrives in the future":  {-3 * time.Hour, -2 * time.Hour, time.Hour, "the token expired"},
	} {
		t.Run(name, func(t *testing.T) {
			r := token(c.issued, c.expires)
			r.At = now.Add(c.came)
			_, _, err := run[protocol.VerifyAnswer](t, a.Verify, r)
			requireRefused(t, err, c.text)
		})
	}
}

// Invalid tokens are rejected, each with its reason.
func TestVerifyRefuses_A14(t *testing.T) {
	key := ecKey(t, "k1")
	i := newIssuer(t, key)
	a := newActivities(t, &server{})
	past := time.Now().Add(-time.Second).Unix()
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	good := i.sign(t, key, nil)
	parts := strings.Split(good, ".")
	shared := jose.JSONWebKey{Key: []byte(strings.Repeat("k", 32)), KeyID: "k1", Algorithm: string(jose.HS256)}
	for name, c := range map[string]struct{ token, text string }{
		"empty":            {"", "is not an ID token"},
		"no JWT":           {"hello", "is not an ID token"},
		"no JSON":          {"a.b.c", "is not an ID token"},
		"huge":             {strings.Repeat("a", 20000) + ".b.c", "is not an ID token"},
		"expired":          {i.sign(t, key, map[string]any{"exp": past}), "the token expired at " + time.Unix(past, 0).UTC().Format(time.RFC3339)},
		"too old":          {i.sign(t, key, map[string]any{"iat": time.Now().Add(-61 * time.Minute).Unix()}), "; the maximum age is 1h0m0s"},
		"no issue time":    {i.sign(t, key, map[string]any{"iat": 0}), "expected the claim iat"},
		"issued tomorrow":  {i.sign(t, key, map[string]any{"iat": time.Now().Add(24 * time.Hour).Unix()}), "which is in the future"},
		"never expires":    {i.sign(t, key, map[string]any{"exp": nil}), "no expiry time"},
		"not yet":          {i.sign(t, key, map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), "not before"},
		"other issuer":     {i.sign(t, key, map[string]any{"iss": "https://evil.example"}), `is issued by "https://evil.example", expected "` + i.URL + `"`},
		"other audience":   {i.sign(t, key, map[string]any{"aud": "another"}), `is for the audience "another", expected "converge"`},
		"no audience":      {i.sign(t, key, map[string]any{"aud": nil}), "is for the audience null"},
		"alg none":         {part(`{"alg":"none"}`) + "." + parts[1] + ".", `is signed with "none"`},
		"alg None":         {part(`{"alg":"None"}`) + "." + parts[1] + "." + parts[2], `is signed with "None"`},
		"a shared secret":  {i.sign(t, shared, nil), `is signed with "HS256"`},
		"forged claims":    {parts[0] + "." + part(string(i.claims(t, map[string]any{"email": "root@shop.dev"}))) + "." + parts[2], "signature is not valid"},
		"forged signature": {parts[0] + "." + parts[1] + "." + part("nonsense"), "signature is not valid"},
		"another's key":    {i.sign(t, ecKey(t, "k1"), nil), "signature is not valid"},
		"an unknown key":   {i.sign(t, ecKey(t, "k9"), nil), "signature is not valid"},
		"no subject":       {i.sign(t, key, map[string]any{"sub": nil}), "does not identify its holder: expected the claim sub"},
		"looks like alice": {i.sign(t, key, map[string]any{"email": "аlice@shop.dev"}), "has letters of Cyrillic and of Latin"},
		"hidden letters":   {i.sign(t, key, map[string]any{"email": "alice\u200b@shop.dev"}), "invisible character"},
		"too long a name":  {i.sign(t, key, map[string]any{"email": strings.Repeat("a", 300)}), "does not name its holder"},
	} {
		t.Run(name, func(t *testing.T) {
			answer, _, err := run[protocol.VerifyAnswer](t, a.Verify, i.request(c.token))
			requireRefused(t, err, c.text)
			require.Zero(t, answer)
		})
	}
	r := i.request(good)
	r.Identity.Audience = ""
	_, _, err := run[protocol.VerifyAnswer](t, a.Verify, r)
	requireRefused(t, err, "names no issuer or no audience")
	r = i.request(i.sign(t, key, map[string]any{"iat": time.Now().Add(-time.Minute).Unix()}))
	r.Identity.MaxAge = 30 * time.Second
	_, _, err = run[protocol.VerifyAnswer](t, a.Verify, r)
	requireRefused(t, err, "; the maximum age is 30s")
	r = i.request(i.sign(t, key, map[string]any{"email_verified": false}))
	r.Identity.UserClaim = "email"
	_, _, err = run[protocol.VerifyAnswer](t, a.Verify, r)
	requireRefused(t, err, "the token's email is not accepted as a name: its issuer has not verified it")
	r = i.request(good)
	r.RequestID = ""
	_, _, err = run[protocol.VerifyAnswer](t, a.Verify, r)
	requireRefused(t, err, "has no request id")
}

// A token is valid for one request among all workers with the same store. Without the store it is valid for none, unless the request cannot
// wait.
func TestATokenServesOneRequest(t *testing.T) {
	key := ecKey(t, "k1")
	i := newIssuer(t, key)
	a := newActivities(t, &server{})
	serves := func(r protocol.VerifyRequest, id, of string) error {
		r.RequestID, r.RequestDigest = id, of
		_, _, err := run[protocol.VerifyAnswer](t, a.Verify, r)
		return err
	}
	first := i.request(i.sign(t, key, nil))
	require.NoError(t, serves(first, "r1", "approve v1"))
	require.NoError(t, serves(first, "r1", "approve v1"), "retry")
	requireRefused(t, serves(first, "r2", "approve v1"), "the token was used for another request at ")
	requireRefused(t, serves(first, "r1", "approve v2"), "the token was used for another request at ")
	require.NoError(t, serves(i.request(i.sign(t, key, map[string]any{"jti": "another"})), "r2", "approve v1"))

	folder := filepath.Join(a.Store.URL(), "tokens")
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.WriteFile(folder, nil, 0o600)) // nothing can be written there
	err := applicationError(t, serves(i.request(i.sign(t, key, map[string]any{"jti": "third"})), "r3", ""))
	require.Equal(t, protocol.ErrStore, err.Type())
	urgent := i.request(i.sign(t, key, map[string]any{"jti": "fourth"}))
	urgent.Urgent = true
	require.NoError(t, serves(urgent, "r4", ""))
}

// The use of a token is recorded for as long as the token may be valid, not until its expiry, which may be never.
func TestTokenUseIsKeptWhileTheTokenIsValid(t *testing.T) {
	key := ecKey(t, "k1")
	i := newIssuer(t, key)
	a := newActivities(t, &server{})
	for _, expires := range []time.Time{time.Now().AddDate(10, 0, 0), time.Now().AddDate(9000, 0, 0)} {
		_, _, err := run[protocol.VerifyAnswer](t, a.Verify, i.request(i.sign(t, key, map[string]any{"exp": expires.Unix()})))
		require.NoError(t, err)
	}
	days, err := os.ReadDir(filepath.Join(a.Store.URL(), "tokens"))
	require.NoError(t, err)
	for _, day := range days {
		at, err := time.Parse(time.DateOnly, day.Name())
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(entities.MaxTokenAge), at, 25*time.Hour)
	}
	require.NotEmpty(t, days)
}

// It is known on another day too, however late the token expires.
func TestATokenServesOneRequestAcrossMidnight_G3(t *testing.T) {
	key := ecKey(t, "k1")
	i := newIssuer(t, key)
	a := newActivities(t, &server{})
	midnight := time.Now().UTC().Truncate(24 * time.Hour)
	token := i.sign(t, key, map[string]any{"iat": midnight.Add(-20 * time.Minute).Unix(), "exp": midnight.AddDate(0, 1, 0).Unix()})
	serves := func(request string, now time.Time) error {
		r := i.request(token)
		r.RequestID = request
		_, _, err := run[protocol.VerifyAnswer](t, func(ctx context.Context, r protocol.VerifyRequest) (protocol.VerifyAnswer, error) {
			return a.verify(ctx, r, now)
		}, r)
		return err
	}
	require.NoError(t, serves("r1", midnight.Add(-10*time.Minute)))
	requireRefused(t, serves("r2", midnight.Add(10*time.Minute)), "the token was used for another request")
}

// A revoked key is not trusted for long.
func TestVerifyAfterKeysRotated_A14(t *testing.T) {
	old, key := ecKey(t, "old"), ecKey(t, "new")
	i := newIssuer(t, old)
	a := newActivities(t, &server{})
	// Concurrent callers share one fetch of the keys, so its result may be visible a moment later.
	requireSoon := func(token, refusal string) {
		t.Helper()
		require.Eventually(t, func() bool {
			_, _, err := run[protocol.VerifyAnswer](t, a.Verify, i.request(token))
			return err == nil && refusal == "" || err != nil && refusal != "" && strings.Contains(err.Error(), refusal)
		}, time.Minute, time.Millisecond)
	}
	const accepted = ""
	token := i.sign(t, old, nil)
	requireSoon(token, accepted)
	i.change(func() { i.keys = []jose.JSONWebKey{key} })
	requireSoon(i.sign(t, key, nil), accepted)
	requireSoon(token, "revoked the key that signed it")

	i.change(func() { i.keys = []jose.JSONWebKey{old} })
	requireSoon(token, accepted)
	i.change(func() { i.keys = nil })
	for name, k := range a.issuers.known { // the cached keys expire
		k.until = time.Now().Add(-time.Second)
		a.issuers.known[name] = k
	}
	requireSoon(token, "signature is not valid")
}

// An unreachable issuer does not invalidate a token: the error is retryable.
func TestVerifyWithoutTheIssuer(t *testing.T) {
	key := ecKey(t, "k1")
	i := newIssuer(t, key)
	a := newActivities(t, &server{})
	for _, path := range []string{"/.well-known/openid-configuration", "/keys"} {
		i.change(func() { i.down = map[string]bool{path: true} })
		_, _, err := run[protocol.VerifyAnswer](t, a.Verify, i.request(i.sign(t, key, nil)))
		app := applicationError(t, err)
		require.Equal(t, protocol.ErrIssuer, app.Type(), path)
		require.False(t, app.NonRetryable())
		require.Contains(t, app.Message(), "issuer "+i.URL+" is unreachable")
	}
	i.change(func() { i.down = nil })
	require.Eventually(t, func() bool { // a call at the end of a fetch shares its result
		_, _, err := run[protocol.VerifyAnswer](t, a.Verify, i.request(i.sign(t, key, nil)))
		return err == nil
	}, time.Minute, time.Millisecond)

	other := newIssuer(t, key)
	other.named = "https://login.example"
	_, _, err := run[protocol.VerifyAnswer](t, a.Verify, other.request(other.sign(t, key, nil)))
	requireRefused(t, err, "has another name")

	down := newIssuer(t, key)
	token := down.sign(t, key, nil)
	down.Close()
	_, _, err = run[protocol.VerifyAnswer](t, a.Verify, down.request(token))
	require.Equal(t, protocol.ErrIssuer, applicationError(t, err).Type())
}
