package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Pause notifies services that their application or a runtime was paused or resumed (A16). It first stores the pause where each apply
// reads it (activities/hold.go) and where starting services read it (LoadSpec). So it blocks applies even while the notification takes
// long. If the store is unavailable, services are notified anyway, and another attempt stores the pause. A service that cannot be
// notified is skipped and listed in the answer. A service that is not affected ignores the notification.
func (a *Activities) Pause(ctx context.Context, r protocol.AnnouncePause) (protocol.AnnounceAnswer, error) {
	if installation := r.Scope == entities.ScopeInstallation; (r.Application == "") == (r.Runtime == "" && !installation) {
		return protocol.AnnounceAnswer{}, refuse("pause of %q: expected an application, a runtime or the installation", r.Scope)
	}
	r, err := a.withPermits(ctx, r)
	if err != nil {
		return protocol.AnnounceAnswer{}, err
	}
	storeErr := a.storePause(ctx, r)
	a.pauses.reset()
	services, err := a.affectedServices(ctx, r)
	if err != nil {
		return protocol.AnnounceAnswer{}, errors.Join(storeErr, err)
	}
	sender := &broadcast{send: func(ctx context.Context, id string) error {
		return ignoreNotFound(a.Client.SignalWorkflow(ctx, id, "", protocol.SignalScopePause, protocol.ScopePause{Scope: r.Scope, Pause: r.Pause.WithOwnPermit(id)}))
	}}
	err = sender.run(ctx, services)
	return protocol.AnnounceAnswer{Unreached: sender.unreached}, errors.Join(storeErr, err)
}

// storePause stores a pause, or its end with the identity of the pause, for services that know of it and are unavailable now.
func (a *Activities) storePause(ctx context.Context, r protocol.AnnouncePause) error {
	if r.Pause == nil && !r.Ended.IsZero() {
		if err := a.Store.PutPauseEnded(ctx, r.Application, protocol.PauseEnded{Scope: r.Scope, Began: r.Ended}); err != nil {
			return err
		}
	}
	return a.Store.PutPause(ctx, r.Application, r.ScopePause)
}

// affectedServices lists the workflow ids of the services to notify, sorted. For an application these are the declared services and the
// running ones, which may know of the pause from before they were removed. For a runtime or the installation these are all running ones.
func (a *Activities) affectedServices(ctx context.Context, r protocol.AnnouncePause) ([]string, error) {
	switch {
	case len(r.Only) > 0:
		return slices.Sorted(slices.Values(r.Only)), nil
	case r.Application == "":
		return a.runningServices(ctx, "")
	case r.Manifest == "":
		return nil, nil // nothing was published yet
	}
	manifest, manifestErr := a.Store.Manifest(ctx, r.Manifest)
	ids, err := a.runningServices(ctx, fmt.Sprintf(" AND %s = '%s'", protocol.AttrApplication, r.Application))
	if err != nil && (manifestErr != nil || r.Pause == nil) { // a pause does not wait for the list of removed services
		return nil, err
	}
	for service := range maps.Keys(manifest) {
		ids = append(ids, protocol.ServiceID(r.Application, service))
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// runningServices lists the running Service workflows of the namespace, sorted, optionally with an additional filter.
func (a *Activities) runningServices(ctx context.Context, filter string) ([]string, error) {
	heartbeatCtx, stop := context.WithCancel(ctx)
	defer stop()
	go sendHeartbeats(heartbeatCtx, func() []any { return lastProgress(ctx) })
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'%s", protocol.ServiceWorkflow, filter),
	}
	var ids []string
	for {
		page, err := a.Client.ListWorkflow(ctx, request)
		if err != nil {
			return nil, fmt.Errorf("list services: %w", err)
		}
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

// Lease signals a Runtime workflow for a service (C10). A request starts the workflow if there is none. It is idempotent by its id, like
// all leases. Releasing or keeping a lease that no workflow knows succeeds.
func (a *Activities) Lease(ctx context.Context, r protocol.LeaseCall) error {
	id := protocol.RuntimeID(r.Runtime)
	if r.Request != nil {
		_, err := a.Client.SignalWithStartWorkflow(ctx, id, protocol.SignalLease, *r.Request, client.StartWorkflowOptions{
			TaskQueue:     protocol.TaskQueue,
			StaticSummary: "runtime " + r.Runtime,
			StaticDetails: fmt.Sprintf("Leases of runtime %s: who may apply, and who waits. Its status query lists them.", r.Runtime),
		}, protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: r.Runtime, StartMode: protocol.StartMode{Adopt: true}})
		return err
	}
	signal, lease := protocol.SignalGive, r.Return
	if r.Confirm != "" {
		signal, lease = protocol.SignalKeep, r.Confirm
	}
	if lease == "" {
		return refuse("lease of runtime %s: expected a request, or a lease to release or to keep", r.Runtime)
	}
	return ignoreNotFound(a.Client.SignalWorkflow(ctx, id, "", signal, protocol.LeaseSignal{ID: lease}))
}

// ignoreNotFound ignores the error that there is no such running workflow.
func ignoreNotFound(err error) error {
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return nil
	}
	return err
}
