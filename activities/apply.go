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
	defer a.follows.moved(activity.GetInfo(ctx).WorkflowExecution.ID)
	began := time.Now()
	answer, err := a.applyAlone(ctx, r)
	a.applied(began, r, answer, err)
	return answer, err
}

// applyAlone is Apply for instances that may be written.
func (a *Activities) applyAlone(ctx context.Context, r protocol.ApplyRequest) (protocol.ApplyAnswer, error) {
	ctx, life := a.lifeline(ctx, r.Instance.ID.Key())
	defer life.stop()
	owner := runtimes.Owner{Application: r.Application, Service: r.Service, ID: r.Instance.ID}
	done, err := a.alone(ctx, owner.Key()+"@"+r.Runtime)
	if err != nil {
		return protocol.ApplyAnswer{}, err
	}
	defer done()
	line, in, by, why, err := a.ready(ctx, owner, r)
	if lost := life.heard(ctx); lost != nil {
		return protocol.ApplyAnswer{}, lost
	}
	if err != nil {
		permanent := runtimes.IsPermanent(err) // the owner of the object does not allow it
		return protocol.ApplyAnswer{Err: runtimes.Clip(err.Error(), 1000), Permanent: permanent, Unready: !permanent}, ctx.Err()
	}
	if by != nil {
		return protocol.ApplyAnswer{Err: why, Fenced: by}, ctx.Err()
	}
	told := func(*entities.Reading) {}
	rests := r.Rest > 0 && line.observable() && a.hints.reads()
	if line.watches || rests {
		turn := a.hints.begin(owner)
		told = func(reading *entities.Reading) { a.hints.applied(r, turn, reading, line.watches) }
	}
	answer, err := a.applyAndObserve(ctx, life, line, in, r)
	if err != nil { // another attempt follows
		answer.Reading = nil
	}
	told(answer.Reading)
	answer.AtHand = line.mirrors && answer.Reading != nil
	return answer, err
}

// applyAndObserve applies a prepared instance, unless a lost attempt already did.
func (a *Activities) applyAndObserve(
	ctx context.Context, life *lifeline, line connection, in runtimes.Instance, r protocol.ApplyRequest,
) (protocol.ApplyAnswer, error) {
	if activity.GetInfo(ctx).Attempt > 1 && line.observable() && !r.Restart {
		if before, _ := line.observe(ctx, in, r.FetchTimeout); current(before, in.FullVersion).Stable {
			return protocol.ApplyAnswer{Reading: &before}, ctx.Err()
		}
	}
	life.begins(r.Instance.ID.Channel, "apply of "+r.Instance.FullVersion, r.Timeout)
	answer := answerOf(a.apply(ctx, line, in, r.Timeout))
	if answer.Fenced != nil || !line.observable() {
		return answer, ctx.Err()
	}
	read := time.Now()
	after, output := line.observe(ctx, in, r.FetchTimeout) // a failed apply may have changed things too
	a.read(read, line, after)
	if after.Err != nil {
		a.logFetch(ctx, in, output, after)
	}
	answer.Reading = &after
	return answer, ctx.Err()
}

// reportOnly is the reason why nothing is written in a report-only channel (A25). No decision requests a write there. Any other write is
// rejected before a claim, a connection or a command.
const reportOnly = "its channel is report-only: nothing is applied there"

// ready fetches concurrently, and in parallel to the first heartbeat, everything that is needed before the first write: the payload, the
// runtime connection, a conflicting claim, and the active pauses. An unused claim is harmless.
func (a *Activities) ready(ctx context.Context, owner runtimes.Owner, r protocol.ApplyRequest) (
	line connection, in runtimes.Instance, by *protocol.Claim, why string, err error,
) {
	fence := a.fenceOf(r.Instance, r.Sequence)
	var asked sync.WaitGroup
	var held, unclaimed error
	asked.Go(func() { held = a.held(ctx, r.Application, r.Runtime) })
	asked.Go(func() { by, why, unclaimed = a.fence(ctx, owner, fence) })
	line, in, err = a.prepareApply(ctx, owner, r)
	if err == nil {
		err = a.decrypt(&in)
	}
	asked.Wait()
	in.Fence = fence
	return line, in, by, why, cmp.Or(err, held, unclaimed)
}

// answerOf converts the result of an apply on a runtime.
func answerOf(err error) protocol.ApplyAnswer {
	var fenced *runtimes.FencedError
	switch {
	case err == nil:
		return protocol.ApplyAnswer{}
	case errors.As(err, &fenced):
		return fencedOff(fenced)
	}
	return protocol.ApplyAnswer{Err: runtimes.Clip(err.Error(), 1000), Permanent: runtimes.IsPermanent(err), Unready: runtimes.IsUnready(err)}
}

// try returns an id of this attempt. An activity that starts again after its worker was lost has the same id; the next attempt of the
// decision has another.
func try(ctx context.Context) string {
	info := activity.GetInfo(ctx)
	return info.WorkflowExecution.RunID + "/" + info.ActivityID
}

