package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
)

// This file sees to it that a worker that nobody gives work any more does not sit there as if it served: it ends, and says why, so
// that whoever runs it starts it again, with what may be other credentials by then. Two things are for good. Of one the SDK says so:
// the namespace is gone, or this version is not served, for two minutes. The other it would try for ever: who asks is refused.

const (
	// refusedFor is longer than a server takes to come up, or a policy to be put right that somebody broke.
	refusedFor = 5 * time.Minute
	// refusedLooks is how often a worker looks whether it is refused.
	refusedLooks = 20
)

type lost struct{ why chan error }

func newLost() *lost { return &lost{make(chan error, 1)} }

// fatal is told by the SDK, once.
func (l *lost) fatal(err error) {
	select {
	case l.why <- err:
	default:
	}
}

// wait waits until ctx ends, which is in order, or the worker has lost its work for good.
func (l *lost) wait(ctx context.Context, o Options) error {
	limit := cmp.Or(o.RefusedFor, refusedFor)
	look := time.NewTicker(limit / refusedLooks)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.why:
			return &LostError{o.Namespace, err}
		case <-look.C:
			if o.Polls == nil {
				continue
			}
			if since, err := o.Polls.Refused(); err != nil && time.Since(since) >= limit {
				return &LostError{o.Namespace, err}
			}
		}
	}
}

// LostError says that a worker ended since nobody will give it work any more.
type LostError struct {
	Namespace string
	Err       error
}

// Error says why, and what to do.
func (e *LostError) Error() string {
	next := "look at the API key or the certificate of this worker, and at what they allow"
	switch {
	case errors.As(e.Err, new(*serviceerror.NamespaceNotFound)):
		next = "the namespace was deleted, or has another name: start the worker in another, with --take-over where its installation is to go on there"
	case errors.As(e.Err, new(*serviceerror.ClientVersionNotSupported)):
		next = "the server serves no client of this version: take a newer converge"
	}
	return fmt.Sprintf("the worker ends, since it gets no work from the namespace %s any more: %v; %s [lost]", e.Namespace, e.Err, next)
}

// Unwrap is why.
func (e *LostError) Unwrap() error { return e.Err }
