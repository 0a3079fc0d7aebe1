package main

import (
	"context"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/fakeruntime"
)

// stage is the fake runtime, with somebody watching when it is called. It obeys at once, so that
// what is measured is Converge.
type stage struct {
	*fakeruntime.Runtime
	mu       sync.Mutex
	calls    map[string]*calls // by service/channel
	readings int
	takes    map[string]time.Duration // an apply, by service; none: it obeys at once
	hung     string                   // the application whose readings get no answer
	answer   chan struct{}            // closed when they do again
	waiting  int                      // readings that get none now
}

// calls of one instance: each apply that begins, and each reading.
type calls struct {
	began chan time.Time
	read  chan struct{}
}

func newStage() *stage { return &stage{Runtime: fakeruntime.New(nil), calls: map[string]*calls{}} }

// watch records what happens to an instance from now on.
func (s *stage) watch(service, channel string) *calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &calls{began: make(chan time.Time, 10), read: make(chan struct{}, 10)}
	s.calls[service+"/"+channel] = c
	return c
}

func (s *stage) watched(in runtimes.Request) *calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[in.Service+"/"+in.ID.Channel]
}

// slow has applies of some services take a while from now on.
func (s *stage) slow(takes map[string]time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = takes
}

func (s *stage) taking(service string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes[service]
}

// hang leaves readings of an application without an answer until it is told to release them.
func (s *stage) hang(application string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung, s.answer = application, make(chan struct{})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hung = ""
		close(s.answer)
	}
}

// hanging counts the readings that get no answer now.
func (s *stage) hanging() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// hangs waits when nothing of this application gets an answer; it returns why the caller gave up.
func (s *stage) hangs(ctx context.Context, application string) error {
	s.mu.Lock()
	hung, answer := s.hung == application, s.answer
	if hung {
		s.waiting++
	}
	s.mu.Unlock()
	if !hung {
		return nil
	}
	defer func() {
		s.mu.Lock()
		s.waiting--
		s.mu.Unlock()
	}()
	select {
	case <-answer:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readingsSoFar counts the readings of all instances so far.
func (s *stage) readingsSoFar() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readings
}

// Apply implements runtimes.Runtime.
func (s *stage) Apply(ctx context.Context, in runtimes.Request) (runtimes.Output, error) {
	now := time.Now()
	if c := s.watched(in); c != nil {
		offer(c.began, now)
	}
	if err := pause(ctx, s.taking(in.Service)); err != nil {
		return runtimes.Output{}, err
	}
	return s.Runtime.Apply(ctx, in)
}

// Observe implements runtimes.Runtime.
func (s *stage) Observe(ctx context.Context, in runtimes.Request) ([]entities.Object, error) {
	s.mu.Lock()
	s.readings++
	s.mu.Unlock()
	if err := s.hangs(ctx, in.Application); err != nil {
		return nil, err
	}
	objects, err := s.Runtime.Observe(ctx, in)
	if c := s.watched(in); c != nil {
		offer(c.read, struct{}{})
	}
	return objects, err
}

// offer never blocks: there may be no receiver any more.
func offer[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}
