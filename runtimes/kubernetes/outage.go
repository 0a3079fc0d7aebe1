package kubernetes

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// This file protects an unreachable API server from too many requests: each namespace and kind has a watch that would retry on its
// own. During an outage one request at a time probes the server, with one backoff for the cluster. All other requests fail at once
// with the error of the probe, and watches wait.

const (
	// After a failure the next attempt comes after firstRetry, doubled up to lastRetry, each with jitter up to twice as long. The
	// intervals are short, so that a recovery is found soon; there is only one attempt at a time.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Second
	// probeTimeout is the timeout of one attempt.
	probeTimeout = 10 * time.Second
	// startsAtOnce is the number of lists and watches that may start at the same time on one cluster. A hanging one keeps its slot
	// for startWithin.
	startsAtOnce = 16
	startWithin  = 5 * time.Second
)

// outage is the state of reachability of an API server. The zero value, with a probe, is ready.
type outage struct {
	ctx   context.Context //nolint:containedctx // of the cluster: it is found out under it
	probe func(context.Context) error

	mu     sync.Mutex
	why    error         // a request had no answer, and none has had one since; nil: no known outage
	proven bool          // a later attempt confirmed it
	over   chan struct{} // closed when there is an answer again
}

// refuses is why a request must not be sent now.
func (o *outage) refuses() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.proven {
		return nil
	}
	return o.why
}

// suspect is called after a request without an answer. It starts a probe of the server.
func (o *outage) suspect(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why != nil || o.ctx.Err() != nil {
		return
	}
	o.why, o.over = why, make(chan struct{})
	go o.follow()
}

// follow probes until there is an answer.
func (o *outage) follow() {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		ctx, cancel := context.WithTimeout(o.ctx, probeTimeout)
		err := o.probe(ctx)
		cancel()
		o.mu.Lock()
		o.why, o.proven = err, err != nil
		if err == nil {
			close(o.over)
		}
		o.mu.Unlock()
		if err == nil || !sleep(o.ctx, wait+rand.N(wait)) { //nolint:gosec // it spreads attempts
			return
		}
	}
}

// lasts is the error of a confirmed or possible outage. The channel is closed when the outage is over.
func (o *outage) lasts() (over <-chan struct{}, why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.over, o.why
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// noAnswer is why a response is not from the API server itself; nil if it is.
func noAnswer(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("the server is not available: it answers %s: %w", resp.Status, io.ErrUnexpectedEOF)
	}
	return nil
}

// probe requests a path that is open to everyone. Any answer of the server ends the outage.
func (w *wire) probe(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.first.JoinPath("version").String(), http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", userAgent())
	resp, err := w.send(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	return noAnswer(resp)
}

// outlasts waits until an outage is over. It returns false if there is no outage, or if ctx has ended.
func (c *cluster) outlasts(ctx context.Context) bool {
	clients, err := c.connect(ctx)
	if err != nil {
		return false
	}
	over, why := clients.wire.outage.lasts()
	if why == nil {
		return false
	}
	select {
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}

// away is the error for a watch that started without an answer: client-go treats such a watch as one that has ended.
func (c *clients) away() error {
	_, why := c.wire.outage.lasts()
	return why
}

// starting waits for a slot among the lists and watches that start. All at once would overload a server that has just recovered.
func (c *cluster) starting(ctx context.Context) (done func(), err error) {
	select {
	case c.starts <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var once sync.Once
	leave := func() { once.Do(func() { <-c.starts }) }
	late := time.AfterFunc(startWithin, leave)
	return func() { late.Stop(); leave() }, nil
}
