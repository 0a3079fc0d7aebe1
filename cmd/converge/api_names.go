package main

import (
	"context"
	"errors"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file finds services by their current names. The workflow id is the first name of the service, and no other service may take that
// name. So a match by workflow id is always right. Only if there is no match, the service may have a new name.

// nameFromExecution returns the current name of the service of a listed workflow.
func nameFromExecution(e *workflowpb.WorkflowExecutionInfo) (serviceName, bool) {
	application, service, ok := protocol.ParseServiceID(e.GetExecution().GetWorkflowId())
	var title string
	if attribute := e.GetSearchAttributes().GetIndexedFields()[protocol.AttrService]; attribute != nil {
		if err := converter.GetDefaultDataConverter().FromPayload(attribute, &title); err == nil && isName(title) {
			service = title
		}
	}
	return serviceName{application, service}, ok
}

// withCurrentID calls a workflow. If no workflow has that id, and the id is one of a service, it calls the service that the application
// knows by that name.
func (a *temporalAPI) withCurrentID(ctx context.Context, workflowID string, call func(id string) error) error {
	if id, ok := a.keys.Load(workflowID); ok {
		return call(id.(string)) //nolint:forcetypeassert // nothing else is stored
	}
	err := call(workflowID)
	application, service, ok := protocol.ParseServiceID(workflowID)
	if !ok || !errors.Is(err, errNotFound) {
		return err
	}
	var status protocol.ApplicationStatus
	if a.query(ctx, protocol.ApplicationID(application), protocol.QueryStatus, &status) != nil {
		return err
	}
	id := protocol.ServiceID(application, status.Names.Key(service))
	if id == workflowID {
		return err
	}
	a.keys.Store(workflowID, id)
	return call(id)
}

// noteRename prints the current name of a service that the user addressed by its first name.
func (f *Factory) noteRename(n serviceName, s protocol.Status) {
	if s.Key != "" && s.Key == n.service {
		f.note("%s was renamed to %s/%s", n, s.Application, s.Service)
	}
}

// currentWorkflowID returns the workflow id of a service, if its application answers.
func (f *Factory) currentWorkflowID(ctx context.Context, n serviceName) string {
	api, err := f.client(ctx)
	if err != nil {
		return n.id()
	}
	var status protocol.ApplicationStatus
	if api.Query(ctx, protocol.ApplicationID(n.application), protocol.QueryStatus, &status) != nil {
		return n.id()
	}
	return protocol.ServiceID(n.application, status.Names.Key(n.service))
}
