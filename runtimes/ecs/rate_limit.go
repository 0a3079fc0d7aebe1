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

// rate is a bucket: the burst size, and how many calls are refilled per second.
type rate struct{ burst, perSecond float64 }

// rates are the limits of ECS (developer guide, request-throttling) and of CloudWatch Logs (quotas, GetLogEvents). The limit of task
// reads could not be found there; it has the value of a similar group.
func rates() map[group]rate {
	return map[group]rate{
		serviceReads: {100, 20}, serviceWrites: {50, 5}, definitionReads: {50, 20}, definitionWrites: {20, 1}, taskReads: {100, 20}, tagWrites: {20, 10},
		taskRuns: {100, 40}, logReads: {25, 25},
	}
}

// usableShare is the part of the limit that a worker uses: others call from the same account, including people at a console.
const usableShare = 0.8

// After a throttling error a group makes no calls for a while. The pause doubles up to the longest.
const (
	firstPause   = time.Second
	longestPause = 20 * time.Second
)

// rateLimiter keeps the calls of one account and region within the limits. All callers there share it.
type rateLimiter struct {
	mu      sync.Mutex
	buckets map[group]*bucket
}

type bucket struct {
	rate
	tokens float64 // below 0: reserved by waiting callers
	at     time.Time
	pause  time.Duration
	until  time.Time // no calls before this time
}

func newRateLimiter() *rateLimiter {
	p := &rateLimiter{buckets: map[group]*bucket{}}
	for g, r := range rates() {
		r.burst, r.perSecond = r.burst*usableShare, r.perSecond*usableShare
		p.buckets[g] = &bucket{rate: r, tokens: r.burst, at: time.Now()}
	}
	return p
}

// reserve reserves a call of a group and returns how long to wait for it.
func (p *rateLimiter) reserve(g group) time.Duration {
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

// release returns the reservation of a call that is not made.
func (p *rateLimiter) release(g group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buckets[g].tokens++
}

func (b *bucket) refill(now time.Time) {
	b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.perSecond)
	b.at = now
}

// hasSpare reports whether a group has calls left for optional requests.
func (p *rateLimiter) hasSpare(g group) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, now := p.buckets[g], time.Now()
	b.refill(now)
	return b.tokens > b.burst/4 && now.After(b.until)
}

// onThrottled records a throttling error; onSuccess records a success.
func (p *rateLimiter) onThrottled(g group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, now := p.buckets[g], time.Now()
	if now.Before(b.until) { // one of several calls that were under way
		return
	}
	b.pause = min(max(firstPause, 2*b.pause), longestPause)
	b.tokens, b.at, b.until = 0, now, now.Add(b.pause)
}

func (p *rateLimiter) onSuccess(g group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buckets[g].pause = 0
}

// wait returns when a call of a group may be made. At the end of ctx or after the timeout it returns an error.
func (p *rateLimiter) wait(ctx context.Context, g group, timeout time.Duration) error {
	wait := p.reserve(g)
	if wait == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(min(wait, max(0, timeout)))
	defer timer.Stop()
	select {
	case <-timer.C:
		if wait <= timeout {
			return nil
		}
		p.release(g)
		return &rateLimitError{g}
	case <-ctx.Done():
		p.release(g)
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return context.Cause(ctx)
		}
		return &rateLimitError{g}
	}
}

// codeThrottled is the code of a reading that waited too long for the rate limit.
const codeThrottled = "throttled"

// rateLimitError says that the rate limit did not allow a call in time.
type rateLimitError struct{ group group }

func (e *rateLimitError) Error() string {
	return fmt.Sprintf("AWS currently throttles %s in this account and region; the call is retried later", e.group)
}

// transientAttempts limits the retries of a read after a network or server error.
const transientAttempts = 3

// call makes a request to ECS within its limits. It retries a throttled request until ctx ends or throttleTimeout has passed: such a
// request changed nothing. It retries after a network or server error only if the request reads: a write may have arrived.
func call[In, Out, Option any](ctx context.Context, c *cluster, g group, send func(context.Context, *In, ...Option) (*Out, error), in *In) (*Out, error) {
	if c.account.readOnly && isWrite(g) {
		return nil, fmt.Errorf("ECS: %w: the runtime has access: read, and is not sent any %s", errReadOnly, g)
	}
	began := time.Now()
	for failed := 1; ; {
		if err := c.account.limiter.wait(ctx, g, c.timing.throttleTimeout-time.Since(began)); err != nil {
			return nil, err
		}
		bounded, cancel := context.WithTimeout(ctx, c.timing.callTimeout)
		out, err := send(bounded, in)
		cancel()
		switch {
		case err == nil:
			c.account.limiter.onSuccess(g)
			return out, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case isThrottled(err):
			c.account.limiter.onThrottled(g)
		case !isIdempotent(g) || !isTransient(err) || failed == transientAttempts:
			return nil, err
		default:
			failed++
		}
	}
}

// isIdempotent reports which groups are idempotent: reads, the start of a task, by its token, and its stop.
func isIdempotent(g group) bool { return g != serviceWrites && g != definitionWrites && g != tagWrites }

// isWrite reports which groups change something.
func isWrite(g group) bool { return !isIdempotent(g) || g == taskRuns }

func isThrottled(err error) bool {
	switch codeOf(err) {
	case "ThrottlingException", "Throttling", "RequestLimitExceeded", "TooManyRequestsException":
		return true
	}
	return false
}

// isTransient reports whether there was no answer of the API, or an error of the server.
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
