package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// writeLimit bounds how many writes a worker runs at the same time: applies, removals and extensions, each of which sends heartbeats. The
// bound grows while it is used and the Temporal server answers heartbeats quickly, and falls while it answers slowly. Other writes wait at
// the server, which costs it less than their heartbeats. Without that an overloaded server gives up writes that run, and has more work,
// because they begin again. What has begun always continues.
type writeLimit struct {
	mu       sync.Mutex
	running  int
	limit    int           // 0: initialWrites
	adjusted time.Time     // last change of the limit
	answer   time.Duration // the last slow answer
	next     time.Time     // when the next write that is put off is tried again
}

const (
	initialWrites = 64
	minWrites     = 8
	maxWrites     = MaxConcurrent

	slowAnswer  = time.Second     // a tenth of the heartbeat timeout: the limit falls
	quickAnswer = time.Second / 2 // the limit grows

	// Writes that are put off are tried again after minPutOff at the earliest, and so many in a second, in their order: each attempt costs the
	// server about five transactions.
	minPutOff  = 5 * time.Second
	putOffRate = 5
	maxPutOff  = 5 * time.Minute
)

// begin begins a write, until end is called. Without a place, end is nil. An urgent write always has a place.
func (l *writeLimit) begin(urgent bool) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running >= cmp.Or(l.limit, initialWrites) && !urgent {
		return nil
	}
	l.running++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running--
	})
}

// answered adjusts the limit to how long the server took to answer a heartbeat: it falls by a quarter, or grows by a tenth, at most once in
// each interval between heartbeats.
func (l *writeLimit) answered(took time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if took >= slowAnswer {
		l.answer = took
	}
	if now.Sub(l.adjusted) < heartbeatInterval {
		return
	}
	limit := cmp.Or(l.limit, initialWrites)
	switch {
	case took >= slowAnswer:
		l.limit, l.adjusted = max(minWrites, min(limit, l.running)*3/4), now
	case took <= quickAnswer && l.running > limit/2:
		l.limit, l.adjusted = min(limit+max(1, limit/10), maxWrites), now
	}
}

// putOff returns the delay after which a write without a place is tried again.
func (l *writeLimit) putOff(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = l.next.Add(time.Second / putOffRate)
	if first := now.Add(minPutOff); l.next.Before(first) {
		l.next = first
	}
	return min(l.next.Sub(now), maxPutOff)
}

// state returns how many writes run, and the last slow answer.
func (l *writeLimit) state() (running int, answer time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running, l.answer
}

// write is an apply, a removal or a run of an extension.
type write struct {
	key           string // see lifeline
	channel, what string // for people
	urgent        bool   // it is not put off
}

// beginWrite begins a write that heartbeats (lifeline). The error makes the server try again later: the worker has no place for it.
func (a *Activities) beginWrite(ctx context.Context, w write) (context.Context, *lifeline, error) {
	end := a.writes.begin(w.urgent)
	if end == nil {
		return ctx, nil, a.putOff(ctx, w)
	}
	ctx, l := a.lifeline(ctx, w.key)
	l.release = end
	return ctx, l, nil
}

// putOff returns an error that makes the server try a write again later. It was not begun: a heartbeat counts that, for people and for the
// next attempt.
func (a *Activities) putOff(ctx context.Context, w write) error {
	info := activity.GetInfo(ctx)
	report := earlierProgress(ctx)
	if report.PutOff == 0 || report.Description != w.what {
		report.Since = time.Now().UTC()
	}
	report = protocol.Progress{Channel: w.channel, Description: w.what, Since: report.Since, PutOff: report.PutOff + 1}
	if err := a.Client.RecordActivityHeartbeat(ctx, info.TaskToken, report); err != nil {
		return err
	}
	running, answer := a.writes.state()
	message := fmt.Sprintf("put off: this worker runs %s, as many as the Temporal server keeps up with", entities.Count(running, "other change"))
	if answer > 0 {
		message += "; its last slow answer took " + answer.Round(time.Second/10).String()
	}
	return temporal.NewApplicationErrorWithOptions(message, protocol.ErrPutOff, temporal.ApplicationErrorOptions{
		NextRetryDelay: a.writes.putOff(time.Now()), Category: temporal.ApplicationErrorCategoryBenign,
	})
}

// earlierProgress is the last report of earlier attempts.
func earlierProgress(ctx context.Context) (p protocol.Progress) {
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &p) // of no use if it is unreadable
	}
	return p
}

// IsPutOff reports whether an error says that a change has not begun, because the worker runs as many as the Temporal server keeps up with.
func IsPutOff(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.Type() == protocol.ErrPutOff
}
