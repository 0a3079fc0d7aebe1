package codecserver_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/client/codecserver"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/tests/idptest"
)

const secret = "a secret that many know"

// encryptedBody returns a codec that encrypts, and a request body that it encrypted.
func encryptedBody(t *testing.T) (*codec.Codec, []byte) {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	t.Setenv("CODEC_KEY", base64.StdEncoding.EncodeToString(key))
	c, err := codec.Load("env:CODEC_KEY", "true")
	require.NoError(t, err)
	plain, err := converter.GetDefaultDataConverter().ToPayloads("canary")
	require.NoError(t, err)
	encrypted, err := c.Encode(plain.GetPayloads())
	require.NoError(t, err)
	body, err := json.Marshal(&commonpb.Payloads{Payloads: encrypted})
	require.NoError(t, err)
	return c, body
}

// testRequest is a request to the server.
type testRequest struct {
	method, path, host, origin, authorization string
}

func send(t *testing.T, h http.Handler, a testRequest, body []byte) (int, string, http.Header) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), a.method, "http://"+a.host+a.path, bytes.NewReader(body))
	r.Header.Set("Authorization", a.authorization)
	if a.origin != "" {
		r.Header.Set("Origin", a.origin)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	answer, err := io.ReadAll(w.Body)
	require.NoError(t, err)
	return w.Code, string(answer), w.Header()
}

// A payload cannot be read without the secret, under another name of the server, or from a page that is not listed.
func TestCodecServerRefuses_G5(t *testing.T) {
	c, body := encryptedBody(t)
	h, err := codecserver.New(codecserver.Options{
		Codec: c, Secret: secret, Origins: []string{"https://temporal.shop.dev"}, Hosts: []string{"codec.shop.dev"},
	})
	require.NoError(t, err)
	good := testRequest{http.MethodPost, "/decode", "127.0.0.1:8234", "", "Bearer " + secret}
	canary := base64.StdEncoding.EncodeToString([]byte(`"canary"`))
	for name, row := range map[string]struct {
		change func(*testRequest)
		code   int
	}{
		"valid":               {func(*testRequest) {}, http.StatusOK},
		"by an allowed host":  {func(a *testRequest) { a.host = "codec.shop.dev" }, http.StatusOK},
		"from a named origin": {func(a *testRequest) { a.origin = "https://temporal.shop.dev" }, http.StatusOK},
		"rebound":             {func(a *testRequest) { a.host = "rebound.example:8234" }, http.StatusMisdirectedRequest},
		"no token":            {func(a *testRequest) { a.authorization = "" }, http.StatusUnauthorized},
		"another token":       {func(a *testRequest) { a.authorization = "Bearer wrong" }, http.StatusUnauthorized},
		"not as a bearer":     {func(a *testRequest) { a.authorization = "Basic " + secret }, http.StatusUnauthorized},
		"from another origin": {func(a *testRequest) { a.origin = "https://evil.example" }, http.StatusForbidden},
		"from a null origin":  {func(a *testRequest) { a.origin = "null" }, http.StatusForbidden},
		"by GET":              {func(a *testRequest) { a.method = http.MethodGet }, http.StatusNotFound},
		"another path":        {func(a *testRequest) { a.path = "/x/decode" }, http.StatusNotFound},
	} {
		a := good
		row.change(&a)
		code, answer, _ := send(t, h, a, body)
		require.Equal(t, row.code, code, "%s: %s", name, answer)
		if code == http.StatusOK {
			require.Contains(t, answer, canary, name)
		} else {
			require.NotContains(t, answer, canary, name)
		}
	}
	code, _, header := send(t, h, testRequest{http.MethodOptions, "/decode", "localhost", "https://temporal.shop.dev", ""}, nil)
	require.Equal(t, http.StatusNoContent, code)
	require.Equal(t, "https://temporal.shop.dev", header.Get("Access-Control-Allow-Origin"))
	code, _, header = send(t, h, testRequest{http.MethodOptions, "/decode", "localhost", "https://evil.example", ""}, nil)
	require.Equal(t, http.StatusForbidden, code)
	require.Empty(t, header.Get("Access-Control-Allow-Origin"))
	code, answer, _ := send(t, h, good, bytes.Repeat([]byte(" "), 17<<20))
	require.Equal(t, http.StatusBadRequest, code, answer)
}

// A caller with a token of an authorized person may read; one with a token of another person may not.
func TestCodecServerVerifiesTokens_G5(t *testing.T) {
	c, body := encryptedBody(t)
	issuer := idptest.New(t)
	identity := entities.Identity{Issuer: issuer.URL, Audience: idptest.Audience}
	h, err := codecserver.New(codecserver.Options{Codec: c, Identity: identity, To: []string{"alice@shop.dev", "group:sre"}})
	require.NoError(t, err)
	for name, row := range map[string]struct {
		claims map[string]any
		code   int
	}{
		"by name":          {map[string]any{"sub": "1", "email": "alice@shop.dev", "email_verified": true}, http.StatusOK},
		"by group":         {map[string]any{"sub": "2", "groups": []string{"sre"}}, http.StatusOK},
		"another":          {map[string]any{"sub": "3", "email": "mallory@shop.dev", "email_verified": true}, http.StatusUnauthorized},
		"not verified":     {map[string]any{"sub": "4", "email": "alice@shop.dev"}, http.StatusUnauthorized},
		"another audience": {map[string]any{"sub": "2", "groups": []string{"sre"}, "aud": "other"}, http.StatusUnauthorized},
		"too old":          {map[string]any{"sub": "2", "groups": []string{"sre"}, "iat": time.Now().Add(-2 * time.Hour).Unix()}, http.StatusUnauthorized},
	} {
		code, answer, _ := send(t, h, testRequest{http.MethodPost, "/decode", "localhost", "", "Bearer " + issuer.Token(t, row.claims)}, body)
		require.Equal(t, row.code, code, "%s: %s", name, answer)
	}
}

func TestCodecServerRequiresKeyAndCallers(t *testing.T) {
	c, _ := encryptedBody(t)
	for want, o := range map[string]codecserver.Options{
		"no key to decrypt with; set CONVERGE_STORE_KEY":                                         {Codec: &codec.Codec{}, Secret: secret},
		"no caller is allowed; set a token issuer or a secret":                                   {Codec: c},
		"the secret has 5 bytes; expected at least 20":                                           {Codec: c, Secret: "short"},
		"an issuer requires an audience and the allowed people or groups":                        {Codec: c, Identity: entities.Identity{Issuer: "https://id", Audience: "x"}},
		`origin "*": expected https://HOST, as a browser names it`:                               {Codec: c, Secret: secret, Origins: []string{"*"}},
		`origin "https://temporal.shop.dev/": expected https://HOST, as a browser names it`:      {Codec: c, Secret: secret, Origins: []string{"https://temporal.shop.dev/"}},
		`origin "https://temporal.shop.dev/login": expected https://HOST, as a browser names it`: {Codec: c, Secret: secret, Origins: []string{"https://temporal.shop.dev/login"}},
	} {
		_, err := codecserver.New(o)
		require.EqualError(t, err, want)
	}
}
