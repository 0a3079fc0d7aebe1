// Package idptest is an OIDC issuer on the loopback address: discovery, keys, and tokens of whatever claims a test wants.
package idptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// Audience is whom its tokens are for.
const Audience = "converge"

// Issuer issues tokens. Its URL is its name.
type Issuer struct {
	*httptest.Server
	key jose.JSONWebKey

	mu sync.Mutex
	// NoRefresh: it gives nothing to renew a login with.
	NoRefresh bool
	// Refuses is why nobody is logged in by a browser; empty: alice is.
	Refuses   string
	challenge string // of the login by a browser that is under way
	nonce     string
	refresh   string // the one that holds
}

// New starts an issuer that ends with the test.
func New(t *testing.T) *Issuer {
	t.Helper()
	i, err := Start()
	require.NoError(t, err)
	t.Cleanup(i.Close)
	return i
}

// Start starts an issuer, for programs that are no tests; Close ends it.
func Start() (*Issuer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	i := &Issuer{key: jose.JSONWebKey{Key: key, KeyID: "k1", Algorithm: string(jose.ES256), Use: "sig"}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"device_authorization_endpoint": i.URL + "/device", "id_token_signing_alg_values_supported": []string{string(jose.ES256)},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{i.key.Public()}})
	})
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /device", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"device_code": "device", "user_code": "WXYZ", "verification_uri": i.URL + "/enter", "expires_in": 60, "interval": 1})
	})
	mux.HandleFunc("POST /token", i.grant)
	i.Server = httptest.NewServer(mux)
	return i, nil
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a test that gets less than this fails
}

// authorize sends a browser back with a code at once, since who sits there is alice, or with why there is none.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.challenge, i.nonce = r.FormValue("code_challenge"), r.FormValue("nonce")
	i.mu.Unlock()
	back := url.Values{"code": {"code"}, "state": {r.FormValue("state")}}
	if i.Refuses != "" {
		back = url.Values{"error": {i.Refuses}, "state": back["state"]}
	}
	http.Redirect(w, r, r.FormValue("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// grant answers a token for a code with its verifier, for a device, or for what a login is renewed with, once.
func (i *Issuer) grant(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	var good bool
	switch r.FormValue("grant_type") {
	case "authorization_code":
		good = r.FormValue("code") == "code" && base64.RawURLEncoding.EncodeToString(sum[:]) == i.challenge
	case "refresh_token":
		good = i.refresh != "" && r.FormValue("refresh_token") == i.refresh
	default:
		good = r.FormValue("device_code") == "device"
	}
	if !good {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		answer(w, map[string]any{"error": "invalid_grant"})
		return
	}
	own := map[string]any{"sub": "of alice", "email": "alice@shop.dev", "email_verified": true}
	if i.nonce != "" {
		own["nonce"] = i.nonce
	}
	token, err := i.Sign(own)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	all := map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": token}
	if i.refresh = rand.Text(); !i.NoRefresh {
		all["refresh_token"] = i.refresh
	}
	answer(w, all)
}

// Revoke ends all logins.
func (i *Issuer) Revoke() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refresh = ""
}

// Token is one that holds for five minutes from now on, like no other before it; own claims stand over those of every token.
func (i *Issuer) Token(t *testing.T, own map[string]any) string {
	t.Helper()
	token, err := i.Sign(own)
	require.NoError(t, err)
	return token
}

// Sign is Token for programs that are no tests.
func (i *Issuer) Sign(own map[string]any) (string, error) {
	claims := map[string]any{
		"iss": i.URL, "aud": Audience, "sub": "u-1", "jti": rand.Text(),
		"iat": time.Now().Unix(), "exp": time.Now().Add(5 * time.Minute).Unix(),
	}
	maps.Copy(claims, own)
	raw, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, nil)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(raw)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// TokenOf is Token of a person whose address the issuer has verified, and of groups.
func (i *Issuer) TokenOf(t *testing.T, email string, groups ...string) string {
	t.Helper()
	return i.Token(t, map[string]any{"sub": "of " + email, "email": email, "email_verified": true, "groups": groups})
}
