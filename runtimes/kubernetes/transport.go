package kubernetes

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// rereadInterval limits how often a kubeconfig is read again because the server rejects its credentials, or does not answer.
const rereadInterval = 3 * time.Second

// dialTimeout is the timeout of a new connection, and the time of silence after which a connection is probed.
const dialTimeout = 30 * time.Second

// clusterTransport sends requests to the cluster that its kubeconfig currently describes. If the credentials are rejected (an expired
// token) or the server does not answer, it reads the file again. Any change, even of the address, then applies to all clients and
// watches. A rejected request is sent again if something changed.
type clusterTransport struct {
	source      source
	wrap        func(http.RoundTripper) http.RoundTripper
	originalURL *url.URL // the original address of the clients, which their requests have
	// dialer knows the open connections. A connection with an open watch is not idle, so closing the idle ones would not close it.
	dialer *connrotation.Dialer
	outage *outage

	mu       sync.Mutex
	active   activeTransport
	rereadAt time.Time
}

// activeTransport is one reading of the kubeconfig, with a transport.
type activeTransport struct {
	server       *url.URL
	fingerprint  string // equal for equal descriptions
	roundTripper http.RoundTripper
	impersonates string // the user that the credentials already impersonate; empty: none
	plugin       *plugin
}

// newClusterTransport sends nothing yet. announce is called when the server has given no answer for some time, and when it answers again.
func newClusterTransport(ctx context.Context, src source, wrap func(http.RoundTripper) http.RoundTripper, announce func()) (*clusterTransport, error) {
	dial := (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	w := &clusterTransport{source: src, wrap: wrap, dialer: connrotation.NewDialer(dial)}
	described, err := src.load()
	if err != nil {
		return nil, err
	}
	opened, err := w.open(described)
	if err != nil {
		return nil, err
	}
	w.originalURL, w.active = opened.server, opened
	w.outage = newOutage(ctx, w.probe, announce)
	return w, nil
}

func (w *clusterTransport) open(described connection) (activeTransport, error) {
	if described.config.Dial == nil {
		described.config.Dial = w.dialer.DialContext
	}
	if described.config.ExecProvider != nil {
		described.config.Wrap(func(trip http.RoundTripper) http.RoundTripper { return credentialed{trip} })
	}
	server, _, err := rest.DefaultServerUrlFor(described.config)
	if err != nil {
		return activeTransport{}, fmt.Errorf("address of the cluster: %w", err)
	}
	trip, err := rest.TransportFor(described.config)
	if err != nil {
		return activeTransport{}, fmt.Errorf("credentials for %s: %w", server, err)
	}
	if w.wrap != nil {
		trip = w.wrap(trip)
	}
	return activeTransport{server: server, fingerprint: described.fingerprint, roundTripper: trip, impersonates: described.config.Impersonate.UserName, plugin: pluginOf(described.config)}, nil
}

func (w *clusterTransport) current() activeTransport {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.active
}

// RoundTrip implements http.RoundTripper. It sends nothing during an outage.
func (w *clusterTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if w.source.readOnly && !onlyReads(req) {
		return nil, fmt.Errorf("%s %s is not sent: the runtime has access: read", req.Method, req.URL.Path)
	}
	if outageErr := w.outage.blockError(); outageErr != nil {
		return nil, outageErr
	}
	resp, err := w.send(req)
	cause := err
	if err == nil {
		cause = unavailableError(resp)
	}
	if cause == nil {
		w.outage.last.follow(resp)
	}
	if cause != nil && req.Context().Err() == nil {
		w.outage.reportFailure(cause)
	}
	return resp, err
}

func (w *clusterTransport) send(req *http.Request) (*http.Response, error) {
	used := w.current()
	resp, err := used.plugin.send(used.roundTripper, w.readdress(req, used))
	if req.Context().Err() != nil || (err == nil && resp.StatusCode != http.StatusUnauthorized) {
		return resp, err
	}
	next, changed := w.renew(used)
	if err != nil || !changed {
		return resp, err // a request without an answer may have arrived: the caller decides about a retry
	}
	retry, ok := cloneRequest(req)
	if !ok {
		return resp, nil
	}
	resp.Body.Close()
	return next.plugin.send(next.roundTripper, w.readdress(retry, next))
}

// renew reads the kubeconfig again, unless that was just done, and reports whether the current connection differs from the used one.
func (w *clusterTransport) renew(used activeTransport) (activeTransport, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active.fingerprint == used.fingerprint && time.Since(w.rereadAt) > rereadInterval {
		w.rereadAt = time.Now()
		if described, err := w.source.load(); err == nil && described.fingerprint != used.fingerprint {
			if next, err := w.open(described); err == nil {
				w.active = next
			}
		}
	}
	return w.active, w.active.fingerprint != used.fingerprint
}

// cloneRequest copies a sent request. It is not ok if its body cannot be read again.
func cloneRequest(req *http.Request) (*http.Request, bool) {
	clone := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return clone, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	clone.Body = body
	return clone, err == nil
}

// readdress sets the current address of the cluster on a request.
func (w *clusterTransport) readdress(req *http.Request, to activeTransport) *http.Request {
	if *to.server == *w.originalURL {
		return req
	}
	readdressed := req.Clone(req.Context())
	readdressed.URL.Scheme, readdressed.URL.Host, readdressed.Host = to.server.Scheme, to.server.Host, ""
	readdressed.URL.Path = to.server.Path + strings.TrimPrefix(req.URL.Path, w.originalURL.Path)
	readdressed.URL.RawPath = ""
	return readdressed
}

// WrappedRoundTripper gives client-go access to the transport underneath.
func (w *clusterTransport) WrappedRoundTripper() http.RoundTripper { return w.current().roundTripper }

// close closes every connection, also that of a watch that is ending.
func (w *clusterTransport) close() { w.dialer.CloseAll() }
