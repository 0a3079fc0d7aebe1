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
	hintTries = 3
	hintAgain = 200 * time.Millisecond
)

// hintEntries makes services check now whether they may enter. It does not block the caller.
func (a *Activities) hintEntries(services []string) {
	if len(services) > 0 {
		go atOnce(len(services), func(n int) { a.hintEntry(a.hints.ctx, services[n]) })
	}
}

// hintEntry wakes a service whose checks wait for their next evaluation. Any other service checks without a hint.
func (a *Activities) hintEntry(ctx context.Context, service string) {
	for range hintTries {
		waits, asks := a.waitsForChecks(ctx, service)
		if waits {
			_ = a.signal(ctx, service, protocol.SignalWake, protocol.Wake{Plan: true})
		}
		if !asks || pauseFor(ctx, hintAgain) != nil {
			return
		}
	}
}

// waitsForChecks reports whether checks of a service wait for their next evaluation, or are being evaluated.
func (a *Activities) waitsForChecks(ctx context.Context, service string) (waits, asks bool) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	d, _ := a.Client.DescribeWorkflowExecution(ctx, service, "") // without an answer it waits for nothing
	for _, pending := range d.GetPendingActivities() {
		if pending.GetActivityType().GetName() == protocol.ActivityCheck {
			backsOff := pending.GetState() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED
			waits, asks = waits || backsOff, asks || !backsOff
		}
	}
	return waits, asks
}

// follows are the plans that this worker follows.
type follows struct {
	mu  sync.Mutex
	all map[*following]bool
}

// following is one of these plans, with the services, by workflow id, that made progress since its last check.
type following struct {
	mu    sync.Mutex
	moved map[string]bool
	woken chan struct{}
}

func (f *follows) begin() *following {
	one := &following{moved: map[string]bool{}, woken: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[*following]bool{}
	}
	f.all[one] = true
	return one
}

func (f *follows) end(one *following) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, one)
}

// moved reports that a service has decided something, or is about to because one of its activities has ended.
func (f *follows) moved(service string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one := range f.all {
		one.hint(service)
	}
}

func (f *following) hint(service string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moved[service] = true
	select {
	case f.woken <- struct{}{}:
	default: // a hint is already pending
	}
}

// await returns the services that made progress, or nil when it is time to check all.
func (f *following) await(ctx context.Context, until time.Time) map[string]bool {
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case <-limited.Done():
		return nil
	case <-f.woken:
		return f.take()
	}
}

// take returns the services that made progress since the last call.
func (f *following) take() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	moved := f.moved
	f.moved = map[string]bool{}
	return moved
}
