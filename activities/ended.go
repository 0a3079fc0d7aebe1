package activities

import (
	"context"
	"errors"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// ReasonDeleted is why a workflow is gone that the server does not know any more.
const ReasonDeleted = "its workflow was deleted"

// maxReason is the limit on the text of an operator, or of an error, in a reason, in bytes.
const maxReason = 300

// HowEnded describes how a run ended, and who ended it; it is empty while the run continues. With an error it does not say who.
func HowEnded(ctx context.Context, c client.Client, run *workflowpb.WorkflowExecutionInfo) (how string, err error) {
	switch run.GetStatus() {
	case enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED,
		enumspb.WORKFLOW_EXECUTION_STATUS_CONTINUED_AS_NEW: // into a run that is listed soon
		return "", nil
	case enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED:
		how = "its workflow was terminated"
	default:
		how = "its workflow ended: " + strings.ToLower(run.GetStatus().String())
	}
	who, err := closeText(ctx, c, run)
	return how + who, err
}

// closeText is who ended a run and why, or the failure with which it ended.
func closeText(ctx context.Context, c client.Client, run *workflowpb.WorkflowExecutionInfo) (string, error) {
	events := c.GetWorkflowHistory(ctx, run.GetExecution().GetWorkflowId(), run.GetExecution().GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !events.HasNext() {
		return "", nil
	}
	e, err := events.Next()
	if err != nil {
		return "", err
	}
	by := e.GetWorkflowExecutionTerminatedEventAttributes()
	text := ""
	if by.GetIdentity() != "" {
		text = " by " + by.GetIdentity()
	}
	if reason := by.GetReason() + e.GetWorkflowExecutionFailedEventAttributes().GetFailure().GetMessage(); reason != "" {
		text += ": " + reason
	}
	return entities.Clip(entities.Visible(text), maxReason), nil
}

// whyEnded returns how the run that wrote a checkpoint ended, or "" if that is unknown. Only a text for people depends on it.
func (a *Activities) whyEnded(ctx context.Context, c protocol.Checkpoint) string {
	d, err := a.Client.DescribeWorkflowExecution(ctx, c.ID, c.Run)
	if err == nil {
		how, _ := HowEnded(ctx, a.Client, d.GetWorkflowExecutionInfo())
		return how
	}
	i, storeErr := a.Store.Installation(ctx)
	if !errors.As(err, new(*serviceerror.NotFound)) || storeErr != nil || c.WrittenBefore(i) {
		return ""
	}
	return ReasonDeleted
}
