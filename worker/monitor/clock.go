package monitor

import (
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// clockSamples is how many of the last measurements count.
	clockSamples = 5
	// clockSpacing is the minimum time between two measurements. Answers that were delayed together, by a network or a suspended process, are
	// one measurement.
	clockSpacing = time.Second
)

// clock measures the difference between the clock of this machine and that of the server, from the start times of the tasks that the server
// hands out. This needs no request. An answer that is delayed on its way makes this clock seem to be ahead, so the smallest of several
// differences counts.
type clock struct {
	mu      sync.Mutex
	offsets []time.Duration // the newest last
	last    time.Time       // when the newest began to be measured
}

// startedTask is an answer with a task that the server started just before.
type startedTask interface{ GetStartedTime() *timestamppb.Timestamp }

// recordTask measures the difference if a poll was answered with a task.
func (c *clock) recordTask(reply any, now time.Time) {
	if task, ok := reply.(startedTask); ok && task.GetStartedTime().GetSeconds() > 0 {
		c.record(now.Round(0).Sub(task.GetStartedTime().AsTime()), now)
	}
}

func (c *clock) record(offset time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.offsets); n > 0 && now.Sub(c.last) < clockSpacing {
		c.offsets[n-1] = nearest(c.offsets[n-1], offset)
		return
	}
	c.offsets = append(c.offsets, offset)
	c.offsets, c.last = c.offsets[max(0, len(c.offsets)-clockSamples):], now
}

// offset is how far this clock is ahead of the server's; negative: behind it. It is 0 until it was measured twice.
func (c *clock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.offsets) < 2 {
		return 0
	}
	least := c.offsets[0]
	for _, o := range c.offsets[1:] {
		least = nearest(least, o)
	}
	return least
}

// nearest returns the offset that is nearer to zero.
func nearest(a, b time.Duration) time.Duration {
	if b.Abs() < a.Abs() {
		return b
	}
	return a
}

// ClockOffset returns how far the clock of this machine is ahead of the server's, negative if it is behind. It is 0 until two tasks, a
// second or more apart, have arrived.
func (p *Polls) ClockOffset() time.Duration { return p.clock.offset() }
