package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
)

// This file ends a worker that gets no more work, instead of letting it idle as if it served. It ends with the reason, so that its
// supervisor restarts it, perhaps with new credentials. Two conditions are permanent. The SDK reports the first one: the namespace is gone,
// or this version is not served, for two minutes. In the second the SDK would retry forever: the caller is refused.

const (
	// refusedFor is longer than a server takes to start, or an operator to repair a broken policy.
	refusedFor = 5 * time.Minute
	// refusedChecks is how often a worker checks within refusedFor whether it is refused.
	refusedChecks = 20
)

type workLoss struct{ cause chan error }

func newWorkLoss() *workLoss { return &workLoss{make(chan error, 1)} }

// fatal is called by the SDK or the supervisor.
func (l *workLoss) fatal(err error) {
	select {
	case l.cause <- err:
	default:
	}
}

// wait waits until ctx ends, which is no error, or the worker has lost its work permanently.
func (l *workLoss) wait(ctx context.Context, o Options) error {
	limit := cmp.Or(o.RefusedFor, refusedFor)
	ticker := time.NewTicker(limit / refusedChecks)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-l.cause:
			if startsOver(err) {
				return err
			}
			return &LostError{o.Namespace, err}
		case <-ticker.C:
			if o.Polls == nil {
				continue
			}
			if since, err := o.Polls.Refused(); err != nil && time.Since(since) >= limit {
				return &LostError{o.Namespace, err}
			}
		}
	}
}

// LostError means that a worker ended because it gets no more work.
type LostError struct {
	Namespace string
	Err       error
}

// Error describes the reason and the remedy.
func (e *LostError) Error() string {
	next := "check the API key or the certificate of this worker, and their permissions"
	switch {
	case errors.As(e.Err, new(*serviceerror.NamespaceNotFound)):
		next = "the namespace was deleted, or has another name: start the worker in another, with --take-over to continue its installation there"
	case errors.As(e.Err, new(*serviceerror.ClientVersionNotSupported)):
		next = "the server does not support clients of this version: upgrade converge"
	}
	return fmt.Sprintf("the worker ends, since it no longer gets work from the namespace %s: %v; %s [lost]", e.Namespace, e.Err, next)
}

// Unwrap is the cause.
func (e *LostError) Unwrap() error { return e.Err }
