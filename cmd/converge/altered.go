package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/deployment"
)

// This file reports what operators did to workflows and activities in Temporal. The status of a service whose observation is paused looks
// as if nothing had changed, so it is an error in addition to the status.

// errPaused means that an operator has paused the workflow: it answers nobody.
var errPaused = errors.New("paused by an operator")

// maxAltered is how many workflows are described at most for the status of several services.
const maxAltered = 20

// altered returns what operators did to the workflow of a service. An error is ignored: the rest of the output does not depend on it.
func (f *Factory) altered(ctx context.Context, n serviceName) []deployment.Alteration {
	api, err := f.client(ctx)
	if err != nil {
		return nil
	}
	all, _ := api.Altered(ctx, n.id())
	return all
}

// alteredIn returns what operators did to the workflows of a target. Errors are ignored, as above.
func (f *Factory) alteredIn(ctx context.Context, t target) (all []deployment.Alteration) {
	if !t.all {
		return f.altered(ctx, t.serviceName)
	}
	if api, err := f.client(ctx); err == nil {
		ids, _ := api.Paused(ctx, t.application)
		for _, id := range ids[:min(len(ids), maxAltered)] {
			one, _ := api.Altered(ctx, id)
			all = append(all, one...)
		}
	}
	return all
}

func joinAltered(all []deployment.Alteration) error {
	var out []error
	for _, a := range all {
		out = append(out, errors.New(alteredText(a)))
	}
	return joinErrors(out)
}

func alteredText(a deployment.Alteration) string {
	return fmt.Sprintf("%s: %s. To undo that: %s", a.Workflow, a.Text(), a.Next())
}

func (a *temporalAPI) Altered(ctx context.Context, workflowID string) (all []deployment.Alteration, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = a.withCurrentID(ctx, workflowID, func(id string) error {
		all, err = deployment.Namespace{Client: a.client, Name: a.namespace}.Altered(ctx, id)
		return a.translate(workflowID, err)
	})
	return all, err
}

func (a *temporalAPI) Paused(ctx context.Context, application string) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	for e, err := range (deployment.Namespace{Client: a.client, Name: a.namespace}).Paused(ctx) {
		if err != nil {
			return ids, a.translate("", err)
		}
		id := e.GetExecution().GetWorkflowId()
		n, service := nameFromExecution(e)
		if application == "" || service && n.application == application || id == protocol.ApplicationID(application) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// rejectedError is why a query was rejected: an operator has paused the workflow, or it has ended.
func (a *temporalAPI) rejectedError(workflowID string, status enumspb.WorkflowExecutionStatus) error {
	if status != enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED {
		return fmt.Errorf("%s: %w", workflowID, errNotFound)
	}
	return a.pausedError(workflowID)
}

// pausedError says who paused a workflow, and how to undo that.
func (a *temporalAPI) pausedError(workflowID string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	text := ""
	if a.client != nil {
		all, _ := deployment.Namespace{Client: a.client, Name: a.namespace}.Altered(ctx, workflowID)
		if err := joinAltered(all); err != nil {
			text = ": " + err.Error()
		}
	}
	return fmt.Errorf("%s is %w%s", workflowID, errPaused, text)
}
