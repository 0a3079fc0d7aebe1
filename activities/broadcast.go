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
	sendConcurrency = 16              // services that are signalled concurrently
	sendBatch       = 64              // services between two heartbeats with the progress
	sendTimeout     = 5 * time.Second // timeout per service; then it is skipped

	processedTimeout = 10 * time.Second // for a service to process its message; then the next ones are notified anyway
)

// broadcast sends a message to many services. A service that cannot be reached is skipped and listed, and does not delay the others. After
// the end of a worker another one continues from the progress in the heartbeat. Sending twice is harmless.
type broadcast struct {
	send func(ctx context.Context, service string) error
	// awaitProcessed waits until a service has processed its message. Only then the next services are notified, so that a burst of work
	// neither delays others for long nor overloads the server. Nil: all are notified without waiting.
	awaitProcessed func(ctx context.Context, service string) error

	mu        sync.Mutex
	last      string // all services up to this one are done
	unreached protocol.Unreached
	sent      int
}

// run notifies the services, which are sorted. It fails only if the server or the store answers for none of them: then the services are
// not the cause.
func (r *broadcast) run(ctx context.Context, services []string) error {
	r.restoreProgress(ctx)
	heartbeatCtx, stop := context.WithCancel(ctx)
	defer stop()
	go sendHeartbeats(heartbeatCtx, r.progress)
	after, found := slices.BinarySearch(services, r.last)
	if found {
		after++
	}
	for batch := range slices.Chunk(services[after:], sendBatch) {
		if err := r.sendTo(ctx, batch); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// restoreProgress restores the progress of the previous attempt.
func (r *broadcast) restoreProgress(ctx context.Context) {
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &r.last, &r.unreached) // unreadable: start with the first
	}
}

func (r *broadcast) progress() []any {
	r.mu.Lock()
	defer r.mu.Unlock()
	return []any{r.last, r.unreached}
}

func (r *broadcast) sendTo(ctx context.Context, services []string) error {
	errs := make([]error, len(services))
	for first := 0; first < len(services); first += sendConcurrency {
		var running sync.WaitGroup
		last := min(first+sendConcurrency, len(services))
		for n, service := range services[first:last] {
			running.Go(func() {
				sendCtx, cancel := context.WithTimeout(ctx, sendTimeout)
				defer cancel()
				if ctx.Err() == nil {
					errs[first+n] = r.send(sendCtx, service)
				}
			})
		}
		running.Wait()
		if errs[last-1] == nil {
			r.awaitLast(ctx, services[last-1])
		}
	}
	if ctx.Err() != nil { // the message was replaced, or the worker stops
		return ctx.Err()
	}
	err := r.recordResults(services, errs)
	activity.RecordHeartbeat(ctx, r.progress()...)
	return err
}

// awaitLast waits for a notified service. It ignores why a service does not answer, because the message will reach it.
func (r *broadcast) awaitLast(ctx context.Context, service string) {
	if r.awaitProcessed == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, processedTimeout)
	defer cancel()
	_ = r.awaitProcessed(ctx, service)
}

// recordResults records the results of a batch.
func (r *broadcast) recordResults(services []string, errs []error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range errs {
		if err == nil {
			r.sent++
		}
	}
	if at := slices.IndexFunc(errs, func(err error) bool { return err != nil && !isServiceError(err) }); at >= 0 && r.sent == 0 {
		return fmt.Errorf("notify %s: %w", services[at], errs[at]) // all services are notified again, and none is skipped
	}
	for n, err := range errs {
		if err != nil {
			r.addUnreached(services[n], err)
		}
	}
	r.last = services[len(services)-1]
	return nil
}

// maxUnreached limits the names of unreached services; further ones are only counted.
const maxUnreached = 300

func (r *broadcast) addUnreached(service string, err error) {
	if r.unreached.Why == "" {
		r.unreached.Why = runtimes.ClipMessage(fmt.Sprintf("%s: %s", service, err), 500)
	}
	if len(r.unreached.Services) < maxUnreached {
		r.unreached.Services = append(r.unreached.Services, service)
	} else {
		r.unreached.More++
	}
}

// isServiceError reports whether an error concerns one service, and not a server or a store that does not answer.
func isServiceError(err error) bool {
	var refused *serviceerror.InvalidArgument // for example its run accepts no more signals
	var exhausted *serviceerror.ResourceExhausted
	var damaged *store.CorruptError
	return errors.As(err, &refused) || errors.As(err, &exhausted) || errors.As(err, &damaged) || store.IsNotFound(err)
}

// lastProgress returns the progress in the last heartbeat of the previous attempt.
func lastProgress(ctx context.Context) []any {
	var r broadcast
	r.restoreProgress(ctx)
	return r.progress()
}
