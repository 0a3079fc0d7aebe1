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

// This file keeps an API server that cannot be reached from a storm: every namespace and kind has a watch, and each would try
// on its own. While it is away one request at a time finds out when it is back, with one backoff for the cluster; all others
// fail at once with what that found, and watches wait.

const (
	// After a failure the next attempt comes after firstRetry, doubled up to lastRetry, each up to twice as long by chance. It
	// is short: a cluster that is back is seen soon, and there is one attempt at a time.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 2 * time.Second
	// probeTimeout bounds one attempt.
	probeTimeout = 10 * time.Second
	// startsAtOnce is how many lists and watches begin at a time on one cluster. One that hangs keeps its place for startWithin.
	startsAtOnce = 16
	startWithin  = 5 * time.Second
)

// outage is whether an API server is away. The zero value, with a probe, is ready.
type outage struct {
	ctx   context.Context //nolint:containedctx // of the cluster: it is found out under it
	probe func(context.Context) error

	mu     sync.Mutex
	why    error         // a request had no answer, and no other has had one since; nil: none that is known of
	proven bool          // by an attempt after that
	over   chan struct{} // closed when there is an answer again
}

// refuses is why a request need not be sent now.
func (o *outage) refuses() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.proven {
		return nil
	}
	return o.why
}

// suspect is called when a request had no answer: whether that is the server is found out.
func (o *outage) suspect(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why != nil || o.ctx.Err() != nil {
		return
	}
	o.why, o.over = why, make(chan struct{})
	go o.follow()
}

// follow asks until there is an answer.
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

// lasts is why the server is away, or may be. Over is closed when it is back.
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

// noAnswer is why a response is not one of the API server's own: nil when it is.
func noAnswer(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("the server is not available: it answers %s: %w", resp.Status, io.ErrUnexpectedEOF)
	}
	return nil
}

// probe asks for what anybody may ask for. Whatever the server says, it is there.
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

// outlasts waits until the server is back, when it is away. False: it is not, or ctx has ended.
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

// away is why nothing is known of a watch that seems to have begun: client-go takes one that was not answered for one that
// has ended.
func (c *clients) away() error {
	_, why := c.wire.outage.lasts()
	return why
}

// starting waits for a place among the lists and watches that begin. All at once would be too much for a server that has
// just come back.
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
