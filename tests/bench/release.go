package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
)

// signalRelease is the one client call that both sides of every comparison begin with.
func signalRelease(ctx context.Context, c client.Client, id, version string) (sent time.Time, err error) {
	sent = time.Now()
	return sent, c.SignalWorkflow(ctx, id, "", protocol.Release, protocol.ReleaseRequest{RequestMeta: protocol.RequestMeta{By: "bench"}, Version: version})
}

// updateRelease releases as `converge release` does.
func updateRelease(ctx context.Context, c client.Client, id, version string) (sent time.Time, err error) {
	sent = time.Now()
	handle, err := c.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: protocol.Release, WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{protocol.ReleaseRequest{RequestMeta: protocol.RequestMeta{By: "bench"}, Version: version}},
	})
	if err == nil {
		err = handle.Get(ctx, nil)
	}
	return sent, err
}

type send func(ctx context.Context, c client.Client, id, version string) (time.Time, error)

// released is one release: when it was sent, and when its first apply began.
type released struct{ sent, returned, began time.Time }

// release sends one and waits until the service rests again: it has been applied in every channel and read, and knows so.
func (w *world) release(ctx context.Context, a application, service, version string, send send) (released, error) {
	first := w.stage.watch(service, channel(1))
	last := first
	if a.channels > 1 {
		last = w.stage.watch(service, channel(a.channels))
	}
	var r released
	var err error
	if r.sent, err = send(ctx, w.client, protocol.ServiceID(a.name, service), version); err != nil {
		return r, err
	}
	r.returned = time.Now()
	if r.began, err = receive(ctx, first.began); err != nil {
		return r, fmt.Errorf("no apply of %s: %w", version, err)
	}
	if last != first {
		if _, err = receive(ctx, last.began); err != nil {
			return r, fmt.Errorf("no apply of %s in %s: %w", version, channel(a.channels), err)
		}
	}
	if _, err = receive(ctx, last.read); err != nil { // that the apply ends with
		return r, fmt.Errorf("no reading after the apply of %s: %w", version, err)
	}
	return r, until(ctx, 2*time.Millisecond, func() (bool, error) { // asked of the server: a query is an action
		d, err := w.describe(ctx, protocol.ServiceID(a.name, service))
		return d.GetPendingWorkflowTask() == nil && !slices.ContainsFunc(d.GetPendingActivities(), func(p *workflow.PendingActivityInfo) bool {
			return p.GetActivityType().GetName() == protocol.ActivityApply
		}), err
	})
}

// converged reports whether a service rests at a version in every channel.
func (w *world) converged(ctx context.Context, a application, service, version string) (bool, error) {
	var s protocol.Status
	value, err := w.client.QueryWorkflow(ctx, protocol.ServiceID(a.name, service), "", protocol.QueryStatus)
	if err == nil {
		err = value.Get(&s)
	}
	return s.Status == "CONVERGED" && s.Version == version, err
}
