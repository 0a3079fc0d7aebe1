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
	// maxConcurrentStarts is the number of lists and watches that may start at the same time on one cluster. A hanging one keeps its slot
	// for startSlotTimeout.
	maxConcurrentStarts = 16
	startSlotTimeout    = 5 * time.Second
)

// outage is the state of reachability of an API server.
type outage struct {
	ctx   context.Context //nolint:containedctx // of the cluster: it is found out under it
	probe func(context.Context) error
	// announce sends a hint to every instance: the server gives no answer, or answers again.
	announce func()
	last     lastAnswer
	checking chan struct{} // holds one token during the request of check

	mu        sync.Mutex
	cause     error         // a request had no answer, and none has had one since; nil: no known outage
	confirmed bool          // a later attempt confirmed it
	reported  bool          // a reading reported it, or it was announced
	announced bool          // its beginning was announced
	ended     chan struct{} // closed when there is an answer again
}

func newOutage(ctx context.Context, probe func(context.Context) error, announce func()) *outage {
	return &outage{ctx: ctx, probe: probe, announce: announce, checking: make(chan struct{}, 1)}
}

// blockError is why a request must not be sent now.
func (o *outage) blockError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.confirmed {
		return nil
	}
	return o.cause
}

// reportFailure is called after a request without an answer. It starts a probe of the server.
func (o *outage) reportFailure(cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cause != nil || o.ctx.Err() != nil {
		return
	}
	o.cause, o.ended = cause, make(chan struct{})
	go o.probeUntilAnswered()
}

// probeUntilAnswered probes until there is an answer.
func (o *outage) probeUntilAnswered() {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		ctx, cancel := context.WithTimeout(o.ctx, probeTimeout)
		err := o.probe(ctx)
		cancel()
		if o.recordProbe(err) {
			o.announce()
		}
		if err == nil || !sleep(o.ctx, wait+rand.N(wait)) { //nolint:gosec // it spreads attempts
			return
		}
	}
}

// recordProbe records the result of a probe, and reports whether to announce it: an outage that lasts, once, and the end of a reported one.
func (o *outage) recordProbe(err error) (announce bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cause, o.confirmed = err, err != nil
	if err == nil {
		o.last.record()
		close(o.ended)
		announce, o.reported, o.announced = o.reported, false, false
		return announce
	}
	if announce = !o.announced && o.last.silence() > announceAfter; announce {
		o.reported, o.announced = true, true
	}
	return announce
}

// state is the error of a confirmed or possible outage. The channel is closed when the outage is over.
func (o *outage) state() (ended <-chan struct{}, cause error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended, o.cause
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

// unavailableError is why a response is not from the API server itself; nil if it is.
func unavailableError(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return fmt.Errorf("the server is not available: it answers %s: %w", resp.Status, io.ErrUnexpectedEOF)
	}
	return nil
}

// probe requests a path that is open to everyone. Any answer of the server ends the outage.
func (w *clusterTransport) probe(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.originalURL.JoinPath("version").String(), http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", userAgent())
	resp, err := w.send(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	return unavailableError(resp)
}

// waitForRecovery waits until an outage is over. It returns false if there is no outage, or if ctx has ended.
func (c *cluster) waitForRecovery(ctx context.Context) bool {
	clients, err := c.connect(ctx)
	if err != nil {
		return false
	}
	ended, cause := clients.transport.outage.state()
	if cause == nil {
		return false
	}
	select {
	case <-ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// outageError is the error for a watch that started without an answer: client-go treats such a watch as one that has ended.
func (c *clients) outageError() error {
	_, cause := c.transport.outage.state()
	return cause
}

// acquireStartSlot waits for a slot among the lists and watches that start. All at once would overload a server that has just recovered.
func (c *cluster) acquireStartSlot(ctx context.Context) (done func(), err error) {
	select {
	case c.startSlots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var once sync.Once
	release := func() { once.Do(func() { <-c.startSlots }) }
	timer := time.AfterFunc(startSlotTimeout, release)
	return func() { timer.Stop(); release() }, nil
}