// alone waits until no other call with that key runs in this worker. It returns a function that releases the key.
func (a *Activities) alone(ctx context.Context, key string) (done func(), err error) {
	for {
		a.mu.Lock()
		running := a.applies[key]
		if running == nil {
			ended := make(chan struct{})
			if a.applies == nil {
				a.applies = map[string]chan struct{}{}
			}
			a.applies[key] = ended
			a.mu.Unlock()
			return func() {
				a.mu.Lock()
				delete(a.applies, key)
				a.mu.Unlock()
				close(ended)
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

func (a *Activities) prepareApply(ctx context.Context, owner runtimes.Owner, r protocol.ApplyRequest) (connection, runtimes.Instance, error) {
	line, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if err != nil {
		return line, runtimes.Instance{}, err
	}
	in, err := a.instance(ctx, runtimes.Instance{
		Owner: owner, ServiceID: r.ServiceID, FullVersion: r.Instance.FullVersion,
		Key: fmt.Sprintf("%s/%s/%s", owner.Key(), r.Instance.FullVersion, r.Instance.Payload), Try: try(ctx), Attempt: r.Attempt,
		Restarted: r.Instance.Restarted, Restart: r.Restart,
	}, r.Instance.Payload, false)
	if r.Restart {
		in.Key += "/" + r.Instance.Restarted.UTC().Format(time.RFC3339Nano)
	}
	if err == nil {
		err = a.mayUse(ctx, line, &in, 0)
	}
	return line, in, err
}

func (a *Activities) apply(ctx context.Context, line connection, in runtimes.Instance, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	output, err := line.Apply(ctx, in)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil {
		err = fmt.Errorf("timed out after %s: %w", timeout, err)
	}
	a.log(ctx, in, store.LogApply, output, err)
	return err
}

// heartbeats sends heartbeats with the progress for another attempt (nil: none) until ctx ends.
func heartbeats(ctx context.Context, details func() []any) {
	ticker := time.NewTicker(beat)
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
	ctx, life := a.lifeline(ctx, "")
	defer life.stop()
	owner := runtimes.Owner{Application: r.Application, Service: r.Service, ID: r.Instance.ID}
	done, err := a.alone(ctx, owner.Key()+"@"+r.Runtime)
	if err != nil {
		return protocol.RemoveAnswer{}, err
	}
	defer done()
	if err := life.heard(ctx); err != nil {
		return protocol.RemoveAnswer{}, err
	}
	if err := a.removalHeld(ctx, r.Application, r.Runtime); err != nil {
		return protocol.RemoveAnswer{Err: runtimes.Clip(err.Error(), 1000)}, ctx.Err()
	}
	renamed, err := a.renamed(ctx, r)
	if renamed {
		return protocol.RemoveAnswer{Renamed: true}, ctx.Err()
	}
	if err == nil {
		life.begins(r.Instance.ID.Channel, "removal", r.Timeout)
		err = a.remove(ctx, owner, r)
	}
	if err != nil {
		return protocol.RemoveAnswer{Err: runtimes.Clip(err.Error(), 1000)}, ctx.Err()
	}
	return protocol.RemoveAnswer{}, ctx.Err()
}

// renamed reports whether the instance to remove is on the same runtime as the current one, under another name of that runtime.
func (a *Activities) renamed(ctx context.Context, r protocol.RemoveRequest) (bool, error) {
	if r.Successor == nil {
		return false, nil
	}
	left, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if err != nil {
		return false, err
	}
	now, err := a.connect(ctx, r.Successor.Runtime, r.Successor.RuntimeDigest)
	return err == nil && left.definition.SamePlace(now.definition), err
}

// claim claims an instance for a removal. The removal of an instance that moved to another runtime uses the claim of its successor, so it
// is rejected once there is a later claim.
func (a *Activities) claim(ctx context.Context, owner runtimes.Owner, r protocol.RemoveRequest, own *runtimes.Fence) (*protocol.Claim, string, error) {
	if after := r.Successor; after != nil {
		own = a.fenceOf(after.Instance, after.Sequence)
	}
	return a.fence(ctx, owner, own)
}

func (a *Activities) remove(ctx context.Context, owner runtimes.Owner, r protocol.RemoveRequest) error {
	line, in, err := a.prepareApply(ctx, owner, protocol.ApplyRequest{
		ServiceID: r.ServiceID, Runtime: r.Runtime, RuntimeDigest: r.RuntimeDigest, Instance: r.Instance,
	})
	if err != nil {
		return err
	}
	remover, ok := line.Runtime.(runtimes.Remover)
	if !ok {
		return fmt.Errorf("runtime %s (%s) does not support removal; remove the objects by hand, then delete without removal", r.Runtime, line.definition.Kind)
	}
	in.Fence = a.fenceOf(protocol.InstanceRef{ID: r.Instance.ID}, r.Sequence)
	by, why, err := a.claim(ctx, owner, r, in.Fence)
	if err != nil {
		return err
	}
	if by != nil {
		return errors.New(why)
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
