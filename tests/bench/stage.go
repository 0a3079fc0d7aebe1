package main

import (
	"context"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/fake"
)

// stage is the fake runtime, with somebody watching when it is called. It obeys at once, so that
// what is measured is Converge.
type stage struct {
	*fake.Runtime
	mu       sync.Mutex
	calls    map[string]*calls // by service/channel
	readings int
}

// calls of one instance: each apply that begins, and each reading.
type calls struct {
	began chan time.Time
	read  chan struct{}
}

func newStage() *stage { return &stage{Runtime: fake.New(nil), calls: map[string]*calls{}} }

// watch records what happens to an instance from now on.
func (s *stage) watch(service, channel string) *calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &calls{began: make(chan time.Time, 10), read: make(chan struct{}, 10)}
	s.calls[service+"/"+channel] = c
	return c
}

func (s *stage) watched(in runtimes.Instance) *calls {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[in.Service+"/"+in.ID.Channel]
}

// readingsSoFar counts the readings of all instances so far.
func (s *stage) readingsSoFar() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readings
}

// Apply implements runtimes.Runtime.
func (s *stage) Apply(ctx context.Context, in runtimes.Instance) (runtimes.Output, error) {
	now := time.Now()
	if c := s.watched(in); c != nil {
		offer(c.began, now)
	}
	return s.Runtime.Apply(ctx, in)
}

// Observe implements runtimes.Runtime.
func (s *stage) Observe(ctx context.Context, in runtimes.Instance) ([]entities.Object, error) {
	s.mu.Lock()
	s.readings++
	s.mu.Unlock()
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
