// Package watch publishes each new state of a source: `converge config watch` for any source, `converge dev` for its directory.
//
// Changes within a short time become one publication, but continuous changes do not delay it forever. Failures are retried with growing
// delays, and at once when the source changes. Each source is watched separately, so that none delays another.
package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/converge-engine/converge/client/origin"
)

// Publisher publishes the new states of one source.
type Publisher struct {
	Source   origin.Source
	Interval time.Duration // between two polls of the source
	Quiet    time.Duration // a change is published after this time without another change,
	MaxDelay time.Duration // and at the latest this long after it was first seen
	// Since returns the last published commit, as for origin.Source.
	Since origin.Since
	// Publish publishes a tree. It may be called again with a published one.
	Publish func(ctx context.Context, tree origin.Tree) error
	// Report is called with each new failure, once per series of equal ones; nil: recovered.
	Report func(err error)
	// AfterPoll is called after each poll; may be nil.
	AfterPoll func(ctx context.Context)
}

// Timeouts of one attempt, and delays before a retry.
const (
	pollTimeout    = time.Minute
	publishTimeout = 10 * time.Minute
	minRetryDelay  = 5 * time.Second
	maxRetryDelay  = 5 * time.Minute
)

// publishLoop is the state of a watched source. Earlier publications are known to the target.
type publishLoop struct {
	Publisher
	published  string // the last published state
	failed     string // a state that failed, and is retried at
	retryAt    time.Time
	retryDelay time.Duration
	reported   string
}

// Run watches until ctx ends.
func (w Publisher) Run(ctx context.Context) {
	s := &publishLoop{Publisher: w}
	for ctx.Err() == nil {
		wait := s.poll(ctx)
		if w.AfterPoll != nil {
			w.AfterPoll(ctx)
		}
		pause(ctx, wait)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// poll polls once, publishes a new state, and returns the delay until the next poll.
func (s *publishLoop) poll(ctx context.Context) time.Duration {
	state, err := s.newest(ctx)
	switch {
	case err != nil:
		return max(s.Interval, s.scheduleRetry(ctx, "", err))
	case state == s.published:
		s.succeeded()
		return s.Interval
	case state == s.failed && time.Now().Before(s.retryAt):
		return s.Interval
	}
	if state != s.failed {
		s.retryDelay = 0
	}
	seen := s.waitUntilQuiet(ctx, state)
	if ctx.Err() != nil {
		return 0
	}
	if err := s.publish(ctx, seen); err != nil {
		s.retryAt = time.Now().Add(s.scheduleRetry(ctx, state, err))
		return s.Interval
	}
	s.succeeded()
	return s.Interval
}

// succeeded records that there is no failure any more.
func (s *publishLoop) succeeded() {
	s.failed, s.retryDelay = "", 0
	s.report(nil)
}

func (s *publishLoop) newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return s.Source.Newest(ctx)
}

// waitUntilQuiet waits until changes stop, or the limit is reached, and returns when each change was seen.
func (s *publishLoop) waitUntilQuiet(ctx context.Context, state string) []time.Time {
	seen := []time.Time{time.Now()}
	for until := seen[0].Add(s.MaxDelay); ctx.Err() == nil; {
		remaining := time.Until(until)
		if remaining <= 0 {
			break
		}
		pause(ctx, min(s.Quiet, remaining))
		now, err := s.newest(ctx)
		if err != nil || now == state {
			break
		}
		state, seen = now, append(seen, time.Now())
	}
	return seen
}

func (s *publishLoop) publish(ctx context.Context, seen []time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	tree, err := s.Source.Fetch(ctx, s.Since)
	if err != nil {
		return err
	}
	if len(tree.Causes) == 0 {
		tree.Causes = s.savedCauses(seen)
	}
	if err := s.Publish(ctx, tree); err != nil {
		return err
	}
	s.published = tree.State
	return nil
}

// savedCauses are the causes for a source that has none: the times of its changes, newest first.
func (s *publishLoop) savedCauses(seen []time.Time) []string {
	var all []string
	for i := len(seen) - 1; i >= 0; i-- {
		all = append(all, fmt.Sprintf("%s changed, seen %s", s.Source, seen[i].UTC().Format(time.RFC3339)))
	}
	return origin.Causes(all, false)
}

// scheduleRetry records a failure, of a state or of a poll, and returns the delay before the retry.
func (s *publishLoop) scheduleRetry(ctx context.Context, state string, err error) time.Duration {
	if ctx.Err() != nil {
		return 0 // the caller cancelled it
	}
	if state != "" {
		s.failed = state
	}
	s.report(err)
	s.retryDelay = min(max(2*s.retryDelay, minRetryDelay), maxRetryDelay)
	return s.retryDelay
}

// report reports a failure that is not reported yet.
func (s *publishLoop) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != s.reported {
		s.reported = text
		s.Report(err)
	}
}
