package activities

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// Steer promotes or aborts the rollouts of an instance (H3). A failure is an answer. It does not wait for an apply of the instance,
// because that apply may wait for this rollout.
func (a *Activities) Steer(ctx context.Context, r protocol.SteerRequest) (protocol.SteerAnswer, error) {
	ctx, life := a.lifeline(ctx, "")
	defer life.stop()
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	did, err := a.steer(ctx, r)
	if err != nil {
		return protocol.SteerAnswer{Err: clipError(err)}, nil
	}
	return protocol.SteerAnswer{Actions: did}, nil
}

func (a *Activities) steer(ctx context.Context, r protocol.SteerRequest) ([]string, error) {
	owner := runtimes.Owner{Application: r.Application, Service: r.Service, ID: r.Instance.ID}
	conn, in, err := a.prepareApply(ctx, owner, protocol.ApplyRequest{
		ServiceID: r.ServiceID, Runtime: r.Runtime, RuntimeDigest: r.RuntimeDigest, Instance: r.Instance,
	})
	if err == nil {
		err = a.decrypt(&in)
	}
	if err == nil && r.Action == protocol.Promote { // a pause blocks neither an abort nor a return
		err = a.checkPaused(ctx, r.Application, r.Runtime)
	}
	if err != nil {
		return nil, err
	}
	if r.Action == protocol.Return {
		returner, ok := conn.Runtime.(runtimes.Returner)
		if !ok {
			return []string{"nothing to give up on runtime " + r.Runtime}, nil
		}
		return returner.Return(ctx, in)
	}
	steerer, ok := conn.Runtime.(runtimes.Steerer)
	if !ok {
		return nil, fmt.Errorf("runtime %s (%s) has no rollouts with steps of their own", r.Runtime, conn.definition.Kind)
	}
	return steerer.Steer(ctx, in, runtimes.Steer{Abort: r.Action == protocol.Abort, Full: r.Full, At: r.At})
}
