package activities

import (
	"sync"
	"time"
)

// rush counts the versions prepared within the last 30 seconds, per second.
type rush struct {
	mu     sync.Mutex
	counts [30]int
	at     int64 // second of the last count
}

// rushed is the number of others from which on it is reported.
const rushed = 40

// another counts one and returns the number of others, or 0 below rushed.
func (r *rush) another(now time.Time) (others int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	second, size := now.Unix(), int64(len(r.counts))
	for at := max(r.at+1, second-size+1); at <= second; at++ {
		r.counts[at%size] = 0
	}
	r.at = max(r.at, second)
	for _, n := range r.counts {
		others += n
	}
	r.counts[r.at%size]++
	if others < rushed {
		return 0
	}
	return others
}
