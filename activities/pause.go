package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
)

// Pause announces to services that their application or a runtime was paused, or resumed (A16). First
// it is kept where services find it that start meanwhile (LoadSpec). It goes through the services in
// order and heartbeats the last one, so that another worker goes on where this one died; announcing it to
// a service twice does no harm, and one that has nothing to do with the runtime ignores it.
func (a *Activities) Pause(ctx context.Context, r protocol.AnnouncePause) error {
	if (r.Application == "") == (r.Runtime == "") {
		return refuse("pause of %q: expected either an application or a runtime", r.Scope)
	}
	if err := a.Store.PutPause(ctx, r.Application, r.ScopePause); err != nil {
		return err
	}
	var last string
	if activity.HasHeartbeatDetails(ctx) {
		_ = activity.GetHeartbeatDetails(ctx, &last) // unreadable: begin with the first
	}
	services, err := a.concerned(ctx, r, last)
	if err != nil {
		return err
	}
	for _, id := range services {
		if id <= last {
			continue
		}
		if ctx.Err() != nil { // another pause, or its end, is to be announced instead
			return ctx.Err()
		}
		if err := present(a.Client.SignalWorkflow(ctx, id, "", protocol.SignalScopePause, r.ScopePause)); err != nil {
			return fmt.Errorf("announce to %s: %w", id, err)
		}
		activity.RecordHeartbeat(ctx, id)
	}
	return nil
}

// concerned lists the workflow ids of the services to announce it to, in order: of an application those that it
// declares, of a runtime all that run.
func (a *Activities) concerned(ctx context.Context, r protocol.AnnouncePause, last string) ([]string, error) {
	if r.Runtime != "" {
		return a.running(ctx, last)
	}
	if r.Manifest == "" {
		return nil, nil // nothing was ever published
	}
	manifest, err := a.Store.Manifest(ctx, r.Manifest)
	if err != nil {
		return nil, err
	}
	var ids []string
	for service := range maps.Keys(manifest) {
		ids = append(ids, protocol.ServiceID(r.Application, service))
	}
	slices.Sort(ids)
	return ids, nil
}

// running lists the Service workflows of the namespace, in order. Each page is a heartbeat, which says
// again which service was the last.
func (a *Activities) running(ctx context.Context, last string) ([]string, error) {
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'", protocol.ServiceWorkflow),
	}
	var ids []string
	for {
		page, err := a.Client.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list services: %w", err)
		}
		activity.RecordHeartbeat(ctx, last)
		for _, e := range page.GetExecutions() {
			ids = append(ids, e.GetExecution().GetWorkflowId())
		}
		if len(page.GetNextPageToken()) == 0 {
			slices.Sort(ids)
			return slices.Compact(ids), nil
		}
		request.NextPageToken = page.GetNextPageToken()
	}
}

// Lease signals a Runtime workflow for a service (C10): a request starts it when there is none, and
// is idempotent by its id, as all leases are. To give back, or to keep, what no workflow knows of
// any more is done already.
func (a *Activities) Lease(ctx context.Context, r protocol.LeaseCall) error {
	id := protocol.RuntimeID(r.Runtime)
	if r.Request != nil {
		_, err := a.Client.SignalWithStartWorkflow(ctx, id, protocol.SignalLease, *r.Request, client.StartWorkflowOptions{
			TaskQueue:     protocol.TaskQueue,
			StaticSummary: "runtime " + r.Runtime,
			StaticDetails: fmt.Sprintf("Who may apply to runtime %s at present, and who waits for it. Its status query says so.", r.Runtime),
		}, protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: r.Runtime, Beginning: protocol.Beginning{Adopt: true}})
		return err
	}
	signal, lease := protocol.SignalGive, r.Give
	if r.Keep != "" {
		signal, lease = protocol.SignalKeep, r.Keep
	}
	if lease == "" {
		return refuse("lease of runtime %s: neither a request nor a lease to give back or to keep", r.Runtime)
	}
	return present(a.Client.SignalWorkflow(ctx, id, "", signal, protocol.LeaseSignal{ID: lease}))
}

// present drops the error that says that there is no such workflow running.
func present(err error) error {
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil
	}
	return err
}
