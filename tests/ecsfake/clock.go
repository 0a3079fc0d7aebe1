package ecsfake

import (
	"container/heap"
	"time"
)

// clock is the fake's time and its pending timers.
type clock struct {
	now    time.Time
	timers timers
	seq    int
	// speed is the factor, and the two times are the origins of the fake and the real clock.
	speed       float64
	began, real time.Time
}

func newClock(start time.Time, speed float64) clock {
	return clock{now: start, speed: speed, began: start, real: time.Now()}
}

// followed returns the time of this clock according to the real clock; the zero time if it does not follow the real clock.
func (c *clock) followed(real time.Time) time.Time {
	if c.speed == 0 {
		return time.Time{}
	}
	return c.began.Add(time.Duration(float64(real.Sub(c.real)) * c.speed))
}

func (c *clock) after(d time.Duration, fire func()) {
	c.seq++
	heap.Push(&c.timers, &timer{at: c.now.Add(d), seq: c.seq, fire: fire})
}

// due removes the first timer that is due by target; nil if there is none.
func (c *clock) due(target time.Time) *timer {
	if len(c.timers) == 0 || c.timers[0].at.After(target) {
		return nil
	}
	return heap.Pop(&c.timers).(*timer)
}

type timer struct {
	at time.Time
	// seq orders timers of the same time, so that the same calls give the same results.
	seq  int
	fire func()
}

type timers []*timer

func (t timers) Len() int      { return len(t) }
func (t timers) Swap(i, j int) { t[i], t[j] = t[j], t[i] }
func (t *timers) Push(x any)   { *t = append(*t, x.(*timer)) }

func (t timers) Less(i, j int) bool {
	if t[i].at.Equal(t[j].at) {
		return t[i].seq < t[j].seq
	}
	return t[i].at.Before(t[j].at)
}

func (t *timers) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}

// lagged stores the old values of an object that readers still see while reads lag writes.
type lagged[T any] struct{ past []moment[T] }

type moment[T any] struct {
	value T
	until time.Time
}

// was records, before a write, the value that readers continue to see until the given time.
func (l *lagged[T]) was(value T, until time.Time) {
	l.past = append(l.past, moment[T]{value, until})
}

// seen returns the old value that a reader sees now; false if the reader sees the current value.
func (l *lagged[T]) seen(now time.Time) (T, bool) {
	for len(l.past) > 0 && !now.Before(l.past[0].until) {
		l.past = l.past[1:]
	}
	if len(l.past) > 0 {
		return l.past[0].value, true
	}
	var none T
	return none, false
}
