package activities

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
)

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
		}, protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: r.Runtime})
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
