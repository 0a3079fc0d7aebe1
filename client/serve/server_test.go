package serve

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// started serves some routes until the test ends, and returns its address.
func started(t *testing.T, o Options) *Server {
	t.Helper()
	o.Listen, o.Log = "127.0.0.1:0", slog.New(slog.DiscardHandler)
	if o.Mount == nil {
		o.Mount = func(mux *http.ServeMux, _ *url.URL, _ <-chan struct{}) http.Handler {
			mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
			mux.HandleFunc("/panic", func(http.ResponseWriter, *http.Request) { panic("a fault") })
			mux.HandleFunc("/body", func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
				}
			})
			return mux
		}
	}
	if o.Ready == nil {
		o.Ready = func(context.Context) error { return nil }
	}
	s, err := Listen(t.Context(), o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

func ask(t *testing.T, method, url, body string, header ...string) (status int, answer string, h http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for n := 0; n < len(header); n += 2 {
		if r.Header.Set(header[n], header[n+1]); header[n] == "Host" {
			r.Host = header[n+1]
		}
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(data), response.Header
}

// Without proof of identity the server listens on loopback only, unless that was allowed.
func TestServesAnonymousCallersOnLoopbackOnly(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		_, err := Listen(t.Context(), Options{Listen: listen})
		require.ErrorContains(t, err, "expected 127.0.0.1:PORT, --issuer or an identity in the rules of the installation, or --insecure-anonymous", listen)
	}
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		_, err := Listen(t.Context(), Options{Listen: listen, AllowAnonymous: true})
		require.ErrorContains(t, err, "expected --base-url https://HOST", listen)
	}
	_, err := Listen(t.Context(), Options{Listen: "127.0.0.1:0", BaseURL: "http://converge.example", Identifies: true})
	require.ErrorContains(t, err, "plain HTTP shows others their session; expected https://HOST")
	_, err = Listen(t.Context(), Options{Listen: "8080"})
	require.EqualError(t, err, `listen address "8080": expected HOST:PORT`)
	_, err = Listen(t.Context(), Options{Listen: "127.0.0.1:0", TLSCert: "x"})
	require.ErrorContains(t, err, "--tls-cert and --tls-key are required together")
	for _, base := range []string{"converge.example", "ftp://x", "https://", "https://x/y", "https://x?y", "https://u@x"} {
		_, err = Listen(t.Context(), Options{Listen: "127.0.0.1:0", BaseURL: base})
		require.ErrorContains(t, err, "expected https://HOST", base)
	}
}

// A browser reaches nothing from a page of another site, nor under another name of the same address.
func TestServerRefusesOtherHostsAndSites(t *testing.T) {
	s := started(t, Options{})
	u := s.URL()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(u, "http://"))
	require.NoError(t, err)
	for _, tt := range []struct {
		method string
		header []string
		status int
	}{
		{"GET", nil, 200},
		{"GET", []string{"Host", "localhost:" + port}, 200},
		{"GET", []string{"Host", "evil.example"}, 421},
		{"GET", []string{"Host", "evil.example:" + port}, 421},
		{"GET", []string{"Host", "127.0.0.1.evil.example"}, 421},
		{"GET", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"GET", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		{"GET", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"POST", nil, 200},
		{"POST", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"POST", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"POST", []string{"Origin", "https://evil.example"}, 403},
		{"POST", []string{"Origin", u}, 200},
	} {
		status, _, h := ask(t, tt.method, u+"/", "", tt.header...)
		require.Equal(t, tt.status, status, "%s %v", tt.method, tt.header)
		require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
	}

	behind := started(t, Options{BaseURL: "https://converge.example:443"})
	at := "http://" + behind.listener.Addr().String()
	status, _, _ := ask(t, "GET", at+"/", "", "Host", "converge.example")
	require.Equal(t, 200, status)
	status, _, _ = ask(t, "GET", at+"/", "")
	require.Equal(t, 421, status, "only by the name that browsers know")
	status, _, _ = ask(t, "GET", at+"/readyz", "")
	require.Equal(t, 200, status, "probes ask by address")
}

func TestServerBoundsRequests(t *testing.T) {
	u := started(t, Options{}).URL()
	status, _, _ := ask(t, "POST", u+"/body", strings.Repeat("x", maxBodyBytes))
	require.Equal(t, 200, status)
	status, _, _ = ask(t, "POST", u+"/body", strings.Repeat("x", maxBodyBytes+1))
	require.Equal(t, 413, status)
	status, _, _ = ask(t, "GET", u+"/", "", "X-Long", strings.Repeat("x", 2*maxHeaderBytes))
	require.Equal(t, 431, status)
	status, answer, _ := ask(t, "GET", u+"/panic", "")
	require.Equal(t, 500, status)
	require.NotContains(t, answer, "a fault", "what happened is in the log")
	status, _, _ = ask(t, "GET", u+"/", "")
	require.Equal(t, 200, status, "it still answers")
}

// A client that sends its request byte by byte is cut off.
func TestSlowRequestsAreCutOff(t *testing.T) {
	t.Parallel()
	s := started(t, Options{})
	c, err := net.Dial("tcp", s.listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute+headerTimeout)))
	_, err = bufio.NewReader(c).ReadByte()
	require.Error(t, err)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the server ended the connection")
}

func TestProbes(t *testing.T) {
	broken := errors.New("no Temporal server")
	s := started(t, Options{Ready: func(context.Context) error { return broken }})
	status, answer, _ := ask(t, "GET", s.URL()+"/healthz", "")
	require.Equal(t, 200, status, answer)
	status, answer, _ = ask(t, "GET", s.URL()+"/readyz", "")
	require.Equal(t, 503, status)
	require.Equal(t, "no Temporal server\n", answer)
}

// A stop ends waits, and finishes the requests that have begun.
func TestStopIsGraceful(t *testing.T) {
	begun := make(chan struct{})
	o := Options{
		Listen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler), Ready: func(context.Context) error { return nil },
		Mount: func(mux *http.ServeMux, _ *url.URL, stopping <-chan struct{}) http.Handler {
			mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
				close(begun)
				<-stopping // as a wait does
				fmt.Fprint(w, "done")
			})
			return mux
		},
	}
	s, err := Listen(t.Context(), o)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended, answered := make(chan error, 1), make(chan string, 1)
	go func() { ended <- s.Serve(ctx) }()
	go func() {
		response, err := http.Get(s.URL()) //nolint:noctx // it ends with the server
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		data, _ := io.ReadAll(response.Body)
		answered <- string(data)
	}()
	<-begun
	cancel()
	require.Equal(t, "done", <-answered)
	require.NoError(t, <-ended)
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	cert, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	s := started(t, Options{TLSCert: cert, TLSKey: keyFile})
	require.True(t, strings.HasPrefix(s.URL(), "https://127.0.0.1:"), s.URL())
	roots := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots.AddCert(parsed)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL(), nil)
	require.NoError(t, err)
	response, err := client.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, 2, response.ProtoMajor)
	_, err = Listen(t.Context(), Options{Listen: "127.0.0.1:0", TLSCert: keyFile, TLSKey: cert, Mount: func(mux *http.ServeMux, _ *url.URL, _ <-chan struct{}) http.Handler { return mux }, Log: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "--tls-cert")
}
