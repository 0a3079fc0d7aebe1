package activities

import (
	"sync"
	"time"
)

// rush counts what was prepared within the last half minute, second by second.
type rush struct {
	mu     sync.Mutex
	counts [30]int
	at     int64 // the second of the last one
}

// rushed is how many others are worth to be told of.
const rushed = 40

// another counts one, and returns how many others there were, where these are many.
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
