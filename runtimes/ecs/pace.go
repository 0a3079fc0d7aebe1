package ecs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/smithy-go"
)

// group is a set of operations that share one token bucket in each account and region.
type group string

const (
	serviceReads     group = "service reads"
	serviceWrites    group = "service writes"
	definitionReads  group = "task definition reads"
	definitionWrites group = "task definition writes"
	taskReads        group = "task reads"
	taskRuns         group = "starts and stops of tasks"
	logReads         group = "reads of logs"
	tagWrites        group = "tag writes"
)

// rate is a bucket: how many calls at once, and how many come back in a second.
type rate struct{ burst, perSecond float64 }

// rates are what ECS allows (developer guide, request-throttling), and CloudWatch Logs (quotas, GetLogEvents). That of task reads
// could not be looked up there and is set like its neighbour's.
func rates() map[group]rate {
	return map[group]rate{
		serviceReads: {100, 20}, serviceWrites: {50, 5}, definitionReads: {50, 20}, definitionWrites: {20, 1}, taskReads: {100, 20}, tagWrites: {20, 10},
		taskRuns: {100, 40}, logReads: {25, 25},
	}
}

// share is the part of it that a worker takes: others call from the same account, people at a console among them.
const share = 0.8

// After an answer that says "too fast" nobody of a group calls for a while, doubled up to the longest.
const (
	firstPause   = time.Second
	longestPause = 20 * time.Second
)

// pace keeps the calls of one account and region to what is allowed. It is shared by all who call there.
type pace struct {
	mu      sync.Mutex
	buckets map[group]*bucket
}

type bucket struct {
	rate
	tokens float64 // below 0: so many have been promised to who waits
	at     time.Time
	pause  time.Duration
	until  time.Time // nobody calls before
}

func newPace() *pace {
	p := &pace{buckets: map[group]*bucket{}}
	for g, r := range rates() {
		r.burst, r.perSecond = r.burst*share, r.perSecond*share
		p.buckets[g] = &bucket{rate: r, tokens: r.burst, at: time.Now()}
	}
	return p
}

// take promises a call of a group and says how long it has to wait for it.
func (p *pace) take(g group) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, now := p.buckets[g], time.Now()
	b.refill(now)
	b.tokens--
	wait := max(0, b.until.Sub(now))
	if b.tokens < 0 {
		wait = max(wait, time.Duration(-b.tokens/b.perSecond*float64(time.Second)))
	}
	return wait
}

// give takes back the promise of a call that is not made.
func (p *pace) give(g group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buckets[g].tokens++
}

func (b *bucket) refill(now time.Time) {
	b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.perSecond)
	b.at = now
}

// spare reports whether a group has calls left for what can be done without.
func (p *pace) spare(g group) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, now := p.buckets[g], time.Now()
	b.refill(now)
	return b.tokens > b.burst/4 && now.After(b.until)
}

// throttled notes that ECS refused a call for coming too fast; ok that it took one.
func (p *pace) throttled(g group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, now := p.buckets[g], time.Now()
	if now.Before(b.until) { // of several that were on their way
		return
	}
	b.pause = min(max(firstPause, 2*b.pause), longestPause)
	b.tokens, b.at, b.until = 0, now, now.Add(b.pause)
}

func (p *pace) ok(g group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buckets[g].pause = 0
}

// wait returns when a call of a group may be made, or, at the end of ctx or of its patience, why it may not.
func (p *pace) wait(ctx context.Context, g group, patience time.Duration) error {
	wait := p.take(g)
	if wait == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(min(wait, max(0, patience)))
	defer timer.Stop()
	select {
	case <-timer.C:
		if wait <= patience {
			return nil
		}
		p.give(g)
		return &slowedError{g}
	case <-ctx.Done():
		p.give(g)
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return context.Cause(ctx)
		}
		return &slowedError{g}
	}
}

// codeThrottled is the code of a reading that had to wait for longer than it may take.
const codeThrottled = "throttled"

// slowedError says that a call could not be made in time without being refused.
type slowedError struct{ group group }

func (e *slowedError) Error() string {
	return fmt.Sprintf("AWS allows no more %s in this account and region at present; it is tried again when it does", e.group)
}

// transientAttempts bounds how often a read is tried again that failed on the way, or in the server.
const transientAttempts = 3

// call asks ECS for something within what it allows. One that comes too fast is made again, for as long as ctx and patience
// last: it changed nothing. One that failed on the way, or in the server, is made again only where it reads: a write may have
// arrived.
func call[In, Out, Option any](ctx context.Context, c *cluster, g group, ask func(context.Context, *In, ...Option) (*Out, error), in *In) (*Out, error) {
	began := time.Now()
	for failed := 1; ; {
		if err := c.account.pace.wait(ctx, g, c.timing.patience-time.Since(began)); err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeout(ctx, c.timing.call)
		out, err := ask(bounded, in)
		cancel()
		switch {
		case err == nil:
			c.account.pace.ok(g)
			return out, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case isThrottled(err):
			c.account.pace.throttled(g)
		case !reads(g) || !isTransient(err) || failed == transientAttempts:
			return nil, err
		default:
			failed++
		}
	}
}

// reads tells what may be asked twice: what reads, and what starts a task, by its token, or stops one.
func reads(g group) bool { return g != serviceWrites && g != definitionWrites && g != tagWrites }

func isThrottled(err error) bool {
	switch codeOf(err) {
	case "ThrottlingException", "Throttling", "RequestLimitExceeded", "TooManyRequestsException":
		return true
	}
	return false
}

// isTransient reports whether there was no answer of the API, or one that puts the fault on its own side.
func isTransient(err error) bool {
	var refusal smithy.APIError
	return !errors.As(err, &refusal) || refusal.ErrorFault() == smithy.FaultServer || refusal.ErrorCode() == "ServerException"
}

func codeOf(err error) string {
	var refusal smithy.APIError
	if errors.As(err, &refusal) {
		return refusal.ErrorCode()
	}
	return ""
}
