package activities

import (
	"context"
	"errors"
	"fmt"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// Remove takes an instance down (A24). That it failed is an answer; an error means that the worker
// could not end it, and another one begins again, which does no harm: what is gone stays gone. No
// apply of the instance runs meanwhile in this worker.
func (a *Activities) Remove(ctx context.Context, r protocol.RemoveRequest) (protocol.RemoveAnswer, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(ctx)
	owner := runtimes.Owner{Application: r.Application, Service: r.Service, ID: r.Instance.ID}
	done, err := a.alone(ctx, owner.Key())
	if err != nil {
		return protocol.RemoveAnswer{}, err
	}
	defer done()
	if err := a.remove(ctx, owner, r); err != nil {
		return protocol.RemoveAnswer{Err: runtimes.Clip(err.Error(), 1000)}, ctx.Err()
	}
	return protocol.RemoveAnswer{}, ctx.Err()
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
		return fmt.Errorf("runtime %s (%s) cannot remove what it runs; remove it by hand, then delete without removal", r.Runtime, line.definition.Kind)
	}
	if line.watches {
		a.hints.forget(owner)
	}
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		defer cancel()
	}
	err = remover.Remove(ctx, in)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("not gone within %s: %w", r.Timeout, err)
	}
	return err
}
