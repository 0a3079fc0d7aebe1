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
	checkInterval   = 30 * time.Second // default interval
	offlineInterval = time.Hour        // between readings of checks that only time and the definition change
)

// evaluateFunc takes one reading of one check.
type evaluateFunc func(context.Context, entities.Evaluation) entities.CheckReading

// evaluateAll evaluates all checks that are due concurrently, and returns the readings that differ from the known ones, by key. It
// returns when every due check was evaluated, or a moment after the first news. A check that hangs then is evaluated again in the next
// round, which waits twice as long for it, so frequent news of others cannot prevent its evaluation for ever. While one hangs, the others
// continue at their own intervals, so a Job that takes minutes delays no other's news.
func evaluateAll(ctx context.Context, all []entities.Evaluation, s *schedule, evaluate evaluateFunc) map[string]entities.CheckReading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	round := &checkRound{round: newRound[string, entities.CheckReading](), schedule: s, evaluate: evaluate}
	began := time.Now()
	var tasks []func()
	for _, e := range all {
		due := s.due(e)
		first := !due.After(began)
		if first {
			round.waiting++
		}
		tasks = append(tasks, func() { round.evaluateRepeatedly(ctx, e, due, first) })
	}
	if round.waiting == 0 {
		return nil
	}
	news, interrupted := round.run(tasks, min(gatherTime<<min(s.interruptions, 10), maxCheckTimeout))
	s.addErrors(all, news)
	if interrupted {
		s.interruptions++
	} else {
		s.interruptions = 0
	}
	return news
}

// checkRound is one evaluation of all checks that are due.
type checkRound struct {
	round[string, entities.CheckReading]
	schedule *schedule
	evaluate evaluateFunc
}

// evaluateRepeatedly evaluates one check whenever it is due, until it has news or all due checks are evaluated.
func (r *checkRound) evaluateRepeatedly(ctx context.Context, e entities.Evaluation, due time.Time, isFirst bool) {
	for {
		select {
		case <-time.After(time.Until(due)):
		case <-r.allRead:
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
		news := e.KnownDigest == "" || reading.Digest() != e.KnownDigest || entities.IsNotificationCount(reading.Errors) || reading.ReasonChanged(e)
		r.record(e.Key(), reading, isFirst, news)
		isFirst = false
		if news {
			return
		}
	}
}

// checkBackoff is the time of the next evaluation of a check, and its number of consecutive errors.
type checkBackoff struct {
	Next   time.Time `json:"next"`
	Errors int       `json:"errors,omitempty"`
	Reason string    `json:"reason,omitempty"` // of the last error
	At     time.Time `json:"at,omitzero"`      // when that was read
}

// schedule holds the backoffs of checks, by key. A check without one is due, unless its known result is an error that backs off.
type schedule struct {
	spreadKey     string // key to spread intervals, so that services that started together do not query together for ever
	interruptions int    // consecutive rounds in which news of others interrupted a check

	mu       sync.Mutex
	backoffs map[string]checkBackoff
}

func (s *schedule) due(e entities.Evaluation) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, scheduled := s.backoffs[e.Key()]
	if !scheduled {
		return e.Retry
	}
	return p.Next
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
	p := checkBackoff{}
	switch {
	case reading.Verdict == entities.Error:
		p.Errors, p.Reason, p.At = max(s.backoffs[e.Key()].Errors, e.Errors)+1, reading.Reason, reading.At
		interval = entities.RetryInterval(interval, p.Errors)
	case e.Kind.Offline():
		interval = max(interval, offlineInterval)
	}
	p.Next = began.Add(spread(interval, s.spreadKey))
	if reading.Verdict != entities.Error && !reading.Retry.IsZero() {
		p.Next = reading.Retry
	}
	if reading.Next.After(began) && reading.Next.Before(p.Next) {
		p.Next = reading.Next
	}
	if s.backoffs == nil {
		s.backoffs = map[string]checkBackoff{}
	}
	s.backoffs[e.Key()] = p
	return p.Next
}

// addErrors adds errors that were no news to the news of others, so that the backoff continues on any worker.
func (s *schedule) addErrors(all []entities.Evaluation, news map[string]entities.CheckReading) {
	if len(news) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range all {
		key := e.Key()
		p, scheduled := s.backoffs[key]
		if _, reported := news[key]; reported || !scheduled || p.Errors <= e.Errors {
			continue
		}
		news[key] = entities.CheckReading{Verdict: entities.Error, Reason: p.Reason, At: p.At, Errors: p.Errors, Retry: p.Next}
	}
}

// errors returns the number of consecutive errors of a check.
func (s *schedule) errors(e entities.Evaluation) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backoffs[e.Key()].Errors
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

// hasErrors reports whether some check could not be evaluated.
func (s *schedule) hasErrors() bool {
	for _, p := range s.snapshot() {
		if p.Errors > 0 {
			return true
		}
	}
	return false
}

func (s *schedule) snapshot() map[string]checkBackoff {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.backoffs)
}

// scheduleTTL is how long a schedule is kept after news, or after its next evaluation was due, for an activity with other checks or other
// known readings.
const scheduleTTL = 10 * time.Second

// scheduleCache keeps the schedule of a service's checks for its next activity: when each is due, how many errors in a row it had, and how
// often in a row slow ones were interrupted by news of others. Without it, a check that flips each second would cause a query of all others
// each second, a check that takes longer would never complete, and a check in ERROR would be evaluated whenever others change. It is local
// to this worker. Another worker evaluates all checks again, which is safe.
type scheduleCache struct {
	mu        sync.Mutex
	byService map[string]savedSchedule // by workflow id
	swept     time.Time                // when expired schedules were removed last
}

type savedSchedule struct {
	checks        []entities.Evaluation
	backoffs      map[string]checkBackoff
	interruptions int
	until         time.Time
}

// save records the schedule at the end of an evaluation, until a while after the next one is due.
func (r *scheduleCache) save(service string, checks []entities.Evaluation, s *schedule, now time.Time) {
	backoffs := s.snapshot()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byService == nil {
		r.byService = map[string]savedSchedule{}
	}
	if now.Sub(r.swept) > scheduleTTL { // a pass over all services is not made for each
		r.swept = now
		maps.DeleteFunc(r.byService, func(_ string, old savedSchedule) bool { return old.until.Before(now) })
	}
	until := now
	if next := s.next(checks); next.After(now) {
		until = next
	}
	r.byService[service] = savedSchedule{checks: checks, backoffs: backoffs, interruptions: s.interruptions, until: until.Add(scheduleTTL)}
}

// restore restores the valid part of the schedule for the checks that a service evaluates now. A check without a known reading, or with a
// changed question, is due at once.
func (r *scheduleCache) restore(service string, checks []entities.Evaluation, s *schedule, now time.Time) {
	r.mu.Lock()
	old, found := r.byService[service]
	delete(r.byService, service)
	r.mu.Unlock()
	if !found || old.until.Before(now) {
		return
	}
	s.backoffs, s.interruptions = map[string]checkBackoff{}, old.interruptions
	before := map[string]entities.Evaluation{}
	for _, e := range old.checks {
		before[e.Key()] = e.WithoutResult()
	}
	for _, e := range checks {
		key, known := e.Key(), e.KnownDigest != ""
		if p, ok := old.backoffs[key]; ok && known && before[key] == e.WithoutResult() {
			s.backoffs[key] = p
		}
	}
}
