package story

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// site is a web server on the loopback address: whatever a story's checks ask, its webhooks tell, and an issuer of tokens.
// It answers 200 unless a story says otherwise.
type site struct {
	*httptest.Server
	key, other jose.JSONWebKey // other is not the issuer's

	mu      sync.Mutex
	answers map[string]answer // by path
	posted  map[string][]string
}

type answer struct {
	status int
	body   string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{answers: map[string]answer{}, posted: map[string][]string{}, key: newKey(t), other: newKey(t)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func newKey(t *testing.T) jose.JSONWebKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return jose.JSONWebKey{Key: key, KeyID: "k1", Algorithm: string(jose.ES256), Use: "sig"}
}

// ServeHTTP implements http.Handler.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		reply(w, map[string]any{"issuer": s.URL, "jwks_uri": s.URL + "/keys"})
		return
	case "/keys":
		reply(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{s.key.Public()}})
		return
	}
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			s.posted[r.URL.Path] = append(s.posted[r.URL.Path], string(body))
		}
	}
	a, set := s.answers[r.URL.Path]
	if !set {
		a.status = http.StatusOK
	}
	if a.status == 0 { // nobody answers
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body) // a story that needs it sees what is missing
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a story that needs it sees what is missing
}

func (s *site) set(path string, status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[path] = answer{status, body}
}

func (s *site) posts(path string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.posted[path])
}

// sign makes a token for the audience converge that holds for an hour, of claims given. Two of them say how it is bad:
// expired, and forged, which is signed with another key.
func (s *site) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": s.URL, "aud": "converge", "jti": rand.Text(), "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	if email, ok := claims["email"]; ok {
		all["sub"], all["email_verified"] = email, true
	}
	key := s.key
	for name, value := range claims {
		switch name {
		case "expired":
			all["exp"] = time.Now().Add(-time.Minute).Unix()
		case "forged":
			key = s.other
		default:
			all[name] = value
		}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	require.NoError(t, err)
	raw, err := json.Marshal(all)
	require.NoError(t, err)
	signed, err := signer.Sign(raw)
	require.NoError(t, err)
	token, err := signed.CompactSerialize()
	require.NoError(t, err)
	return token
}
