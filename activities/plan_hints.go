package activities

import (
	"context"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file has those look earlier who wait: services for a plan, and a plan for services. A hint says nothing, and may be lost: whoever
// gets one looks at what it would have looked at a little later anyway.

// hintTries bounds how often a service is tried that asks at that very moment, and may have looked too early.
const (
	hintTries = 3
	hintAgain = 200 * time.Millisecond
)

// hintEntries has services ask now whether they may enter, behind whoever calls.
func (a *Activities) hintEntries(services []string) {
	if len(services) > 0 {
		go atOnce(len(services), func(n int) { a.hintEntry(a.hints.ctx, services[n]) })
	}
}

// hintEntry wakes a service that waits until its checks are due. One that does not will ask by itself.
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

// waitsForChecks tells whether checks of a service wait until they are due, or are being evaluated.
func (a *Activities) waitsForChecks(ctx context.Context, service string) (waits, asks bool) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	d, _ := a.Client.DescribeWorkflowExecution(ctx, service, "") // without an answer nobody waits
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

// following is one of them: which services, by the ids of their workflows, went on since it last looked.
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

// moved hints that a service has decided something, or is about to, since what it did has ended.
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
	default: // it is to look already
	}
}

// await returns the services that went on, or none once it is time to look at all.
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

// take returns the services that went on since it was last called.
func (f *following) take() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	moved := f.moved
	f.moved = map[string]bool{}
	return moved
}
