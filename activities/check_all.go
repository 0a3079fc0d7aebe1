package activities

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
)

const (
	checkInterval = 30 * time.Second // default interval
	calendar      = time.Hour        // between readings of checks that only time and the definition change
)

// evaluateOne takes one reading of one check.
type evaluateOne func(context.Context, entities.Evaluation) entities.CheckReading

// evaluateAll evaluates all checks that are due concurrently, and returns the readings that differ from the known ones, by key. It
// returns when every due check was evaluated, or a moment after the first news. A check that hangs then is evaluated again in the next
// round, which waits twice as long for it, so frequent news of others cannot prevent its evaluation for ever. While one hangs, the others
// continue at their own intervals, so a Job that takes minutes delays no other's news.
func evaluateAll(ctx context.Context, all []entities.Evaluation, s *schedule, evaluate evaluateOne) map[string]entities.CheckReading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	round := &checkRound{round: newRound[string, entities.CheckReading](), schedule: s, evaluate: evaluate}
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
	news, cut := round.run(watched, min(gather<<min(s.cuts, 10), longestCheck))
	if cut {
		s.cuts++
	} else {
		s.cuts = 0
	}
	return news
}

// checkRound is one evaluation of all checks that are due.
type checkRound struct {
	round[string, entities.CheckReading]
	schedule *schedule
	evaluate evaluateOne
}

// watch evaluates one check whenever it is due, until it has news or all due checks are evaluated.
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
			return // the round is over; the reading is discarded
		}
		due = r.schedule.evaluated(e, reading, began)
		if reading.Verdict == entities.Error {
			reading.Errors, reading.Retry = r.schedule.errors(e), due
		}
		news := e.Known == "" || reading.Digest() != e.Known || entities.ErrorsAreNews(reading.Errors) || reading.Tells(e)
		r.read(e.Key(), reading, counted, news)
		counted = false
		if news {
			return
		}
	}
}

// pace is the time of the next evaluation of a check, and its number of consecutive errors.
type pace struct {
	Next   time.Time `json:"next"`
	Errors int       `json:"errors,omitempty"`
}

// schedule holds the paces of checks, by key. A check without one is due.
type schedule struct {
	spread string // key to spread intervals, so that services that started together do not query together for ever
	cuts   int    // consecutive rounds in which news of others interrupted a check

	mu sync.Mutex
	at map[string]pace
}

func (s *schedule) due(e entities.Evaluation) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[e.Key()].Next
}

// evaluated records a reading and returns when the check is due again: after its interval, or at the time of a change that the reading
// predicts. It backs off while the check cannot be evaluated.
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
		p.Errors = max(s.at[e.Key()].Errors, e.Errors) + 1
		interval = entities.ErrorPause(interval, p.Errors)
	case e.Kind.Offline():
		interval = max(interval, calendar)
	}
	p.Next = began.Add(spread(interval, s.spread))
	if reading.Verdict != entities.Error && !reading.Retry.IsZero() {
		p.Next = reading.Retry
	}
	if reading.Next.After(began) && reading.Next.Before(p.Next) {
		p.Next = reading.Next
	}
	if s.at == nil {
		s.at = map[string]pace{}
	}
	s.at[e.Key()] = p
	return p.Next
}

// errors returns the number of consecutive errors of a check.
func (s *schedule) errors(e entities.Evaluation) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[e.Key()].Errors
}

// next returns when the first of the checks is due.
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

// recallFor is how long a schedule is kept after news, for the next evaluation of the checks of a service.
const recallFor = 10 * time.Second

// recall keeps the schedule of a service's checks between news and the next evaluation: when each is due, and how often in a row slow
// ones were interrupted by news of others. Without it, a check that flips each second would cause a query of all others each second, and
// a check that takes longer would never complete. It is local to this worker. Another worker evaluates all checks again, which is safe.
type recall struct {
	mu sync.Mutex
	of map[string]recalled // by workflow id
}

type recalled struct {
	checks []entities.Evaluation
	at     map[string]pace
	cuts   int
	until  time.Time
}

// keep records the schedule at the end of an evaluation.
func (r *recall) keep(service string, checks []entities.Evaluation, s *schedule, now time.Time) {
	at := s.copied()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]recalled{}
	}
	maps.DeleteFunc(r.of, func(_ string, old recalled) bool { return old.until.Before(now) })
	r.of[service] = recalled{checks: checks, at: at, cuts: s.cuts, until: now.Add(recallFor)}
}

// take restores the valid part of the schedule for the checks that a service evaluates now. A check without a known reading, or with a
// changed question, is due at once.
func (r *recall) take(service string, checks []entities.Evaluation, s *schedule, now time.Time) {
	r.mu.Lock()
	old, found := r.of[service]
	delete(r.of, service)
	r.mu.Unlock()
	if !found || old.until.Before(now) {
		return
	}
	s.at, s.cuts = map[string]pace{}, old.cuts
	before := map[string]entities.Evaluation{}
	for _, e := range old.checks {
		before[e.Key()] = e.Question()
	}
	for _, e := range checks {
		key, known := e.Key(), e.Known != ""
		if p, paced := old.at[key]; paced && known && before[key] == e.Question() {
			s.at[key] = p
		}
	}
}
