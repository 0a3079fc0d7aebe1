package activities

import (
	"sync"
	"time"
)

// recentRate counts the versions prepared within the last 30 seconds, per second.
type recentRate struct {
	mu     sync.Mutex
	counts [30]int
	at     int64 // second of the last count
}

// minReportedRate is the number of others from which on it is reported.
const minReportedRate = 40

// add counts one and returns the number of others, or 0 below minReportedRate.
func (r *recentRate) add(now time.Time) (others int) {
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
	if others < minReportedRate {
		return 0
	}
	return others
}
