package deployment

import (
	"context"
	"errors"
	"iter"
	"strings"

	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/entities/protocol"
)

// Paused yields the open workflows that an operator has paused, or an activity of which, as far as the server lists them: up to a few
// seconds late. A server that is too old to list them yields none.
func (n Namespace) Paused(ctx context.Context) iter.Seq2[*workflowpb.WorkflowExecutionInfo, error] {
	return func(yield func(*workflowpb.WorkflowExecutionInfo, error) bool) {
		for e, err := range n.list(ctx, protocol.PausedQuery) {
			if listsNoPauses(err) || !yield(e, err) {
				return
			}
		}
	}
}

// listsNoPauses reports whether a server refused a query because it does not list pauses.
func listsNoPauses(err error) bool {
	var invalid *serviceerror.InvalidArgument
	return errors.As(err, &invalid) && strings.Contains(invalid.Message, protocol.AttrPaused)
}

// PausesObservation reports whether a listed workflow has a paused observation.
func PausesObservation(e *workflowpb.WorkflowExecutionInfo) bool {
	var entries []string
	if converter.GetDefaultDataConverter().FromPayload(e.GetSearchAttributes().GetIndexedFields()[protocol.AttrPaused], &entries) != nil {
		return false
	}
	for _, entry := range entries {
		if of, found := strings.CutPrefix(entry, "property:activityType="); found && isObservation(of) {
			return true
		}
	}
	return false
}

// examineAltered lists what operators have paused, and what else they changed in the same workflows.
func (n Namespace) examineAltered(ctx context.Context, r *Report) error {
	found := 0
	for e, err := range n.Paused(ctx) {
		if err != nil {
			return err
		}
		if found++; found > maxNamed {
			continue
		}
		all, err := n.Altered(ctx, e.GetExecution().GetWorkflowId())
		if err != nil && !errors.As(err, new(*serviceerror.NotFound)) {
			return err
		}
		for _, a := range all {
			r.AddFinding(PausedByOperator, a.Workflow, a.Text(), a.Next())
		}
	}
	r.AddExamined("workflows with something that an operator paused: %d", found)
	return nil
}
