package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// Apply moves one instance to its target and observes the result, if the runtime can be observed. Otherwise a successful apply is the
// state (C1), and the caller concludes that. A failed apply is an answer. An error means that the worker could not finish, and another
// attempt starts. That attempt observes first, so it does not repeat work that the lost worker had finished (A11). The lost worker may be
// this process after a lost connection to the server, with its apply still running. That apply must end first.
func (a *Activities) Apply(ctx context.Context, r protocol.ApplyRequest) (protocol.ApplyAnswer, error) {
	if r.ReportOnly {
		return protocol.ApplyAnswer{Err: reportOnly, Unready: true}, nil
	}
	defer a.planFollowers.notify(activity.GetInfo(ctx).WorkflowExecution.ID)
	began := time.Now()
	answer, err := a.applyExclusively(ctx, r)
	answer.Begun = timesBegun(ctx)
	a.recordApply(began, r, answer, err)
	return answer, err
}

// applyExclusively is Apply for instances that may be written.
func (a *Activities) applyExclusively(ctx context.Context, r protocol.ApplyRequest) (protocol.ApplyAnswer, error) {
	ctx, life, err := a.beginWrite(ctx, write{
		key: r.Instance.ID.Key(), channel: r.Instance.ID.Channel, what: "apply of " + r.Instance.FullVersion, urgent: r.Urgent,
	})
	if err != nil {
		return protocol.ApplyAnswer{}, err
	}
	defer life.stop()
	owner := runtimes.Owner{Application: r.Application, Service: r.Service, ID: r.Instance.ID}
	release, err := a.lockKey(ctx, owner.Key()+"@"+r.Runtime)
	if err != nil {
		return protocol.ApplyAnswer{}, err
	}
	defer release()
	conn, in, conflict, reason, err := a.prepareWrite(ctx, owner, r)
	if heartbeatErr := life.awaitHeartbeat(ctx); heartbeatErr != nil {
		return protocol.ApplyAnswer{}, heartbeatErr
	}
	if err != nil {
		permanent := runtimes.IsPermanent(err) // the owner of the object does not allow it
		return protocol.ApplyAnswer{Err: clipError(err), Permanent: permanent, Unready: !permanent}, ctx.Err()
	}
	if conflict != nil {
		return protocol.ApplyAnswer{Err: reason, Fenced: conflict}, ctx.Err()
	}
	recordReading := func(*entities.Reading) {}
	polled := r.SteadyPollInterval > 0 && conn.observable() && a.hints.isPolling()
	if conn.sendsHints || polled {
		generation := a.hints.begin(owner)
		recordReading = func(reading *entities.Reading) { a.hints.finishApply(r, generation, reading, conn.sendsHints) }
	}
	answer, err := a.applyAndObserve(ctx, life, conn, in, r)
	if err != nil { // another attempt follows
		answer.Reading = nil
	}
	recordReading(answer.Reading)
	answer.ServedFromWatchCache = conn.hasCache && answer.Reading != nil
	return answer, err
}

// applyAndObserve applies a prepared instance, unless a lost attempt already did.
func (a *Activities) applyAndObserve(
	ctx context.Context, life *lifeline, conn connection, in runtimes.Request, r protocol.ApplyRequest,
) (protocol.ApplyAnswer, error) {
	if timesBegun(ctx) > 0 && conn.observable() && !r.Restart {
		if before, _ := conn.observe(ctx, in, r.FetchTimeout); current(before, in.FullVersion).Stable {
			return protocol.ApplyAnswer{Reading: &before}, ctx.Err()
		}
	}
	life.setStep(r.Instance.ID.Channel, "apply of "+r.Instance.FullVersion, r.Timeout)
	err := a.apply(ctx, conn, in, r.Timeout)
	if errors.Is(err, runtimes.ErrDisconnected) { // the apply did not fail: it was ended
		return protocol.ApplyAnswer{}, err
	}
	answer := applyAnswer(err)
	if answer.Fenced != nil || !conn.observable() {
		return answer, ctx.Err()
	}
	observeStart := time.Now()
	after, output := conn.observe(ctx, in, r.FetchTimeout) // a failed apply may have changed things too
	a.recordReading(observeStart, conn, after)
	if after.Err != nil {
		a.storeFetchLog(ctx, in, output, after)
	}
	answer.Reading = &after
	return answer, ctx.Err()
}

