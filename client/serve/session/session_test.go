package session

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/tests/idptest"
)

// site is a server on which people sign in, and the browser of one of them.
type site struct {
	t       *testing.T
	issuer  *idptest.Issuer
	now     time.Time
	url     string
	browser *http.Client
	signed  []Signed
}

func newSite(t *testing.T) *site {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	s := &site{t: t, issuer: idptest.New(t), now: time.Now(), browser: &http.Client{Jar: jar}}
	sessions, err := New(Options{Issuer: s.issuer.URL, ClientID: "board", Audience: idptest.Audience, Keys: RandomKeys(), Now: func() time.Time { return s.now }})
	require.NoError(t, err)
	mux := http.NewServeMux()
	sessions.Mount(mux, Pages{
		Finish: func(w http.ResponseWriter, _ *http.Request, signed Signed) {
			s.signed = append(s.signed, signed)
			fmt.Fprint(w, "signed ", signed.Refused)
		},
		Problem: func(w http.ResponseWriter, _ *http.Request, status int, text string) { http.Error(w, text, status) },
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		who, known := From(r.Context())
		fmt.Fprintln(w, r.URL.RequestURI(), who.Name, known, len(who.Groups), who.MoreGroups)
	})
	mux.HandleFunc("POST /act/", func(w http.ResponseWriter, r *http.Request) {
		if err := sessions.Sign(w, r, Act{Nonce: "converge-act-1.x", Data: []byte(r.FormValue("data"))}); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	server := httptest.NewServer(sessions.Require(mux))
	t.Cleanup(server.Close)
	s.url = server.URL
	sessions.Base, err = url.Parse(server.URL)
	require.NoError(t, err)
	return s
}

// request sends a request of the browser, follows where it leads, and returns the answer.
func (s *site) request(method, path, body string, headers ...string) (status int, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for n := 0; n < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	answer, err := s.browser.Do(r)
	require.NoError(s.t, err)
	data, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Body.Close())
	return answer.StatusCode, strings.TrimSpace(string(data))
}

// A link leads through the sign-in to its page. A script and a program get a problem, and are not led anywhere.
func TestLinkLeadsThroughTheSignIn(t *testing.T) {
	s := newSite(t)
	status, _ := s.request(http.MethodGet, "/services?status=FAILED", "", "Sec-Fetch-Mode", "cors")
	require.Equal(t, http.StatusUnauthorized, status, "a page that reads itself again")
	status, text := s.request(http.MethodGet, "/api/v1/services", "")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, text, `"code":"unauthenticated"`)
	require.Contains(t, text, "expected a sign-in at")
	for _, path := range []string{"/healthz", "/static/board.css", "/api/v1/openapi.json"} {
		status, _ = s.request(http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, status, path)
	}
	local := s.url
	s.url = strings.Replace(local, "127.0.0.1", "localhost", 1)
	_, text = s.request(http.MethodGet, "/services?status=FAILED", "")
	require.Equal(t, "/services?status=FAILED alice@shop.dev true 0 0", text, "by another name of this machine")
	s.url = local
	s.request(http.MethodPost, "/logout", "")
	codes := s.issuer.Codes()
	_, text = s.request(http.MethodGet, "/services?status=FAILED&x=%2F", "")
	require.Equal(t, "/services?status=FAILED&x=%2F alice@shop.dev true 0 0", text)
	require.Equal(t, codes+1, s.issuer.Codes())
	_, text = s.request(http.MethodGet, "/api/v1/services", "")
	require.Contains(t, text, "alice@shop.dev true", "the page's own requests")

	s.now = s.now.Add(idle - time.Minute)
	_, text = s.request(http.MethodGet, "/a", "")
	require.Contains(t, text, "alice@shop.dev true")
	s.now = s.now.Add(idle - time.Minute)
	_, text = s.request(http.MethodGet, "/a", "")
	require.Contains(t, text, "alice@shop.dev true", "with requests a person stays signed in")
	require.Equal(t, codes+1, s.issuer.Codes())
	s.now = s.now.Add(idle + time.Minute)
	status, _ = s.request(http.MethodGet, "/a", "", "Sec-Fetch-Mode", "cors")
	require.Equal(t, http.StatusUnauthorized, status, "after a time without a request")
}

// In all, a session ends after a while, however much its person looks.
func TestSessionEnds(t *testing.T) {
	s := newSite(t)
	s.request(http.MethodGet, "/", "")
	for range int(longest / time.Hour) {
		s.now = s.now.Add(time.Hour)
		s.request(http.MethodGet, "/", "", "Sec-Fetch-Mode", "navigate")
	}
	require.Equal(t, 2, s.issuer.Codes())
	status, text := s.request(http.MethodPost, "/logout", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "signed out")
	status, _ = s.request(http.MethodGet, "/", "", "Sec-Fetch-Mode", "cors")
	require.Equal(t, http.StatusUnauthorized, status)
}

// A person with so many groups that no cookie keeps them is known with fewer.
func TestManyGroups(t *testing.T) {
	s := newSite(t)
	var groups []string
	for n := range 200 {
		groups = append(groups, fmt.Sprintf("%x", sha256.Sum256([]byte{byte(n)}))[:40])
	}
	s.issuer.Groups = map[string][]string{"alice@shop.dev": groups[:40]}
	_, text := s.request(http.MethodGet, "/", "")
	require.Equal(t, "/ alice@shop.dev true 40 0", text)
	s.issuer.Groups["alice@shop.dev"] = groups
	s.request(http.MethodPost, "/logout", "")
	_, text = s.request(http.MethodGet, "/", "")
	require.Equal(t, "/ alice@shop.dev true 100 100", text)
}

