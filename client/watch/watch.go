// Package watch publishes each new state of a source: `converge watch` for any source, `converge dev` for its directory.
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

// Watch is one watched source.
type Watch struct {
	Source   origin.Source
	Interval time.Duration // between two polls of the source
	Quiet    time.Duration // a change is published after this time without another change,
	Most     time.Duration // and at the latest this long after it was first seen
	// Since returns the last published commit, as for origin.Source.
	Since origin.Since
	// Publish publishes a tree. It may be called again with a published one.
	Publish func(ctx context.Context, tree origin.Tree) error
	// Report is called with each new failure, once per series of equal ones; nil: recovered.
	Report func(err error)
	// Looked is called after each poll; may be nil.
	Looked func(ctx context.Context)
}

// Timeouts of one attempt, and delays before a retry.
const (
	lookTimeout    = time.Minute
	publishTimeout = 10 * time.Minute
	firstRetry     = 5 * time.Second
	lastRetry      = 5 * time.Minute
)

// watching is the state of a watched source. Earlier publications are known to the target.
type watching struct {
	Watch
	published string // the last published state
	failed    string // a state that failed, and is retried at
	again     time.Time
	retry     time.Duration
	reported  string
}

// Run watches until ctx ends.
func (w Watch) Run(ctx context.Context) {
	s := &watching{Watch: w}
	for ctx.Err() == nil {
		wait := s.look(ctx)
		if w.Looked != nil {
			w.Looked(ctx)
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

// look polls once, publishes a new state, and returns the delay until the next poll.
func (s *watching) look(ctx context.Context) time.Duration {
	state, err := s.newest(ctx)
	switch {
	case err != nil:
		return max(s.Interval, s.later(ctx, "", err))
	case state == s.published:
		s.well()
		return s.Interval
	case state == s.failed && time.Now().Before(s.again):
		return s.Interval
	}
	if state != s.failed {
		s.retry = 0
	}
	seen := s.settle(ctx, state)
	if ctx.Err() != nil {
		return 0
	}
	if err := s.publish(ctx, seen); err != nil {
		s.again = time.Now().Add(s.later(ctx, state, err))
		return s.Interval
	}
	s.well()
	return s.Interval
}

// well records that there is no failure any more.
func (s *watching) well() {
	s.failed, s.retry = "", 0
	s.report(nil)
}

func (s *watching) newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return s.Source.Newest(ctx)
}

// settle waits until changes stop, or the limit is reached, and returns when each change was seen.
func (s *watching) settle(ctx context.Context, state string) []time.Time {
	seen := []time.Time{time.Now()}
	for until := seen[0].Add(s.Most); ctx.Err() == nil; {
		left := time.Until(until)
		if left <= 0 {
			break
		}
		pause(ctx, min(s.Quiet, left))
		now, err := s.newest(ctx)
		if err != nil || now == state {
			break
		}
		state, seen = now, append(seen, time.Now())
	}
	return seen
}

func (s *watching) publish(ctx context.Context, seen []time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	tree, err := s.Source.Fetch(ctx, s.Since)
	if err != nil {
		return err
	}
	if len(tree.Causes) == 0 {
		tree.Causes = s.saved(seen)
	}
	if err := s.Publish(ctx, tree); err != nil {
		return err
	}
	s.published = tree.State
	return nil
}

// saved are the causes for a source that has none: the times of its changes, newest first.
func (s *watching) saved(seen []time.Time) []string {
	var all []string
	for i := len(seen) - 1; i >= 0; i-- {
		all = append(all, fmt.Sprintf("%s changed, seen %s", s.Source, seen[i].UTC().Format(time.RFC3339)))
	}
	return origin.Causes(all, false)
}

// later records a failure, of a state or of a poll, and returns the delay before the retry.
func (s *watching) later(ctx context.Context, state string, err error) time.Duration {
	if ctx.Err() != nil {
		return 0 // the caller cancelled it
	}
	if state != "" {
		s.failed = state
	}
	s.report(err)
	s.retry = min(max(2*s.retry, firstRetry), lastRetry)
	return s.retry
}

// report reports a failure that is not reported yet.
func (s *watching) report(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != s.reported {
		s.reported = text
		s.Report(err)
	}
}
