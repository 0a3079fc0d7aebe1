package connection

import (
	"context"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/deployment"
)

// Altered returns what operators did to a workflow or its activities in Temporal.
func (a *Client) Altered(ctx context.Context, workflowID string) (all []deployment.Alteration, err error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	err = a.withCurrentID(ctx, workflowID, func(id string) error {
		all, err = deployment.Namespace{Client: a.temporal, Name: a.namespace}.Altered(ctx, id)
		return a.translate(workflowID, err)
	})
	return all, err
}

// Paused lists the ids of the workflows of one application and its services, or of all if the name is empty, that an operator has paused, or an
// activity of which.
func (a *Client) Paused(ctx context.Context, application string) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	for e, err := range (deployment.Namespace{Client: a.temporal, Name: a.namespace}).Paused(ctx) {
		if err != nil {
			return ids, a.translate("", err)
		}
		id := e.GetExecution().GetWorkflowId()
		n, service := nameFromExecution(e)
		if application == "" || service && n.Application == application || id == protocol.ApplicationID(application) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
