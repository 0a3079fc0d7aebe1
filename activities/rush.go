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
func (l *rush) another(now time.Time) (others int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	second, size := now.Unix(), int64(len(l.counts))
	for at := max(l.at+1, second-size+1); at <= second; at++ {
		l.counts[at%size] = 0
	}
	l.at = max(l.at, second)
	for _, n := range l.counts {
		others += n
	}
	l.counts[l.at%size]++
	if others < rushed {
		return 0
	}
	return others
}