// A program sends a token of the issuer; one for another audience is refused with the reason.
func TestProgramsSendTokens(t *testing.T) {
	s := newSite(t)
	_, text := s.request(http.MethodGet, "/api/v1/x", "", "Authorization", "bearer "+s.issuer.TokenOf(t, "ci@shop.dev", "ci"))
	require.Equal(t, "/api/v1/x ci@shop.dev true 1 0", text)
	status, text := s.request(http.MethodGet, "/api/v1/x", "", "Authorization", "Bearer "+s.issuer.Token(t, map[string]any{"aud": "another"}))
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, text, "is for the audience")
	status, text = s.request(http.MethodGet, "/api/v1/x", "", "Authorization", "Bearer "+s.issuer.Token(t, map[string]any{"aud": idptest.Audience + "#converge-act-1.x"}))
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, text, "the token was issued for one act")
	status, _ = s.request(http.MethodGet, "/api/v1/x", "", "Authorization", "Bearer "+idptest.New(t).TokenOf(t, "ci@shop.dev"))
	require.Equal(t, http.StatusUnauthorized, status)
}

// An act goes to the issuer and comes back with a token for it, once; one that does not fit a cookie is refused before.
func TestSign(t *testing.T) {
	s := newSite(t)
	_, text := s.request(http.MethodPost, "/act/approve", "data=it")
	require.Equal(t, "signed", text)
	require.Len(t, s.signed, 1)
	require.Equal(t, "it", string(s.signed[0].Data))
	require.Equal(t, "alice@shop.dev", s.signed[0].Who.Name)
	require.NotEmpty(t, s.signed[0].Token)
	var noise strings.Builder // it cannot be compressed
	for n := range 100 {
		fmt.Fprintf(&noise, "%x", sha256.Sum256([]byte{byte(n)}))
	}
	status, text := s.request(http.MethodPost, "/act/approve", "data="+noise.String())
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, text, "too large")

	s.issuer.Refuses = "access_denied"
	_, text = s.request(http.MethodPost, "/act/approve", "data=it")
	require.Equal(t, "signed it was not signed: the issuer refused: access_denied", text)
	require.Empty(t, s.signed[1].Token)
}

// An issuer that would have to ask is led to ask, once, with the same act.
func TestIssuerThatHasForgotten(t *testing.T) {
	s := newSite(t)
	s.request(http.MethodGet, "/", "")
	s.issuer.Sessions = true
	_, text := s.request(http.MethodPost, "/act/approve", "data=it")
	require.Contains(t, text, "Who are you?")
	require.Empty(t, s.signed)
}

// An answer of the issuer that this browser has not requested, or has used, does nothing.
func TestForeignAnswers(t *testing.T) {
	s := newSite(t)
	for _, path := range []string{"/login/done", "/login/done?state=&code=x", "/login/done?state=ABC&code=x", "/login/done?error=access_denied"} {
		status, text := s.request(http.MethodGet, path, "")
		require.Equal(t, http.StatusBadRequest, status, path)
		require.Contains(t, text, "Nothing was done")
	}
	var visited string
	s.browser.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == donePath {
			visited = r.URL.RequestURI()
		}
		return nil
	}
	s.request(http.MethodPost, "/act/approve", "data=it")
	require.Len(t, s.signed, 1)
	status, _ := s.request(http.MethodGet, visited, "")
	require.Equal(t, http.StatusBadRequest, status, "again")
	require.Len(t, s.signed, 1)
}

func TestLocalPath(t *testing.T) {
	for text, want := range map[string]string{
		"/services?a=b": "/services?a=b", "": "/", "https://evil.dev/": "/", "//evil.dev": "/", "/\\evil.dev": "/", "javascript:alert(1)": "/",
		"/login?return_to=/": "/", "services": "/", "/a\r\nSet-Cookie: x": "/", "https:/evil.dev": "/", "/%2F/evil.dev": "/",
	} {
		require.Equal(t, want, localPath(text), text)
	}
}

func TestKeys(t *testing.T) {
	old, err := ParseKeys([]byte(strings.Repeat("a", 32) + "\n"))
	require.NoError(t, err)
	rotated, err := ParseKeys([]byte(strings.Repeat("b", 32) + "\n\n" + strings.Repeat("a", 32)))
	require.NoError(t, err)
	sealed, err := old.seal("session", entities.Who{Name: "alice"})
	require.NoError(t, err)
	var who entities.Who
	require.True(t, rotated.open("session", sealed, &who), "sealed before the rotation")
	require.Equal(t, "alice", who.Name)
	require.False(t, rotated.open("flow", sealed, &who), "of another kind")
	require.False(t, rotated[:1].open("session", sealed, &who))
	for n := range sealed {
		other := []byte(sealed)
		if other[n]++; other[n] == 'z'+1 {
			other[n] = 'A'
		}
		if n < len(sealed)-1 { // the last character has bits that say nothing
			require.False(t, old.open("session", string(other), &who), n)
		}
	}
	for text, want := range map[string]string{"": "there is no secret", "\n \n": "there is no secret", "short": "line 1 has 5 bytes; expected a secret of at least 32"} {
		_, err := ParseKeys([]byte(text))
		require.ErrorContains(t, err, want)
	}
}
