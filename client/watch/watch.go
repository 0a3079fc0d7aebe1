// Package watch has the newest state of a source published, whenever there is a new one: `converge watch` for any source,
// `converge dev` for its directory.
//
// Changes within a short time become one publication, and a source that goes on changing is published all the same. What fails is
// tried again ever later, and at once when the source changes. Each source is watched on its own, so that none holds up another.
package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/converge-engine/converge/client/origin"
)

// Watch is one source that is watched.
type Watch struct {
	Source   origin.Source
	Interval time.Duration // between two looks at the source
	Quiet    time.Duration // a change is published once nothing else changed for so long,
	Most     time.Duration // and at the latest so long after it was first seen
	// Since says what was published last, as for origin.Source.
	Since origin.Since
	// Publish publishes a tree. It may be called again with what is published already.
	Publish func(ctx context.Context, tree origin.Tree) error
	// Report is told what failed, once for each failure in a row that says something else; nil: it works again.
	Report func(err error)
	// Looked is called after each look; nil: nobody.
	Looked func(ctx context.Context)
}

// How long one attempt may take, and how long after it failed it is made again.
const (
	lookTimeout    = time.Minute
	publishTimeout = 10 * time.Minute
	firstRetry     = 5 * time.Second
	lastRetry      = 5 * time.Minute
)

// watching is what is remembered while a source is watched. What was published before it began is known where it was published to.
type watching struct {
	Watch
	published string // the last state that was
	failed    string // a state that was not, and is tried again at
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

// look looks once, publishes what is new, and returns how long to wait.
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

// well notes that nothing is wrong any more.
func (s *watching) well() {
	s.failed, s.retry = "", 0
	s.report(nil)
}

func (s *watching) newest(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return s.Source.Newest(ctx)
}

// settle waits until nothing changes any more, or long enough, and returns when each change was seen.
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

// saved are the causes of a source that names none: when it changed, newest first.
func (s *watching) saved(seen []time.Time) []string {
	var all []string
	for i := len(seen) - 1; i >= 0; i-- {
		all = append(all, fmt.Sprintf("%s changed, seen %s", s.Source, seen[i].UTC().Format(time.RFC3339)))
	}
	return origin.Causes(all, false)
}

// later notes that something failed, of a state or of looking for one, and returns how long to wait before it is tried again.
func (s *watching) later(ctx context.Context, state string, err error) time.Duration {
	if ctx.Err() != nil {
		return 0 // it was not that which failed
	}
	if state != "" {
		s.failed = state
	}
	s.report(err)
	s.retry = min(max(2*s.retry, firstRetry), lastRetry)
	return s.retry
}

// report says what is not yet said.
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
