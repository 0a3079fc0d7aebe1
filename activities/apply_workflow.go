package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/failure/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
)

const (
	// workflowGrace is how long a workflow may take to end after its deadline, once it is cancelled.
	workflowGrace = 5 * time.Second
	// attemptMemoKey is the memo key, in a workflow that applies, of the attempt that it was started for.
	attemptMemoKey = "convergeTry"
)

// UserWorkflows runs workflows of users as part of an activity and in its namespace (D28). Payloads are plain JSON even if Converge
// encrypts its own, because the workers of a user do not have Converge's keys.
type UserWorkflows struct {
	Client client.Client
}

// RunWorkflow implements custom.Workflows. The workflow id is derived from the instance, so the server allows one run at a time. The memo
// has the attempt that owns the run.
func (u UserWorkflows) RunWorkflow(ctx context.Context, r custom.WorkflowRequest) ([]byte, error) {
	if protocol.OwnTaskQueue(r.TaskQueue) { // the definition bypassed the compiler
		return nil, runtimes.Permanent(fmt.Errorf("task queue %s is reserved for Converge", r.TaskQueue))
	}
	f := &userWorkflow{
		service: u.Client.WorkflowService(), request: r, namespace: activity.GetInfo(ctx).Namespace,
		execution: &commonpb.WorkflowExecution{WorkflowId: protocol.ApplyWorkflowID(r.ExclusiveKey)},
	}
	if err := f.findOrStart(ctx); err != nil {
		return nil, err
	}
	runtimes.ProgressOf(ctx).SetLocation(fmt.Sprintf("workflow %s, run %s, on task queue %s", f.execution.WorkflowId, f.execution.RunId, r.TaskQueue))
	result, err := f.follow(ctx)
	if ctx.Err() != nil && f.open {
		err = f.end(ctx, err)
	}
	return result, err
}

// userWorkflow is one run of a user's workflow.
type userWorkflow struct {
	service   workflowservice.WorkflowServiceClient
	request   custom.WorkflowRequest
	namespace string
	execution *commonpb.WorkflowExecution
	pageToken []byte
	started   bool // a worker of the user has completed a task
	open      bool
}

// findOrStart finds the run of this attempt, or starts it after the run of another attempt has ended.
func (f *userWorkflow) findOrStart(ctx context.Context) error {
	for {
		found, err := f.service.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{Namespace: f.namespace, Execution: f.execution})
		var notFound *serviceerror.NotFound
		if err != nil && !errors.As(err, &notFound) {
			return runtimes.Unready(fmt.Errorf("describe workflow %s: %w", f.execution.WorkflowId, err))
		}
		last := found.GetWorkflowExecutionInfo()
		var attempt string
		// A workflow that Converge did not start has no memo.
		_ = converter.GetDefaultDataConverter().FromPayload(last.GetMemo().GetFields()[attemptMemoKey], &attempt)
		f.open = last.GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		switch {
		case err == nil && attempt == f.request.AttemptID:
			f.execution.RunId = last.GetExecution().GetRunId()
			return nil
		case f.open:
			earlier := &userWorkflow{service: f.service, namespace: f.namespace, execution: last.GetExecution(), open: true}
			if err := earlier.end(ctx, nil); err != nil {
				return fmt.Errorf("the workflow of an earlier apply is still running: %w", err)
			}
		}
		if err := f.checkPollers(ctx); err != nil {
			return err
		}
		if started, err := f.start(ctx); started || err != nil {
			return err
		}
	}
}

// checkPollers returns an error if no worker polls the task queue. It does not count as an attempt, because the workflow has not started.
func (f *userWorkflow) checkPollers(ctx context.Context) error {
	q, err := f.service.DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
		Namespace: f.namespace, TaskQueue: &taskqueuepb.TaskQueue{Name: f.request.TaskQueue}, TaskQueueType: enumspb.TASK_QUEUE_TYPE_WORKFLOW,
	})
	switch {
	case err != nil:
		return runtimes.Unready(fmt.Errorf("describe task queue %s: %w", f.request.TaskQueue, err))
	case len(q.GetPollers()) == 0:
		return runtimes.Unready(fmt.Errorf("no worker polls task queue %s for workflows in namespace %s", f.request.TaskQueue, f.namespace))
	}
	return nil
}

// start starts a run; false: another run exists.
func (f *userWorkflow) start(ctx context.Context) (bool, error) {
	encoder := converter.GetDefaultDataConverter()
	input, err := encoder.ToPayloads(f.request.Input)
	if err != nil {
		return false, err
	}
	attempt, err := encoder.ToPayload(f.request.AttemptID)
	if err != nil {
		return false, err
	}
	started, err := f.service.StartWorkflowExecution(ctx, &workflowservice.StartWorkflowExecutionRequest{
		Namespace: f.namespace, WorkflowId: f.execution.WorkflowId, RequestId: f.request.AttemptID, Identity: "converge",
		WorkflowType: &commonpb.WorkflowType{Name: f.request.Type}, TaskQueue: &taskqueuepb.TaskQueue{Name: f.request.TaskQueue},
		Input: input, Memo: &commonpb.Memo{Fields: map[string]*commonpb.Payload{attemptMemoKey: attempt}},
		// In case no process is left to end it.
		WorkflowExecutionTimeout: durationpb.New(f.request.Timeout + 2*workflowGrace),
		WorkflowIdReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowIdConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
	})
	var alreadyStarted *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &alreadyStarted) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("start workflow %s: %w", f.request.Type, err)
	}
	f.execution.RunId, f.open = started.GetRunId(), true
	return true, nil
}

