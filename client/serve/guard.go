package serve

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"

	"github.com/converge-engine/converge/client/api"
)

// guard refuses what no handler should see, and protects browsers: requests for another host, requests of other sites, bodies that are too
// large.
func (o Options) guard(base *url.URL, next http.Handler) http.Handler {
	sites := http.NewCrossOriginProtection()
	_ = sites.AddTrustedOrigin(base.Scheme + "://" + base.Host) // a proxy may pass another host on
	sites.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "the request is of a page of another site; expected one of "+base.Host)
	}))
	return o.recovered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSafeHeaders(w.Header())
		switch {
		case isProbe(r.URL.Path):
		case !isHost(r.Host, base):
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("the request is for the host %q; expected %s", r.Host, base.Host))
			return
		case isOfOtherPage(r):
			refuse(w, http.StatusForbidden, "the request is of a page of another site; expected one of "+base.Host)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		sites.Handler(next).ServeHTTP(w, r)
	}))
}

// isProbe reports whether a path is one that orchestrators ask by address.
func isProbe(path string) bool { return path == "/healthz" || path == "/readyz" }

// isOfOtherPage reports whether a page of another site makes a browser read something, other than by a link that a person follows.
func isOfOtherPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}

func refuse(w http.ResponseWriter, status int, detail string) {
	p := api.NewProblem(api.OtherSite, errors.New(detail))
	p.Status = status
	p.Write(w)
}

// isHost refuses requests with a Host other than that of the server. For the browser, a page whose name resolves to the address of the server
// (DNS rebinding) has the same origin.
func isHost(host string, base *url.URL) bool {
	if strings.EqualFold(withoutDefaultPort(host, base.Scheme), withoutDefaultPort(base.Host, base.Scheme)) {
		return true
	}
	return isLoopback(hostname(host)) && isLoopback(base.Hostname())
}

// withoutDefaultPort returns a host as browsers send it.
func withoutDefaultPort(host, scheme string) string {
	if scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}

func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// IsLoopback reports whether an address to listen on, HOST:PORT, is reached from this machine only.
func IsLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	return err == nil && isLoopback(host)
}

// IsUnspecified reports whether an address to listen on, HOST:PORT, is that of all interfaces, so that callers use another name.
func IsUnspecified(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// setSafeHeaders sets what every answer has. Nothing of an answer is a script, a style or a frame, unless its handler says so.
func setSafeHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// recovered answers a request whose handler panics, and logs why.
func (o Options) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			problem := recover()
			switch problem {
			case nil:
				return
			case http.ErrAbortHandler: // net/http ends the connection
				panic(problem)
			}
			o.Log.Error(fmt.Sprintf("%s %s: %v", r.Method, r.URL.Path, problem), "stack", string(debug.Stack()))
			http.Error(w, "internal error; see the log of the server", http.StatusInternalServerError)
		}()
		next.ServeHTTP(w, r)
	})
}
