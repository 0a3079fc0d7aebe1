package activities

import (
	"context"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file wakes waiting parties early: services that wait for a plan, and a plan that waits for services. A hint has no content and may
// be lost. Its receiver only does a check earlier that it would do soon anyway.

// hintTries limits the hints to a service whose checks run at that moment and may have read the old state.
const (
	hintTries      = 3
	hintRetryDelay = 200 * time.Millisecond
)

// hintEntries makes services check now whether they may enter. It does not block the caller.
func (a *Activities) hintEntries(services []string) {
	if len(services) > 0 {
		go forEach(len(services), func(n int) { a.hintEntry(a.hints.ctx, services[n]) })
	}
}

// hintEntry wakes a service whose checks wait for their next evaluation. Any other service checks without a hint.
func (a *Activities) hintEntry(ctx context.Context, service string) {
	for range hintTries {
		scheduled, running := a.pendingChecks(ctx, service)
		if scheduled {
			_ = a.signal(ctx, service, protocol.SignalWake, protocol.Wake{Plan: true})
		}
		if !running || sleep(ctx, hintRetryDelay) != nil {
			return
		}
	}
}

// pendingChecks reports whether checks of a service wait for their next evaluation, or are being evaluated.
func (a *Activities) pendingChecks(ctx context.Context, service string) (scheduled, running bool) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	d, _ := a.Client.DescribeWorkflowExecution(ctx, service, "") // without an answer it waits for nothing
	for _, pending := range d.GetPendingActivities() {
		if pending.GetActivityType().GetName() == protocol.ActivityCheck {
			backingOff := pending.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED
			scheduled, running = scheduled || backingOff, running || !backingOff
		}
	}
	return scheduled, running
}

// planFollowers are the plans that this worker follows.
type planFollowers struct {
	mu        sync.Mutex
	followers map[*planFollower]bool
}

// planFollower is one of these plans, with the services, by workflow id, that made progress since its last check.
type planFollower struct {
	mu         sync.Mutex
	progressed map[string]bool
	woken      chan struct{}
}

func (f *planFollowers) begin() *planFollower {
	follower := &planFollower{progressed: map[string]bool{}, woken: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers == nil {
		f.followers = map[*planFollower]bool{}
	}
	f.followers[follower] = true
	return follower
}

func (f *planFollowers) end(follower *planFollower) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.followers, follower)
}

// notify reports that a service has decided something, or is about to because one of its activities has ended.
func (f *planFollowers) notify(service string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for follower := range f.followers {
		follower.add(service)
	}
}

func (f *planFollower) add(service string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.progressed[service] = true
	select {
	case f.woken <- struct{}{}:
	default: // a hint is already pending
	}
}

// await returns the services that made progress, or nil when it is time to check all.
func (f *planFollower) await(ctx context.Context, until time.Time) map[string]bool {
	waitCtx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case <-waitCtx.Done():
		return nil
	case <-f.woken:
		return f.take()
	}
}

// take returns the services that made progress since the last call.
func (f *planFollower) take() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	progressed := f.progressed
	f.progressed = map[string]bool{}
	return progressed
}
