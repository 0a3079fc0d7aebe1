package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

const (
	reachAtOnce = 16              // services that are signalled concurrently
	reachBatch  = 64              // services between two heartbeats with the progress
	reachWithin = 5 * time.Second // timeout per service; then it is skipped

	heardWithin = 2 * time.Second // timeout for a service to process its message; then the next batch starts anyway
	mostUnheard = 3               // after so many timeouts in a row, it no longer waits
)

// reach sends something to many services. A service that cannot be reached is skipped and listed, and does not delay the others. After
// the end of a worker another one continues from the progress in the heartbeat. Sending twice is harmless.
type reach struct {
	tell func(ctx context.Context, service string) error
	// heard waits until a service has processed its message. Only then the next services are notified, so that a burst of work does not
	// delay others for long. Nil: all are notified without waiting.
	heard   func(ctx context.Context, service string) error
	unheard int // in a row

	mu     sync.Mutex
	last   string // all services up to this one are done
	missed protocol.Unreached
	told   int
}

// all notifies the services, which are sorted. It fails only if the server or the store answers for none of them: then the services are
// not the cause.
func (r *reach) all(ctx context.Context, services []string) error {
	r.recall(ctx)
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(beating, r.details)
	after, found := slices.BinarySearch(services, r.last)
	if found {
		after++
	}
	for batch := range slices.Chunk(services[after:], reachBatch) {
		if err := r.batch(ctx, batch); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// recall restores the progress of the previous attempt.
func (r *reach) recall(ctx context.Context) {
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &r.last, &r.missed) // unreadable: start with the first
	}
}

func (r *reach) details() []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []any{r.last, r.missed}
}

func (r *reach) batch(ctx context.Context, services []string) error {
	errs := make([]error, len(services))
	for first := 0; first < len(services); first += reachAtOnce {
		var running sync.WaitGroup
		last := min(first+reachAtOnce, len(services))
		for n, service := range services[first:last] {
			running.Go(func() {
				limited, cancel := context.WithTimeout(ctx, reachWithin)
				defer cancel()
				if ctx.Err() == nil {
					errs[first+n] = r.tell(limited, service)
				}
			})
		}
		running.Wait()
		if errs[last-1] == nil {
			r.untilHeard(ctx, services[last-1])
		}
	}
	if ctx.Err() != nil { // the message was replaced, or the worker stops
		return ctx.Err()
	}
	err := r.note(services, errs)
	activity.RecordHeartbeat(ctx, r.details()...)
	return err
}

// untilHeard waits for a notified service. It ignores why a service does not answer, because the message will reach it.
func (r *reach) untilHeard(ctx context.Context, service string) {
	if r.heard == nil || r.unheard >= mostUnheard {
		return
	}
	limited, cancel := context.WithTimeout(ctx, heardWithin)
	defer cancel()
	r.unheard++
	if r.heard(limited, service) == nil {
		r.unheard = 0
	}
}

// note records the results of a batch.
func (r *reach) note(services []string, errs []error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range errs {
		if err == nil {
			r.told++
		}
	}
	if at := slices.IndexFunc(errs, func(err error) bool { return err != nil && !itsOwn(err) }); at >= 0 && r.told == 0 {
		return fmt.Errorf("notify %s: %w", services[at], errs[at]) // all services are notified again, and none is skipped
	}
	for n, err := range errs {
		if err != nil {
			r.miss(services[n], err)
		}
	}
	r.last = services[len(services)-1]
	return nil
}

// maxMissed limits the names of unreached services; further ones are only counted.
const maxMissed = 300

func (r *reach) miss(service string, err error) {
	if r.missed.Why == "" {
		r.missed.Why = runtimes.Clip(fmt.Sprintf("%s: %s", service, err), 500)
	}
	if len(r.missed.Services) < maxMissed {
		r.missed.Services = append(r.missed.Services, service)
	} else {
		r.missed.More++
	}
}

// itsOwn reports whether an error concerns one service, and not a server or a store that does not answer.
func itsOwn(err error) bool {
	var refused *serviceerror.InvalidArgument // for example its run accepts no more signals
	var flooded *serviceerror.ResourceExhausted
	var damaged *store.CorruptError
	return errors.As(err, &refused) || errors.As(err, &flooded) || errors.As(err, &damaged) || store.IsNotFound(err)
}

// said returns the progress in the last heartbeat of the previous attempt.
func said(ctx context.Context) []any {
	var r reach
	r.recall(ctx)
	return r.details()
}
