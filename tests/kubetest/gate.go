package kubetest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Gate is a way to an API server of one test's own. It counts what goes through and can be shut or made to fail,
// without other tests noticing. It speaks HTTP, to the API server as the admin unless a request carries a token.
type Gate struct {
	// Kubeconfig is the path of a file whose only context, "gate", leads through this gate, as the admin.
	Kubeconfig string
	// URL is the API server's address through the gate.
	URL string

	server *httptest.Server

	mu       sync.Mutex
	requests []Request
	answer   func(*http.Request) int
}

// Request is one that came to a gate.
type Request struct {
	Method, Path, Query, UserAgent string
}

// String is the request on a line.
func (r Request) String() string {
	if r.Query == "" {
		return r.Method + " " + r.Path
	}
	return r.Method + " " + r.Path + "?" + r.Query
}

// Gate opens one, which is closed when the test ends.
func (c *Cluster) Gate(t testing.TB) *Gate {
	t.Helper()
	target, err := url.Parse(c.Config.Host)
	if err != nil {
		t.Fatal(err)
	}
	admin := transport(t, c.Config)
	anyone := transport(t, rest.AnonymousClientConfig(c.Config))
	forward := func(transport http.RoundTripper) http.Handler {
		return &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport:     transport,
			FlushInterval: -1, // watches are answered bit by bit
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
				http.Error(w, err.Error(), http.StatusBadGateway)
			},
		}
	}
	asAdmin, asBearer := forward(admin), forward(anyone)
	g := &Gate{}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status := g.note(r); {
		case status == Hangup:
			panic(http.ErrAbortHandler)
		case status != Pass:
			refuse(w, status)
		case r.Header.Get("Authorization") != "":
			asBearer.ServeHTTP(w, r)
		default:
			asAdmin.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		g.Shut() // a watch, one begun anew as well, would keep it from closing until the API server ends that: minutes
		g.server.Close()
	})
	g.URL = g.server.URL
	g.Kubeconfig = writeKubeconfig(t, "gate", &api.Cluster{Server: g.URL}, &api.AuthInfo{})
	return g
}

// What an answer may be beside a status code.
const (
	Pass   = 0  // ask the API server
	Hangup = -1 // end the connection
)

// Answer decides from now on what happens to requests: Pass, Hangup, or an HTTP status to answer with. Nil passes all.
// It is called from several goroutines. Connections that are open, watches too, stay; see Cut.
func (g *Gate) Answer(decide func(*http.Request) int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = decide
}

// Shut hangs up on all requests from now on, and on those under way: the API server is unavailable.
func (g *Gate) Shut() {
	g.Answer(func(*http.Request) int { return Hangup })
	g.Cut()
}

// Open lets all requests pass.
func (g *Gate) Open() { g.Answer(nil) }

// Cut ends all connections, watches included.
func (g *Gate) Cut() { g.server.CloseClientConnections() }

// Requests are all that came since the beginning or the last Reset, in order, passed or not. A watch is one.
func (g *Gate) Requests() []Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Request(nil), g.requests...)
}

// Reset forgets the requests so far.
func (g *Gate) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests = nil
}

func (g *Gate) note(r *http.Request) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests = append(g.requests, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, UserAgent: r.UserAgent()})
	if g.answer == nil {
		return Pass
	}
	return g.answer(r)
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":"the gate says so"}`, status, reasons[status])
	_, _ = w.Write(body.Bytes()) // the client may be gone
}

var reasons = map[int]string{
	http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden", http.StatusNotFound: "NotFound",
	http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests",
	http.StatusInternalServerError: "InternalError", http.StatusServiceUnavailable: "ServiceUnavailable",
}

func transport(t testing.TB, config *rest.Config) http.RoundTripper {
	t.Helper()
	config = rest.CopyConfig(config)
	config.UserAgent = "" // the client's own
	made, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// writeKubeconfig writes a file with one context into the test's folder.
func writeKubeconfig(t testing.TB, name string, cluster *api.Cluster, user *api.AuthInfo) string {
	t.Helper()
	config := api.NewConfig()
	config.Clusters[name], config.AuthInfos[name] = cluster, user
	config.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
