// Package idptest is an OIDC issuer on the loopback address: discovery, keys, and tokens of whatever claims a test wants.
package idptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
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
}

// New starts an issuer that ends with the test.
func New(t *testing.T) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	i := &Issuer{key: jose.JSONWebKey{Key: key, KeyID: "k1", Algorithm: string(jose.ES256), Use: "sig"}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{i.key.Public()}})
	})
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a test that gets less than this fails
}

// Token is one that holds for five minutes from now on, like no other before it; own claims stand over those of every token.
func (i *Issuer) Token(t *testing.T, own map[string]any) string {
	t.Helper()
	claims := map[string]any{
		"iss": i.URL, "aud": Audience, "sub": "u-1", "jti": rand.Text(),
		"iat": time.Now().Unix(), "exp": time.Now().Add(5 * time.Minute).Unix(),
	}
	maps.Copy(claims, own)
	raw, err := json.Marshal(claims)
	require.NoError(t, err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: i.key}, nil)
	require.NoError(t, err)
	signed, err := signer.Sign(raw)
	require.NoError(t, err)
	token, err := signed.CompactSerialize()
	require.NoError(t, err)
	return token
}

// TokenOf is Token of a person whose address the issuer has verified, and of groups.
func (i *Issuer) TokenOf(t *testing.T, email string, groups ...string) string {
	t.Helper()
	return i.Token(t, map[string]any{"sub": "of " + email, "email": email, "email_verified": true, "groups": groups})
}
