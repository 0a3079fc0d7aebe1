package connection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/worker/deployment"
)

// These errors are the causes of a failed call that callers must distinguish.
var (
	ErrNotFound = errors.New("not found")
	ErrNoWorker = errors.New("no worker answers")
	ErrLost     = errors.New("connection lost")
	ErrNoServer = errors.New("no Temporal server")
)

// RefusedError is an act that was refused; nothing changed.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return "refused: " + e.Reason }

// unreachableError is an ErrNoServer: the server does not answer, or not yet.
type unreachableError struct{ text string }

func (e *unreachableError) Error() string { return e.text }

func (e *unreachableError) Is(target error) bool { return target == ErrNoServer }

// ErrPaused means that an operator has paused the workflow: it answers no call.
var ErrPaused = errors.New("paused by an operator")

// translate maps an error to one that verbs and users can distinguish.
func (a *Client) translate(workflowID string, err error) error {
	var application *temporal.ApplicationError
	var notFound *serviceerror.NotFound
	var noNamespace *serviceerror.NamespaceNotFound
	var unavailable *serviceerror.Unavailable
	var exhausted *serviceerror.ResourceExhausted
	var deadline *serviceerror.DeadlineExceeded
	var notReady *serviceerror.WorkflowNotReady // the run was just ending; the same act may be sent again
	switch {
	case err == nil:
		return nil
	case errors.As(err, &application) && application.Type() == protocol.ErrRefused:
		return &RefusedError{codec.Refusal(application.Message())}
	case errors.As(err, &application):
		return errors.New(codec.Refusal(application.Message()))
	case errors.As(err, &noNamespace):
		return fmt.Errorf("no namespace %q on the Temporal server at %s", a.namespace, a.address)
	case errors.As(err, &notFound):
		return fmt.Errorf("%s: %w", workflowID, ErrNotFound)
	case errors.As(err, &deadline), errors.Is(err, context.DeadlineExceeded), isNoPoller(err):
		return a.timeoutError(workflowID)
	case isPausedWorkflow(err):
		return a.pausedError(workflowID)
	case errors.As(err, &notReady) && strings.Contains(err.Error(), "failed state"):
		return fmt.Errorf("%w for %s: a worker failed on it%s; see the worker's log", ErrNoWorker, workflowID, a.taskFailure(workflowID))
	case errors.As(err, &unavailable), errors.As(err, &exhausted), errors.As(err, &notReady):
		return fmt.Errorf("%w: Temporal server at %s: %s", ErrLost, a.address, cause(err))
	case workflowID != "": // for example a worker that cannot replay it; the id says which of many services failed
		return fmt.Errorf("%s: %w", workflowID, err)
	}
	return err
}

// timeoutError finds out why a call timed out: the server is unreachable, a worker fails at this workflow, or there is no worker.
func (a *Client) timeoutError(workflowID string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if workflowID == "" {
		return fmt.Errorf("%w: the Temporal server at %s took too long", ErrLost, a.address)
	}
	description, err := a.temporal.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return fmt.Errorf("%w: no answer from the Temporal server at %s", ErrLost, a.address)
	}
	if description.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED {
		return a.pausedError(workflowID)
	}
	if attempt := description.GetPendingWorkflowTask().GetAttempt(); attempt > 1 {
		return fmt.Errorf("%w for %s: a worker failed on it, attempt %d%s; see the worker's log", ErrNoWorker, workflowID, attempt, a.taskFailure(workflowID))
	}
	return fmt.Errorf("%w for %s; %s", ErrNoWorker, workflowID, NextWithoutAnswer(a.temporal))
}

// taskFailure returns the version of the worker that failed at a workflow, and its error. It returns "" if they are unknown.
func (a *Client) taskFailure(workflowID string) string {
	if a.temporal == nil || workflowID == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	f, failed, err := deployment.Namespace{Client: a.temporal, Name: a.namespace}.LastFailure(ctx, workflowID, "")
	if err != nil || !failed {
		return ""
	}
	return ": " + f.Text()
}

// isNoPoller recognizes a query that no worker polled.
func isNoPoller(err error) bool {
	var precondition *serviceerror.FailedPrecondition
	var rejected *serviceerror.QueryFailed
	return errors.As(err, &precondition) && strings.Contains(precondition.Message, "no poller") ||
		errors.As(err, &rejected) && strings.Contains(rejected.Message, "no poller")
}

// isPausedWorkflow recognizes an update that was refused because an operator has paused the workflow.
func isPausedWorkflow(err error) bool {
	var precondition *serviceerror.FailedPrecondition
	return errors.As(err, &precondition) && strings.Contains(precondition.Message, "Workflow is paused")
}

// Transient reports whether an error passes without intervention.
func Transient(err error) bool { return errors.Is(err, ErrLost) || errors.Is(err, ErrNoWorker) }

// rejectedError is why a query was rejected: an operator has paused the workflow, or it has ended.
func (a *Client) rejectedError(workflowID string, status enumspb.WorkflowExecutionStatus) error {
	if status != enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED {
		return fmt.Errorf("%s: %w", workflowID, ErrNotFound)
	}
	return a.pausedError(workflowID)
}

// pausedError says who paused a workflow, and how to undo that.
func (a *Client) pausedError(workflowID string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	text := ""
	if a.temporal != nil {
		all, _ := deployment.Namespace{Client: a.temporal, Name: a.namespace}.Altered(ctx, workflowID)
		if err := JoinAltered(all); err != nil {
			text = ": " + err.Error()
		}
	}
	return fmt.Errorf("%s is %w%s", workflowID, ErrPaused, text)
}

// JoinAltered says what operators did, each with how to undo it.
func JoinAltered(all []deployment.Alteration) error {
	var out []error
	for _, a := range all {
		out = append(out, errors.New(AlteredText(a)))
	}
	return JoinErrors(out)
}

// AlteredText says what an operator did, and how to undo it.
func AlteredText(a deployment.Alteration) string {
	return fmt.Sprintf("%s: %s. To undo that: %s", a.Workflow, a.Text(), a.Next())
}

// JoinErrors joins errors. It counts them if there are many, because they usually have one cause.
func JoinErrors(all []error) error {
	const limit = 3
	var out []error
	more := 0
	for _, err := range all {
		switch {
		case err == nil:
		case len(out) < limit:
			out = append(out, err)
		default:
			more++
		}
	}
	if more > 0 {
		out = append(out, fmt.Errorf("and %d more", more))
	}
	return errors.Join(out...)
}