// follow reads the events of the run until it is closed.
func (f *userWorkflow) follow(ctx context.Context) ([]byte, error) {
	for {
		history, err := f.service.GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
			Namespace: f.namespace, Execution: f.execution, NextPageToken: f.pageToken, WaitNewEvent: true,
		})
		if err != nil && !waitToRetry(ctx, err) {
			return nil, fmt.Errorf("follow workflow %s: %w", f.execution.WorkflowId, err)
		}
		if err != nil {
			continue
		}
		f.pageToken = history.GetNextPageToken()
		for _, event := range history.GetHistory().GetEvents() {
			result, closed, err := f.processEvent(ctx, event)
			if closed || err != nil {
				return result, err
			}
		}
	}
}

// waitToRetry waits a second before the next request to an unavailable server. It returns false if a retry is useless, or if ctx has ended.
func waitToRetry(ctx context.Context, err error) bool {
	var notFound *serviceerror.NotFound
	var invalid *serviceerror.InvalidArgument
	var denied *serviceerror.PermissionDenied
	if errors.As(err, &notFound) || errors.As(err, &invalid) || errors.As(err, &denied) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Second):
		return true
	}
}

// processEvent processes an event, and returns the result if the run has ended.
func (f *userWorkflow) processEvent(ctx context.Context, e *historypb.HistoryEvent) (result []byte, closed bool, err error) {
	switch e.GetEventType() {
	case enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
		f.started = true
		return nil, false, nil
	case enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED:
		if f.started { // its workers retry, and may be fixed in the meantime
			return nil, false, nil
		}
		err = fmt.Errorf("the workers of task queue %s cannot start it: %s", f.request.TaskQueue, e.GetWorkflowTaskFailedEventAttributes().GetFailure().GetMessage())
		return nil, false, errors.Join(err, f.terminate(ctx, "its workers cannot start it"))
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
		f.execution.RunId, f.pageToken = e.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId(), nil
		return nil, false, nil
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
		result, err = resultJSON(e.GetWorkflowExecutionCompletedEventAttributes().GetResult())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
		err = workflowError(e.GetWorkflowExecutionFailedEventAttributes().GetFailure())
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
		err = errors.New("it timed out, and the server ended it")
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
		err = errors.New("it was cancelled")
	case enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
		err = fmt.Errorf("it was terminated: %s", e.GetWorkflowExecutionTerminatedEventAttributes().GetReason())
	default:
		return nil, false, nil
	}
	f.open = false
	return result, true, err
}

// workflowError returns the failure of a workflow. It is permanent if the workflow says so.
func workflowError(f *failure.Failure) error {
	err := temporal.GetDefaultFailureConverter().FailureToError(f)
	if f.GetApplicationFailureInfo().GetNonRetryable() {
		return runtimes.Permanent(err)
	}
	return err
}

// resultJSON returns the result of a workflow as JSON, or nil if there is none.
func resultJSON(result *commonpb.Payloads) ([]byte, error) {
	for _, p := range result.GetPayloads() {
		switch encoding := string(p.GetMetadata()[converter.MetadataEncoding]); {
		case encoding == converter.MetadataEncodingNil:
		case encoding != converter.MetadataEncodingJSON || !json.Valid(p.GetData()):
			return nil, runtimes.Permanent(fmt.Errorf("its result is not JSON (encoding %q); expected a JSON value or nothing", encoding))
		default:
			return append(p.GetData(), '\n'), nil
		}
	}
	return nil, nil
}

// end ends the run if necessary: because its timeout passed, because its end was requested, or because another attempt starts (a nil
// err). A run that was only cut off from this worker continues. The limit for ending is the deadline of ctx, or the grace.
func (f *userWorkflow) end(ctx context.Context, err error) error {
	cause, deadline := context.Cause(ctx), time.Now().Add(workflowGrace)
	switch {
	case errors.Is(cause, runtimes.ErrStopRequested):
		if until, bounded := ctx.Deadline(); bounded && until.After(deadline) {
			deadline = until
		}
	case ctx.Err() != nil && !errors.Is(cause, context.DeadlineExceeded):
		return err
	}
	life := runtimes.LifelineOf(ctx)
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	go func() { // a terminated run gets no grace
		ticker := time.NewTicker(100 * time.Millisecond)
		defer ticker.Stop()
		for !life.Expired() {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
		cancel()
	}()
	_, cancelErr := f.service.RequestCancelWorkflowExecution(ctx, &workflowservice.RequestCancelWorkflowExecutionRequest{
		Namespace: f.namespace, WorkflowExecution: f.execution, Reason: "the apply was cancelled",
	})
	if cancelErr == nil {
		_, _ = f.follow(ctx) // its result does not matter any more
	}
	if f.open {
		return errors.Join(err, f.terminate(context.WithoutCancel(ctx), "it did not end when it was cancelled"))
	}
	return err
}

// terminate terminates the run at once.
func (f *userWorkflow) terminate(ctx context.Context, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, workflowGrace)
	defer cancel()
	_, err := f.service.TerminateWorkflowExecution(ctx, &workflowservice.TerminateWorkflowExecutionRequest{
		Namespace: f.namespace, WorkflowExecution: f.execution, Reason: reason, Identity: "converge",
	})
	var notFound *serviceerror.NotFound
	if err != nil && !errors.As(err, &notFound) {
		return fmt.Errorf("terminate workflow %s: %w", f.execution.WorkflowId, err)
	}
	f.open = false
	return nil
}
