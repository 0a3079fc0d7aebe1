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

// rereadEvery limits how often a kubeconfig is read again because the server rejects its credentials, or does not answer.
const rereadEvery = 3 * time.Second

// dialWithin is the timeout of a new connection, and the time of silence after which a connection is probed.
const dialWithin = 30 * time.Second

// wire sends requests to the cluster that its kubeconfig currently describes. If the credentials are rejected (an expired token) or
// the server does not answer, it reads the file again. Any change, even of the address, then applies to all clients and watches. A
// rejected request is sent again if something changed.
type wire struct {
	from  source
	wrap  func(http.RoundTripper) http.RoundTripper
	first *url.URL // the original address of the clients, which their requests have
	// dialer knows the open connections. A connection with an open watch is not idle, so closing the idle ones would not close it.
	dialer *connrotation.Dialer
	outage outage

	mu     sync.Mutex
	now    line
	reread time.Time
}

// line is one reading of the kubeconfig, with a transport.
type line struct {
	server *url.URL
	print  string // equal for equal descriptions
	trip   http.RoundTripper
	acts   string // the user that the credentials already impersonate; empty: none
}

func newWire(ctx context.Context, from source, wrap func(http.RoundTripper) http.RoundTripper) (*wire, error) {
	dial := (&net.Dialer{Timeout: dialWithin, KeepAlive: dialWithin}).DialContext
	w := &wire{from: from, wrap: wrap, dialer: connrotation.NewDialer(dial)}
	described, err := from.load()
	if err != nil {
		return nil, err
	}
	opened, err := w.open(described)
	if err != nil {
		return nil, err
	}
	w.first, w.now = opened.server, opened
	w.outage = outage{ctx: ctx, probe: w.probe}
	return w, nil
}

func (w *wire) open(described connection) (line, error) {
	if described.config.Dial == nil {
		described.config.Dial = w.dialer.DialContext
	}
	server, _, err := rest.DefaultServerUrlFor(described.config)
	if err != nil {
		return line{}, fmt.Errorf("address of the cluster: %w", err)
	}
	trip, err := rest.TransportFor(described.config)
	if err != nil {
		return line{}, fmt.Errorf("credentials for %s: %w", server, err)
	}
	if w.wrap != nil {
		trip = w.wrap(trip)
	}
	return line{server: server, print: described.print, trip: trip, acts: described.config.Impersonate.UserName}, nil
}

func (w *wire) current() line {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// RoundTrip implements http.RoundTripper. It sends nothing during an outage.
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if away := w.outage.refuses(); away != nil {
		return nil, away
	}
	resp, err := w.send(req)
	why := err
	if err == nil {
		why = noAnswer(resp)
	}
	if why != nil && req.Context().Err() == nil {
		w.outage.suspect(why)
	}
	return resp, err
}

func (w *wire) send(req *http.Request) (*http.Response, error) {
	used := w.current()
	resp, err := used.trip.RoundTrip(w.address(req, used))
	if req.Context().Err() != nil || (err == nil && resp.StatusCode != http.StatusUnauthorized) {
		return resp, err
	}
	next, changed := w.renew(used)
	if err != nil || !changed {
		return resp, err // a request without an answer may have arrived: the caller decides about a retry
	}
	again, ok := repeat(req)
	if !ok {
		return resp, nil
	}
	resp.Body.Close()
	return next.trip.RoundTrip(w.address(again, next))
}

// renew reads the kubeconfig again, unless that was just done, and reports whether the current connection differs from the used one.
func (w *wire) renew(used line) (line, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.now.print == used.print && time.Since(w.reread) > rereadEvery {
		w.reread = time.Now()
		if described, err := w.from.load(); err == nil && described.print != used.print {
			if next, err := w.open(described); err == nil {
				w.now = next
			}
		}
	}
	return w.now, w.now.print != used.print
}

// repeat copies a sent request. It is not ok if its body cannot be read again.
func repeat(req *http.Request) (*http.Request, bool) {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	again.Body = body
	return again, err == nil
}

// address sets the current address of the cluster on a request.
func (w *wire) address(req *http.Request, to line) *http.Request {
	if *to.server == *w.first {
		return req
	}
	moved := req.Clone(req.Context())
	moved.URL.Scheme, moved.URL.Host, moved.Host = to.server.Scheme, to.server.Host, ""
	moved.URL.Path = to.server.Path + strings.TrimPrefix(req.URL.Path, w.first.Path)
	moved.URL.RawPath = ""
	return moved
}

// WrappedRoundTripper gives client-go access to the transport underneath.
func (w *wire) WrappedRoundTripper() http.RoundTripper { return w.current().trip }

// close closes every connection, also that of a watch that is ending.
func (w *wire) close() { w.dialer.CloseAll() }
