package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	workflowpb "go.temporal.io/api/workflow/v1"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file finds services by their current names. The workflow id is the first name of the service, and no other service may take that
// name. So a match by workflow id is always right. Only if there is no match, the service may have a new name.

// ServiceName addresses a service.
type ServiceName struct{ Application, Service string }

func (n ServiceName) String() string { return n.Application + "/" + n.Service }

// Compare orders names by application and service.
func (n ServiceName) Compare(other ServiceName) int {
	return cmp.Or(strings.Compare(n.Application, other.Application), strings.Compare(n.Service, other.Service))
}

// ID is its workflow id.
func (n ServiceName) ID() string { return protocol.ServiceID(n.Application, n.Service) }

// SortNames sorts names, and returns them.
func SortNames(names []ServiceName) []ServiceName {
	slices.SortFunc(names, func(a, b ServiceName) int { return a.Compare(b) })
	return names
}

var namePattern = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

// IsName reports whether a text may be the name of an application, a service, a channel or a runtime.
func IsName(name string) bool { return len(name) <= 63 && namePattern.MatchString(name) }

// nameFromExecution returns the current name of the service of a listed workflow.
func nameFromExecution(e *workflowpb.WorkflowExecutionInfo) (ServiceName, bool) {
	application, service, ok := protocol.ParseServiceID(e.GetExecution().GetWorkflowId())
	var title string
	if attribute := e.GetSearchAttributes().GetIndexedFields()[protocol.AttrService]; attribute != nil {
		if err := converter.GetDefaultDataConverter().FromPayload(attribute, &title); err == nil && IsName(title) {
			service = title
		}
	}
	return ServiceName{application, service}, ok
}

// withCurrentID calls a workflow. If no workflow has that id, and the id is one of a service, it calls the service that the application
// knows by that name.
func (a *Client) withCurrentID(ctx context.Context, workflowID string, call func(id string) error) error {
	err := call(workflowID)
	application, service, ok := protocol.ParseServiceID(workflowID)
	if !ok || !errors.Is(err, ErrNotFound) {
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
	return call(id)
}

// ServiceFilter selects services by what Temporal lists of them. Zero fields select all.
type ServiceFilter struct {
	Application, Status string
	ChangedSince        time.Time // those of which Temporal lists something else since then
}

// ListedService is a service as Temporal lists it: what its workflow said when it last changed, some seconds ago at most.
type ListedService struct {
	ServiceName
	WorkflowID, RunID string
	Status, Version   string
	WaitingFor        []string
	Changed           time.Time // when one of the three last changed
}

// ListServices returns a page of the running services, and the token of the next page; an empty one: it is the last.
func (a *Client) ListServices(ctx context.Context, filter ServiceFilter, size int, token []byte) (page []ListedService, next []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	query := ofApplication("ExecutionStatus='Running'", filter.Application)
	if filter.Status != "" {
		query += fmt.Sprintf(" AND %s='%s'", protocol.AttrStatus, filter.Status)
	}
	if !filter.ChangedSince.IsZero() {
		query += fmt.Sprintf(" AND %s >= '%s'", protocol.AttrChanged, filter.ChangedSince.UTC().Format(time.RFC3339Nano))
	}
	listed, err := a.temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{
		Namespace: a.namespace, Query: query, PageSize: int32(size), NextPageToken: token, //nolint:gosec // the caller bounds the size
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list services: %w", a.translate("", err))
	}
	for _, e := range listed.GetExecutions() {
		n, ok := nameFromExecution(e)
		if !ok {
			continue
		}
		l, fields := ListedService{ServiceName: n, WorkflowID: e.GetExecution().GetWorkflowId(), RunID: e.GetExecution().GetRunId()}, e.GetSearchAttributes().GetIndexedFields()
		for attribute, into := range map[string]any{protocol.AttrStatus: &l.Status, protocol.AttrVersion: &l.Version, protocol.AttrWaitingFor: &l.WaitingFor, protocol.AttrChanged: &l.Changed} {
			if p := fields[attribute]; p != nil {
				_ = converter.GetDefaultDataConverter().FromPayload(p, into) // an attribute of another type is none of ours
			}
		}
		page = append(page, l)
	}
	return page, listed.GetNextPageToken(), nil
}
