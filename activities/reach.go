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
	reachAtOnce = 16              // services that are signalled at the same time
	reachBatch  = 64              // services between two heartbeats that say how far it is
	reachWithin = 5 * time.Second // one service, or it is passed over

	heardWithin = 2 * time.Second // one service has carried out what it was told, or the next are told all the same
	mostUnheard = 3               // so many in a row, and nobody is waited for any more
)

// reach tells something to many services. One that cannot be told is passed over and named, and holds up no other.
// Another worker goes on where this one died: a heartbeat says how far it was. Telling a service twice does no harm.
type reach struct {
	tell func(ctx context.Context, service string) error
	// heard waits until a service has taken in what it was told: the next are told then, so that what many do at once stands before nobody
	// else for long. Nil: all are told at once.
	heard   func(ctx context.Context, service string) error
	unheard int // in a row

	mu     sync.Mutex
	last   string // all services up to this one are done
	missed protocol.Unreached
	told   int
}

// all tells services, which are sorted. It fails only when the server or the store does not answer for any of them: then
// it is not their fault.
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

// recall takes over how far another attempt was.
func (r *reach) recall(ctx context.Context) {
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &r.last, &r.missed) // unreadable: begin with the first
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
	if ctx.Err() != nil { // something else is to be told instead, or the worker stops
		return ctx.Err()
	}
	err := r.note(services, errs)
	activity.RecordHeartbeat(ctx, r.details()...)
	return err
}

// untilHeard waits for a service that was told. Why it does not answer is not asked: what it was told will reach it.
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

// note takes in how a batch went.
func (r *reach) note(services []string, errs []error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range errs {
		if err == nil {
			r.told++
		}
	}
	if at := slices.IndexFunc(errs, func(err error) bool { return err != nil && !itsOwn(err) }); at >= 0 && r.told == 0 {
		return fmt.Errorf("notify %s: %w", services[at], errs[at]) // all are told again, and none is missed
	}
	for n, err := range errs {
		if err != nil {
			r.miss(services[n], err)
		}
	}
	r.last = services[len(services)-1]
	return nil
}

// maxMissed bounds the names of services that could not be told; more of them are counted.
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

// itsOwn tells whether an error is of one service, and not of a server or a store that does not answer.
func itsOwn(err error) bool {
	var refused *serviceerror.InvalidArgument // as when its run takes no more signals
	var flooded *serviceerror.ResourceExhausted
	var damaged *store.CorruptError
	return errors.As(err, &refused) || errors.As(err, &flooded) || errors.As(err, &damaged) || store.IsNotFound(err)
}

// said is what the last heartbeat of the attempt before said: how far that was.
func said(ctx context.Context) []any {
	var r reach
	r.recall(ctx)
	return r.details()
}
