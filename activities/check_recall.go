package activities

import (
	"maps"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
)

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
		e.Known = ""
		before[e.Key()] = e
	}
	for _, e := range checks {
		key, known := e.Key(), e.Known != ""
		e.Known = ""
		if p, paced := old.at[key]; paced && known && before[key] == e {
			s.at[key] = p
		}
	}
}