// reportOnly is the reason why nothing is written in a report-only channel (A25). No decision requests a write there. Any other write is
// rejected before a claim, a connection or a command.
const reportOnly = "its channel is report-only: nothing is applied there"

// prepareWrite fetches concurrently, and in parallel to the first heartbeat, everything that is needed before the first write: the payload,
// the runtime connection, a conflicting claim, and the active pauses. An unused claim is harmless.
func (a *Activities) prepareWrite(ctx context.Context, owner runtimes.Owner, r protocol.ApplyRequest) (
	conn connection, in runtimes.Request, conflict *protocol.Claim, reason string, err error,
) {
	fence := a.fenceOf(r.Instance, r.Sequence)
	var fetches sync.WaitGroup
	var pauseErr, claimErr error
	fetches.Go(func() { pauseErr = a.checkPaused(ctx, r.Application, r.Runtime) })
	fetches.Go(func() { conflict, reason, claimErr = a.fence(ctx, owner, fence) })
	conn, in, err = a.prepareApply(ctx, owner, r)
	if err == nil {
		err = a.decrypt(&in)
	}
	fetches.Wait()
	in.Fence = fence
	return conn, in, conflict, reason, cmp.Or(err, pauseErr, claimErr)
}

// applyAnswer converts the result of an apply on a runtime.
func applyAnswer(err error) protocol.ApplyAnswer {
	var fenced *runtimes.FencedError
	switch {
	case err == nil:
		return protocol.ApplyAnswer{}
	case errors.As(err, &fenced):
		return fencedAnswer(fenced)
	}
	return protocol.ApplyAnswer{Err: clipError(err), Permanent: runtimes.IsPermanent(err), Unready: runtimes.IsUnready(err)}
}

// timesBegun is how often an activity was begun, or 0 if this is the first time.
func timesBegun(ctx context.Context) int {
	if n := int(activity.GetInfo(ctx).Attempt) - earlierProgress(ctx).PutOff; n > 1 {
		return n
	}
	return 0
}

// attemptID returns an id of this attempt. An activity that starts again after its worker was lost has the same id; the next attempt of the
// decision has another.
func attemptID(ctx context.Context) string {
	info := activity.GetInfo(ctx)
	return info.WorkflowExecution.RunID + "/" + info.ActivityID
}

// lockKey waits until no other call with that key runs in this worker. It returns a function that releases the key.
func (a *Activities) lockKey(ctx context.Context, key string) (release func(), err error) {
	for {
		a.mu.Lock()
		running := a.runningApplies[key]
		if running == nil {
			finished := make(chan struct{})
			if a.runningApplies == nil {
				a.runningApplies = map[string]chan struct{}{}
			}
			a.runningApplies[key] = finished
			a.mu.Unlock()
			return func() {
				a.mu.Lock()
				delete(a.runningApplies, key)
				a.mu.Unlock()
				close(finished)
			}, nil
		}
		a.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (a *Activities) prepareApply(ctx context.Context, owner runtimes.Owner, r protocol.ApplyRequest) (connection, runtimes.Request, error) {
	conn, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if err != nil {
		return conn, runtimes.Request{}, err
	}
	in, err := a.instance(ctx, runtimes.Request{
		Owner: owner, ServiceID: r.ServiceID, FullVersion: r.Instance.FullVersion,
		Key: fmt.Sprintf("%s/%s/%s", owner.Key(), r.Instance.FullVersion, r.Instance.Payload), AttemptID: attemptID(ctx), Attempt: r.Attempt, LastAttempt: r.Last,
		Restarted: r.Instance.Restarted, Restart: r.Restart,
	}, r.Instance.Payload, false)
	in.Siblings = a.siblings(owner, r.Runtime, "")
	if r.Restart {
		in.Key += "/" + r.Instance.Restarted.UTC().Format(time.RFC3339Nano)
	}
	if err == nil {
		err = a.checkRuntimeAccess(ctx, conn, &in, 0)
	}
	return conn, in, err
}

func (a *Activities) apply(ctx context.Context, conn connection, in runtimes.Request, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	output, err := conn.Apply(ctx, in)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		err = fmt.Errorf("timed out after %s: %w", timeout, err)
	}
	a.storeLog(ctx, in, store.LogApply, output, err)
	return err
}

// sendHeartbeats sends heartbeats with the progress for another attempt (nil: none) until ctx ends.
func sendHeartbeats(ctx context.Context, details func() []any) {
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if details == nil {
				activity.RecordHeartbeat(ctx)
			} else {
				activity.RecordHeartbeat(ctx, details()...)
			}
		}
	}
}

