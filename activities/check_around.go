package activities

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
)

const (
	checkInterval = 30 * time.Second // where nothing else is said
	slowestErrors = 5 * time.Minute  // between looks at a check that cannot be judged (D16)
	calendar      = time.Hour        // between looks at what only time and the definition change
)

// judgeOne takes one reading of one check.
type judgeOne func(context.Context, entities.CheckLook) entities.CheckReading

// checkAround judges all checks that are due, at once, and returns the readings that are not as known,
// by key. It returns when every one that was due has been judged, or a moment after the first news: who
// hangs then is judged again in the next round, which waits twice as long for it: others that have news
// each second must not keep it from ever being judged. While somebody hangs, the others go on by their own
// intervals, so that a Job of minutes holds up nobody's news.
func checkAround(ctx context.Context, looks []entities.CheckLook, s *schedule, judge judgeOne) map[string]entities.CheckReading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	round := &checkRound{schedule: s, judge: judge, all: make(chan struct{}), first: make(chan struct{}), news: map[string]entities.CheckReading{}}
	began := time.Now()
	var watched []func()
	for _, look := range looks {
		due := s.due(look)
		first := !due.After(began)
		if first {
			round.waiting++
		}
		watched = append(watched, func() { round.watch(ctx, look, due, first) })
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
	return round.seen()
}

// checkRound is one look around.
type checkRound struct {
	schedule *schedule
	judge    judgeOne

	mu      sync.Mutex
	waiting int           // checks that were due and are not judged even once
	all     chan struct{} // closed when there are none
	news    map[string]entities.CheckReading
	first   chan struct{} // closed at the first news
}

// watch judges one check whenever it is due, until it has news or all that were due are judged.
func (r *checkRound) watch(ctx context.Context, look entities.CheckLook, due time.Time, counted bool) {
	for {
		select {
		case <-time.After(time.Until(due)):
		case <-r.all:
			return
		case <-ctx.Done():
			return
		}
		began := time.Now()
		reading := r.judge(ctx, look)
		if ctx.Err() != nil {
			return // told to stop: what it says now counts for nothing
		}
		news := look.Known == "" || reading.Digest() != look.Known
		due = r.schedule.judged(look, reading, began)
		r.judged(look.Key(), reading, counted, news)
		counted = false
		if news {
			return
		}
	}
}

func (r *checkRound) judged(key string, reading entities.CheckReading, counted, news bool) {
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

// seen is a copy: who hangs may still come late. It notes whether somebody was cut off.
func (r *checkRound) seen() map[string]entities.CheckReading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting > 0 {
		r.schedule.cuts++
	} else {
		r.schedule.cuts = 0
	}
	return maps.Clone(r.news)
}

// pace is when a check is to be judged next, and how often in a row it could not be.
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

func (s *schedule) due(look entities.CheckLook) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[look.Key()].Next
}

// judged notes a reading and returns when the check is due again: after its interval, or when it says
// that it may change by itself; later and later while it cannot be judged.
func (s *schedule) judged(look entities.CheckLook, reading entities.CheckReading, began time.Time) time.Time {
	interval := look.Interval
	if interval <= 0 {
		interval = checkInterval
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := pace{}
	switch {
	case reading.Verdict == entities.Error:
		p.Errors = s.at[look.Key()].Errors + 1
		interval = min(interval<<min(p.Errors-1, 10), max(slowestErrors, interval))
	case checks.Offline(look.Kind):
		interval = max(interval, calendar)
	}
	p.Next = began.Add(spread(interval, s.spread))
	if reading.Next.After(began) && reading.Next.Before(p.Next) {
		p.Next = reading.Next
	}
	if s.at == nil {
		s.at = map[string]pace{}
	}
	s.at[look.Key()] = p
	return p.Next
}

// next is when the first of the looks is due.
func (s *schedule) next(looks []entities.CheckLook) time.Time {
	var all []time.Time
	for _, look := range looks {
		all = append(all, s.due(look))
	}
	if len(all) == 0 {
		return time.Now().Add(checkInterval)
	}
	return slices.MinFunc(all, time.Time.Compare)
}

// erred tells whether some check could not be judged.
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

// heartbeats tells the server that this worker lives, and what is due when, until ctx ends.
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
