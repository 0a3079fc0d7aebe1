package activities

import (
	"context"
	"errors"
	"fmt"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

// ErrUnmanaged means that a service is not started because it is unmanaged.
var ErrUnmanaged = errors.New("it is unmanaged")

// Restart starts the workflow of an application, a runtime or a service again from its newest checkpoint. It also notifies a service of
// the last notice of its application; manifest belongs to that notice. A running workflow is left unchanged. An unmanaged service is an
// ErrUnmanaged.
func (a *Activities) Restart(ctx context.Context, id string, manifest incarnation.Manifest, why protocol.Restart) error {
	kind, name, _ := strings.Cut(id, "/")
	beginning := protocol.StartMode{Adopt: true, Restart: &why}
	switch kind {
	case "application":
		return a.restart(ctx, id, name, protocol.ApplicationWorkflow, protocol.ApplicationInput{Application: name, StartMode: beginning},
			attrApplication.ValueSet(name))
	case protocol.InstallationID():
		return a.StartInstallation(ctx, beginning)
	case "runtime":
		return a.restart(ctx, id, name, protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: name, StartMode: beginning})
	}
	application, service, ok := protocol.ParseServiceID(id)
	if !ok {
		return fmt.Errorf("no workflow of Converge has the id %q", id)
	}
	var status protocol.ApplicationStatus
	if err := (services{a}).query(ctx, protocol.ApplicationID(application), &status); err != nil {
		return fmt.Errorf("status of application %s: %w", application, err)
	}
	if _, unmanaged := status.Unmanaged.Of(service); unmanaged {
		return ErrUnmanaged
	}
	last, err := a.withCurrentOrder(ctx, lastNotice(status))
	if err != nil {
		return err
	}
	return a.notifyOrStart(ctx, last, service, manifest[service], &why)
}

// lastNotice returns the last notice that an application sent to its services.
func lastNotice(s protocol.ApplicationStatus) protocol.NotifyRequest {
	r := protocol.NotifyRequest{Application: s.Application, Store: s.Store}
	for _, i := range s.Incarnations {
		if i.Number == s.Notified {
			r.Newest = i
		}
	}
	if s.Pin != nil && s.Pin.Incarnation.Number == s.Notified {
		r.Newest, r.Pinned = s.Pin.Incarnation, true
	}
	return r
}

func (a *Activities) restart(ctx context.Context, id, name, workflow string, input any, attributes ...temporal.SearchAttributeUpdate) error {
	_, err := a.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: id, TaskQueue: protocol.TaskQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary: name, TypedSearchAttributes: temporal.NewSearchAttributes(attributes...),
	}, workflow, input)
	return err
}

// The memo keys of the Installation workflow. From them a worker knows the store of a namespace without asking any other process.
const (
	MemoInstallation = "installation" // its id
	MemoStore        = "store"        // the store's URL, as configured at the worker that started it
	MemoEpoch        = "epoch"        // its epoch, a number
)

// StartInstallation starts the workflow of the store's installation, unless it is running.
func (a *Activities) StartInstallation(ctx context.Context, begin protocol.StartMode) error {
	i, err := a.Store.Installation(ctx)
	if err != nil {
		return err
	}
	pause, err := a.restoredPause(ctx, i)
	if err != nil {
		return err
	}
	_, err = a.Client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: protocol.InstallationID(), TaskQueue: protocol.TaskQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		StaticSummary: "installation " + i.ID, StaticDetails: "The pause of the installation, and the store of this namespace. Its status query shows both.",
		Memo: map[string]any{MemoInstallation: i.ID, MemoStore: a.Store.URL(), MemoEpoch: i.Epoch},
	}, protocol.InstallationWorkflow, protocol.InstallationInput{ID: i.ID, Pause: pause, StartMode: begin})
	return err
}

// restoredPause returns the initial pause of an installation that was restored from a backup. Actions after the backup are unknown.
func (a *Activities) restoredPause(ctx context.Context, i protocol.Installation) (*entities.Pause, error) {
	if i.BackupOf.IsZero() {
		return nil, nil
	}
	pauses, err := a.Store.Pauses(ctx, "", nil)
	for _, p := range pauses {
		if p.Scope == entities.ScopeInstallation && p.Pause.At.After(i.BackupOf) {
			return p.Pause, err
		}
	}
	return nil, err
}