// Remove removes an instance (A24). A failed removal is an answer. An error means that the worker could not finish, and another attempt
// starts. Removal is idempotent. No apply of the instance runs at the same time in this worker.
func (a *Activities) Remove(ctx context.Context, r protocol.RemoveRequest) (protocol.RemoveAnswer, error) {
	if r.ReportOnly {
		return protocol.RemoveAnswer{Err: reportOnly}, nil
	}
	ctx, life, err := a.beginWrite(ctx, write{channel: r.Instance.ID.Channel, what: "removal"})
	if err != nil {
		return protocol.RemoveAnswer{}, err
	}
	defer life.stop()
	owner := runtimes.Owner{Application: r.Application, Service: r.Service, ID: r.Instance.ID}
	release, err := a.lockKey(ctx, owner.Key()+"@"+r.Runtime)
	if err != nil {
		return protocol.RemoveAnswer{}, err
	}
	defer release()
	if err := life.awaitHeartbeat(ctx); err != nil {
		return protocol.RemoveAnswer{}, err
	}
	if err := a.checkRemovalPaused(ctx, r.Application, r.Runtime); err != nil {
		return protocol.RemoveAnswer{Err: clipError(err)}, ctx.Err()
	}
	renamed, err := a.isSameRuntime(ctx, r)
	if renamed {
		return protocol.RemoveAnswer{Renamed: true}, ctx.Err()
	}
	if err == nil {
		life.setStep(r.Instance.ID.Channel, "removal", r.Timeout)
		err = a.remove(ctx, owner, r)
	}
	if errors.Is(err, runtimes.ErrDisconnected) {
		return protocol.RemoveAnswer{}, err
	}
	if err != nil {
		return protocol.RemoveAnswer{Err: clipError(err)}, ctx.Err()
	}
	return protocol.RemoveAnswer{}, ctx.Err()
}

// isSameRuntime reports whether the instance to remove is on the same runtime as the current one, under another name of that runtime.
func (a *Activities) isSameRuntime(ctx context.Context, r protocol.RemoveRequest) (bool, error) {
	if r.Successor == nil {
		return false, nil
	}
	previous, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if err != nil {
		return false, err
	}
	successor, err := a.connect(ctx, r.Successor.Runtime, r.Successor.RuntimeDigest)
	return err == nil && previous.definition.SamePlace(successor.definition), err
}

// claimRemoval claims an instance for a removal. The removal of an instance that moved to another runtime uses the claim of its successor,
// so it is rejected once there is a later claim.
func (a *Activities) claimRemoval(ctx context.Context, owner runtimes.Owner, r protocol.RemoveRequest, position *runtimes.Fence) (*protocol.Claim, string, error) {
	if successor := r.Successor; successor != nil {
		position = a.fenceOf(successor.Instance, successor.Sequence)
	}
	return a.fence(ctx, owner, position)
}

func (a *Activities) remove(ctx context.Context, owner runtimes.Owner, r protocol.RemoveRequest) error {
	conn, in, err := a.prepareApply(ctx, owner, protocol.ApplyRequest{
		ServiceID: r.ServiceID, Runtime: r.Runtime, RuntimeDigest: r.RuntimeDigest, Instance: r.Instance,
	})
	if err != nil {
		return err
	}
	remover, ok := conn.Runtime.(runtimes.Remover)
	if !ok {
		return fmt.Errorf("runtime %s (%s) does not support removal; remove the objects by hand, then delete without removal", r.Runtime, conn.definition.Kind)
	}
	in.Fence = a.fenceOf(protocol.InstanceRef{ID: r.Instance.ID}, r.Sequence)
	conflict, reason, err := a.claimRemoval(ctx, owner, r, in.Fence)
	if err != nil {
		return err
	}
	if conflict != nil {
		return errors.New(reason)
	}
	if r.Successor == nil { // otherwise the instance continues on another runtime, and its record stays
		a.hints.forget(ctx, owner)
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	err = remover.Remove(ctx, in)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("not removed within %s: %w", r.Timeout, err)
	}
	return err
}
