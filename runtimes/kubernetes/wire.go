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

// rereadEvery bounds how often a kubeconfig is read again because the server does not accept what it
// says, or does not answer.
const rereadEvery = 3 * time.Second

// dialWithin bounds the making of a connection, and how long one may be silent before it is probed.
const dialWithin = 30 * time.Second

// wire carries requests to the cluster as its kubeconfig describes it now. When the credentials are
// refused (an expired token) or nobody answers, the file is read again, and what changed in it, even
// the address, serves every client and every watch from then on. A refused request is sent once more
// when something changed.
type wire struct {
	from  source
	wrap  func(http.RoundTripper) http.RoundTripper
	first *url.URL // the address that clients were made with, which requests come with
	// dialer knows the connections that are open. One that a watch still holds is not idle, so closing
	// the idle ones would leave it.
	dialer *connrotation.Dialer
	outage outage

	mu     sync.Mutex
	now    line
	reread time.Time
}

// line is one reading of the kubeconfig, ready to carry.
type line struct {
	server *url.URL
	print  string // equal for equal descriptions
	trip   http.RoundTripper
	acts   string // for whom the credentials act already; empty: for themselves
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

// RoundTrip implements http.RoundTripper. While nobody answers nothing is sent.
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
		return resp, err // what was lost on the way may have arrived: the caller decides about asking again
	}
	again, ok := repeat(req)
	if !ok {
		return resp, nil
	}
	resp.Body.Close()
	return next.trip.RoundTrip(w.address(again, next))
}

// renew reads the kubeconfig again, unless somebody just did, and reports whether what carries now
// differs from what was used.
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

// repeat copies a request that was sent. It is not ok when its body is gone.
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

// address directs a request to where the cluster is now.
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

// WrappedRoundTripper lets client-go find the connection underneath.
func (w *wire) WrappedRoundTripper() http.RoundTripper { return w.current().trip }

// close ends every connection, also those that a watch that is ending still holds.
func (w *wire) close() { w.dialer.CloseAll() }
