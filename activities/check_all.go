package activities

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities"
)

const (
	checkInterval = 30 * time.Second // where nothing else is said
	slowestErrors = 5 * time.Minute  // between readings of a check that cannot be evaluated (D16)
	calendar      = time.Hour        // between readings of what only time and the definition change
)

// evaluateOne takes one reading of one check.
type evaluateOne func(context.Context, entities.Evaluation) entities.CheckReading

// evaluateAll evaluates all checks that are due, at once, and returns the readings that are not as known,
// by key. It returns when every one that was due has been evaluated, or a moment after the first news: who
// hangs then is evaluated again in the next round, which waits twice as long for it: others that have news
// each second must not keep it from ever being evaluated. While somebody hangs, the others go on by their own
// intervals, so that a Job of minutes delays no other's news.
func evaluateAll(ctx context.Context, all []entities.Evaluation, s *schedule, evaluate evaluateOne) map[string]entities.CheckReading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	round := &checkRound{schedule: s, evaluate: evaluate, all: make(chan struct{}), first: make(chan struct{}), news: map[string]entities.CheckReading{}}
	began := time.Now()
	var watched []func()
	for _, e := range all {
		due := s.due(e)
		first := !due.After(began)
		if first {
			round.waiting++
		}
		watched = append(watched, func() { round.watch(ctx, e, due, first) })
	}
	if round.waiting == 0 {
		return nil
	}
	var wg sync.WaitGroup
	for _, watch := range watched {
		wg.Go(watch)
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-round.first:
		select {
		case <-done:
		case <-time.After(min(gather<<min(s.cuts, 10), longestCheck)):
		}
	}
	return round.result()
}

// checkRound is one evaluation of all checks that are due.
type checkRound struct {
	schedule *schedule
	evaluate evaluateOne

	mu      sync.Mutex
	waiting int           // checks that were due and are not evaluated even once
	all     chan struct{} // closed when there are none
	news    map[string]entities.CheckReading
	first   chan struct{} // closed at the first news
}

// watch evaluates one check whenever it is due, until it has news or all that were due are evaluated.
func (r *checkRound) watch(ctx context.Context, e entities.Evaluation, due time.Time, counted bool) {
	for {
		select {
		case <-time.After(time.Until(due)):
		case <-r.all:
			return
		case <-ctx.Done():
			return
		}
		began := time.Now()
		reading := r.evaluate(ctx, e)
		if ctx.Err() != nil {
			return // it is over: what it says now counts for nothing
		}
		news := e.Known == "" || reading.Digest() != e.Known
		due = r.schedule.evaluated(e, reading, began)
		r.evaluated(e.Key(), reading, counted, news)
		counted = false
		if news {
			return
		}
	}
}

func (r *checkRound) evaluated(key string, reading entities.CheckReading, counted, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if news {
		if len(r.news) == 0 {
			close(r.first)
		}
		r.news[key] = reading
	}
	if counted {
		if r.waiting--; r.waiting == 0 {
			close(r.all)
		}
	}
}

// result is a copy: who hangs may still come late. It notes whether somebody was cut off.
func (r *checkRound) result() map[string]entities.CheckReading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting > 0 {
		r.schedule.cuts++
	} else {
		r.schedule.cuts = 0
	}
	return maps.Clone(r.news)
}

// pace is when a check is to be evaluated next, and how often in a row it could not be.
type pace struct {
	Next   time.Time `json:"next"`
	Errors int       `json:"errors,omitempty"`
}

// schedule holds the paces of checks, by key. Without one a check is due.
type schedule struct {
	spread string // so that services that began together do not ask together for ever
	cuts   int    // how often in a row news of others cut somebody off

	mu sync.Mutex
	at map[string]pace
}

func (s *schedule) due(e entities.Evaluation) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[e.Key()].Next
}

// evaluated notes a reading and returns when the check is due again: after its interval, or when it says
// that it may change by itself; later and later while it cannot be evaluated.
func (s *schedule) evaluated(e entities.Evaluation, reading entities.CheckReading, began time.Time) time.Time {
	interval := e.Interval
	if interval <= 0 {
		interval = checkInterval
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := pace{}
	switch {
	case reading.Verdict == entities.Error:
		p.Errors = s.at[e.Key()].Errors + 1
		interval = min(interval<<min(p.Errors-1, 10), max(slowestErrors, interval))
	case e.Kind.Offline():
		interval = max(interval, calendar)
	}
	p.Next = began.Add(spread(interval, s.spread))
	if reading.Next.After(began) && reading.Next.Before(p.Next) {
		p.Next = reading.Next
	}
	if s.at == nil {
		s.at = map[string]pace{}
	}
	s.at[e.Key()] = p
	return p.Next
}

// next is when the first of the checks is due.
func (s *schedule) next(all []entities.Evaluation) time.Time {
	var due []time.Time
	for _, e := range all {
		due = append(due, s.due(e))
	}
	if len(due) == 0 {
		return time.Now().Add(checkInterval)
	}
	return slices.MinFunc(due, time.Time.Compare)
}

// erred reports whether some check could not be evaluated.
func (s *schedule) erred() bool {
	for _, p := range s.copied() {
		if p.Errors > 0 {
			return true
		}
	}
	return false
}

func (s *schedule) copied() map[string]pace {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.at)
}

// heartbeats shows the server that this worker lives, and what is due when, until ctx ends.
func (s *schedule) heartbeats(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			activity.RecordHeartbeat(ctx, s.copied())
		}
	}
}
