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

// Pause announces to services that their application or a runtime was paused, or resumed (A16). First
// it is kept where each apply looks (activities/hold.go), and services find it that start meanwhile (LoadSpec): it holds
// for applies however long it takes to announce it. A store that does not answer keeps nobody from hearing of it: it is
// kept there in another attempt. A service that cannot be told is passed over, and named in the answer; one that has
// nothing to do with the runtime ignores it.
func (a *Activities) Pause(ctx context.Context, r protocol.AnnouncePause) (protocol.AnnounceAnswer, error) {
	if everything := r.Scope == entities.ScopeInstallation; (r.Application == "") == (r.Runtime == "" && !everything) {
		return protocol.AnnounceAnswer{}, refuse("pause of %q: expected an application, a runtime or the installation", r.Scope)
	}
	r, err := a.withTurns(ctx, r)
	if err != nil {
		return protocol.AnnounceAnswer{}, err
	}
	kept := a.keepPause(ctx, r)
	a.holds.forget()
	services, err := a.concerned(ctx, r)
	if err != nil {
		return protocol.AnnounceAnswer{}, errors.Join(kept, err)
	}
	all := &reach{tell: func(ctx context.Context, id string) error {
		return present(a.Client.SignalWorkflow(ctx, id, "", protocol.SignalScopePause, protocol.ScopePause{Scope: r.Scope, Pause: r.Pause.Own(id)}))
	}}
	err = all.all(ctx, services)
	return protocol.AnnounceAnswer{Unreached: all.missed}, errors.Join(kept, err)
}

// keepPause keeps a pause, or that it has ended: of which one, for services that were told of it and are away just now.
func (a *Activities) keepPause(ctx context.Context, r protocol.AnnouncePause) error {
	if r.Pause == nil && !r.Ended.IsZero() {
		if err := a.Store.PutPauseEnded(ctx, r.Application, protocol.PauseEnded{Scope: r.Scope, Began: r.Ended}); err != nil {
			return err
		}
	}
	return a.Store.PutPause(ctx, r.Application, r.ScopePause)
}

// concerned lists the workflow ids of the services to announce it to, in order: of an application those that it
// declares, and those that run, which may have heard of it while they were declared; of a runtime and of everything all that run.
func (a *Activities) concerned(ctx context.Context, r protocol.AnnouncePause) ([]string, error) {
	switch {
	case len(r.Only) > 0:
		return slices.Sorted(slices.Values(r.Only)), nil
	case r.Application == "":
		return a.running(ctx, "")
	case r.Manifest == "":
		return nil, nil // nothing was ever published
	}
	manifest, unread := a.Store.Manifest(ctx, r.Manifest)
	ids, err := a.running(ctx, fmt.Sprintf(" AND %s = '%s'", protocol.AttrApplication, r.Application))
	if err != nil && (unread != nil || r.Pause == nil) { // a pause is not held up by who is declared no longer
		return nil, err
	}
	for service := range maps.Keys(manifest) {
		ids = append(ids, protocol.ServiceID(r.Application, service))
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// running lists the Service workflows of the namespace, in order, or those to which something more applies.
func (a *Activities) running(ctx context.Context, more string) ([]string, error) {
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go heartbeats(beating, func() []any { return said(ctx) })
	request := &workflowservice.ListWorkflowExecutionsRequest{
		Query: fmt.Sprintf("WorkflowType = '%s' AND ExecutionStatus = 'Running'%s", protocol.ServiceWorkflow, more),
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
