package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// This file finds an API server that accepts requests and does not answer, or whose packets are lost: a watch then stays open and shows old
// objects. After some silence a reading asks the server before it trusts the watches. What a server without an answer prevents is never the
// fault of a version (entities.ReadingError.NoAnswer, runtimes.Unready).

const (
	// maxSilence is how long the watches are trusted without any answer. A server sends each watch a bookmark about every minute.
	maxSilence = 15 * time.Second
	// announceAfter is how long a server gives no answer until all its instances get a hint, so that they become UNKNOWN. Restarts are shorter.
	announceAfter = 30 * time.Second
)

// lastAnswer is when an API server last answered, or sent something on a watch. The zero value is: never.
type lastAnswer struct{ unixNano atomic.Int64 }

func (l *lastAnswer) record() { l.unixNano.Store(time.Now().UnixNano()) }

// silence is the time since the last answer; 0 if there was none.
func (l *lastAnswer) silence() time.Duration {
	at := l.unixNano.Load()
	if at == 0 {
		return 0
	}
	return time.Since(time.Unix(0, at))
}

// follow records the answer, and everything that its body still sends.
func (l *lastAnswer) follow(resp *http.Response) {
	l.record()
	resp.Body = &followedBody{resp.Body, l}
}

type followedBody struct {
	io.ReadCloser
	last *lastAnswer
}

func (b *followedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.last.record()
	}
	return n, err
}

// check returns an error if the server does not answer. After a silence it sends a request; concurrent callers share it.
func (o *outage) check(ctx context.Context) error {
	if err := o.reportedError(); err != nil || o.last.silence() < maxSilence {
		return err
	}
	select {
	case o.checking <- struct{}{}:
		defer func() { <-o.checking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := o.reportedError(); err != nil || o.last.silence() < maxSilence {
		return err
	}
	probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	err := o.probe(probeCtx)
	if err == nil {
		o.last.record()
		return nil
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err() // it says nothing about the server
	}
	o.reportFailure(err)
	return o.reportedError()
}

// reportedError is blockError for a caller that reports it, and gets a hint when it is over.
func (o *outage) reportedError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cause == nil || !o.confirmed && o.last.silence() < maxSilence {
		return nil
	}
	o.reported = true
	return &url.Error{Op: "Get", URL: "/version", Err: o.cause} // as a request that was not answered
}

// checkAnswers returns an error if the server of a connected cluster does not answer.
func (c *cluster) checkAnswers(ctx context.Context) error {
	if o := c.outage(); o != nil {
		return o.check(ctx)
	}
	return nil
}

// silence is the time since the last answer of the server; 0 if there was none.
func (c *cluster) silence() time.Duration {
	if o := c.outage(); o != nil {
		return o.last.silence()
	}
	return 0
}

// outage is nil before the first connection.
func (c *cluster) outage() *outage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connected == nil {
		return nil
	}
	return c.connected.transport.outage
}

// unanswered marks the error of an apply that the API server did not answer, or whose credentials it did not accept, as no attempt. A timeout
// is one only if the server still answers: the apply may have waited for objects.
func (r *Runtime) unanswered(ctx context.Context, err error) error {
	var fenced *runtimes.FencedError
	if err == nil || runtimes.IsPermanent(err) || runtimes.IsUnready(err) || errors.As(err, &fenced) || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	if ctx.Err() == nil {
		if isUnanswered(err) {
			return runtimes.Unready(err)
		}
		return err
	}
	probeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	if cause := r.cluster.checkAnswers(probeCtx); cause != nil {
		return runtimes.Unready(fmt.Errorf("%w; the API server has given no answer for %s: %s",
			err, entities.RoundDuration(r.cluster.silence()), shortMessage(cause)))
	}
	return err
}

// isUnanswered reports whether a request has no answer of the API server, or its credentials were not accepted.
func isUnanswered(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsUnauthorized(err) || apierrors.IsServiceUnavailable(err)
	}
	var at *url.Error
	return errors.As(err, &at)
}

// withSilence adds to a failed reading for how long the server has given no answer.
func (c *cluster) withSilence(err error) error {
	var reading *entities.ReadingError
	if errors.As(err, &reading) && reading.NoAnswer && reading.Code != runtimes.CodeUnauthorized {
		reading.Silent = c.silence()
	}
	return err
}
