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
	checkInterval = 30 * time.Second // where nothing else is said
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

// errors is how often in a row a check could not be evaluated.
func (s *schedule) errors(e entities.Evaluation) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at[e.Key()].Errors
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

// recallFor is how long after news the next evaluation of the checks of a service may begin and still go on
// with the paces of the last one.
const recallFor = 10 * time.Second

// recall keeps, between news and the evaluation that follows, when each check of a service is due, and how
// often in a row slow ones were cut off by the news of others. Without it a check that flips each second
// would have all others asked each second, and one that takes longer than that never evaluated. It is
// kept in this worker alone: another one asks all of them once more, which is never wrong.
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

// keep notes how the evaluations of a service ended.
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

// take fills in what is still true of the checks that a service asks about now. A check that is not known,
// or asked about something else than before, is due at once.
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
