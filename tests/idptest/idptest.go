// Package idptest is an OIDC issuer on the loopback address: discovery, keys, and tokens of whatever claims a test wants.
package idptest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
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
	Refuses string
	// Sessions: it has a page on which people log in, by name, and knows a browser that has logged in (OpenID Connect Core, 3.1.2).
	Sessions bool
	// Secret is that of its clients; empty: they are public.
	Secret string
	// Groups are those of people.
	Groups  map[string][]string
	given   int              // codes
	logins  map[string]login // by code
	refresh string           // the one that holds
}

// login is one by a browser that is under way.
type login struct{ challenge, nonce, client, who string }

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
	i := &Issuer{logins: map[string]login{}, key: jose.JSONWebKey{Key: key, KeyID: "k1", Algorithm: string(jose.ES256), Use: "sig"}}
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
	mux.HandleFunc("POST /authorize", i.enter)
	mux.HandleFunc("GET /end", func(w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: sessionCookie, Path: "/", MaxAge: -1})
		fmt.Fprintln(w, "You are logged out of the issuer.")
	})
	mux.HandleFunc("POST /device", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"device_code": "device", "user_code": "WXYZ", "verification_uri": i.URL + "/enter", "expires_in": 60, "interval": 1})
	})
	mux.HandleFunc("POST /token", i.grant)
	mux.HandleFunc("GET /job", i.job)
	i.Server = httptest.NewServer(mux)
	return i, nil
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a test that gets less than this fails
}

// sessionCookie has the name of who is logged in here.
const sessionCookie = "issuer-session"

// authorize sends a browser back with a code at once, if the issuer knows who sits there, or with why there is none. Else it asks.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	who := "alice@shop.dev"
	if i.Sessions {
		who = ""
		if c, err := r.Cookie(sessionCookie); err == nil && r.FormValue("prompt") != "login" {
			who = c.Value
		}
	}
	switch {
	case i.Refuses != "":
		i.back(w, r, url.Values{"error": {i.Refuses}})
	case who != "":
		i.back(w, r, url.Values{"code": {i.code(r, who)}})
	case r.FormValue("prompt") == "none":
		i.back(w, r, url.Values{"error": {"login_required"}})
	default:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<title>Issuer</title><h1>Who are you?</h1><form method="post"><input name="who" id="who"><button>Log in</button></form>`)
	}
}

// enter logs a person in, and sends the browser back.
func (i *Issuer) enter(w http.ResponseWriter, r *http.Request) {
	who := r.FormValue("who")
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: who, Path: "/", SameSite: http.SameSiteLaxMode, HttpOnly: true})
	i.back(w, r, url.Values{"code": {i.code(r, who)}})
}

func (i *Issuer) back(w http.ResponseWriter, r *http.Request, answer url.Values) {
	answer.Set("state", r.FormValue("state"))
	http.Redirect(w, r, r.FormValue("redirect_uri")+"?"+answer.Encode(), http.StatusFound)
}

// code returns a code for one token.
func (i *Issuer) code(r *http.Request, who string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	code := rand.Text()
	i.given++
	i.logins[code] = login{r.FormValue("code_challenge"), r.FormValue("nonce"), r.FormValue("client_id"), who}
	return code
}

// grant answers a token for a code with its verifier, for a device, or for what a login is renewed with, once.
func (i *Issuer) grant(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, secret, _ := r.BasicAuth()
	secret, _ = url.QueryUnescape(secret) // RFC 6749, 2.3.1
	if i.Secret != "" && cmp.Or(secret, r.FormValue("client_secret")) != i.Secret {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	var good bool
	of := login{who: "alice@shop.dev", client: Audience}
	switch r.FormValue("grant_type") {
	case "authorization_code":
		if of, good = i.logins[r.FormValue("code")]; good {
			good = base64.RawURLEncoding.EncodeToString(sum[:]) == of.challenge
			delete(i.logins, r.FormValue("code"))
		}
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
	own := map[string]any{"sub": "of " + of.who, "email": of.who, "email_verified": true, "azp": of.client, "aud": []string{Audience, of.client}}
	if groups := i.Groups[of.who]; groups != nil {
		own["groups"] = groups
	}
	if of.nonce != "" {
		own["nonce"] = of.nonce
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

// job answers a token for a job of CI, which chooses the audience, as the issuer of GitHub Actions does.
func (i *Issuer) job(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "bearer "+JobSecret {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	token, err := i.Sign(map[string]any{"sub": "repo:shop/web:ref:refs/heads/main", "aud": r.FormValue("audience")})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, map[string]string{"value": token})
}

// JobSecret lets a job of CI request tokens at /job.
const JobSecret = "of the job"

// Codes is how many codes it has given.
func (i *Issuer) Codes() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.given
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
