package connection

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/converter"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Client is a connection to the Temporal server of an installation.
type Client struct {
	temporal           client.Client
	namespace, address string
	// process distinguishes this process from another one with the same request id. The server repeats its answer to the same process;
	// the workflow reports to another process that the request is known.
	process  string
	payloads converter.DataConverter
}

// Temporal returns the connection and its namespace, for publishing and for the worker.
func (a *Client) Temporal() (client.Client, string) { return a.temporal, a.namespace }

// Close ends the connection.
func (a *Client) Close() { a.temporal.Close() }

// Query queries a workflow; it writes no history.
func (a *Client) Query(ctx context.Context, workflowID, query string, into any) error {
	return a.withCurrentID(ctx, workflowID, func(id string) error { return a.query(ctx, id, query, into) })
}

func (a *Client) query(ctx context.Context, workflowID, query string, into any) error {
	return protocol.QueryWhole(func(q protocol.PartsQuery) (json.RawMessage, error) {
		ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
		defer cancel()
		var answer *client.QueryWorkflowWithOptionsResponse
		err := Ask(ctx, func() (err error) {
			answer, err = a.temporal.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
				WorkflowID: workflowID, QueryType: query, Args: []any{q},
				QueryRejectCondition: enumspb.QUERY_REJECT_CONDITION_NOT_COMPLETED_CLEANLY, // a terminated run counts as gone
			})
			return err
		})
		if err != nil {
			return nil, a.translate(workflowID, err)
		}
		if answer.QueryRejected != nil {
			return nil, a.rejectedError(workflowID, answer.QueryRejected.GetStatus())
		}
		var raw json.RawMessage
		err = answer.QueryResult.Get(&raw)
		return raw, err
	}, into)
}

// Update sends an act and waits for the answer. Two calls with the same request id are the same act.
func (a *Client) Update(ctx context.Context, workflowID, verb, requestID string, act, into any) error {
	return a.withCurrentID(ctx, workflowID, func(id string) error { return a.update(ctx, id, verb, requestID, act, into) })
}

func (a *Client) update(ctx context.Context, workflowID, verb, requestID string, act, into any) error {
	content, err := json.Marshal(act)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(content)
	handle, err := a.temporal.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		// The server repeats its answer to the same id without asking the workflow, so another act has another id.
		WorkflowID: workflowID, UpdateName: verb, UpdateID: requestID + "/" + a.process + "/" + verb + "/" + hex.EncodeToString(digest[:8]), Args: []any{act},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return a.translate(workflowID, err)
	}
	return a.translate(workflowID, handle.Get(ctx, into))
}

// Start starts a workflow unless it runs already.
func (a *Client) Start(ctx context.Context, workflowID, workflowType string, input any) error {
	_, err := a.temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflowID, TaskQueue: protocol.TaskQueue, StaticSummary: workflowID,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, workflowType, input)
	return a.translate(workflowID, err)
}

// StartRuntime starts the workflow of a runtime unless it runs already.
func StartRuntime(ctx context.Context, c API, name string) error {
	return c.Start(ctx, protocol.RuntimeID(name), protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: name, StartMode: protocol.StartMode{Adopt: true}})
}

// Services lists the running services of one application, or of all if the name is empty, sorted.
func (a *Client) Services(ctx context.Context, application string) ([]ServiceName, error) {
	var names []ServiceName
	err := a.list(ctx, ofApplication("ExecutionStatus='Running'", application), func(e *workflowpb.WorkflowExecutionInfo) {
		if n, ok := nameFromExecution(e); ok {
			names = append(names, n)
		}
	})
	return SortNames(names), err
}

// EndedServices lists the services whose last run ended abnormally. Some of them may run again.
func (a *Client) EndedServices(ctx context.Context, application string) ([]ServiceName, error) {
	last := map[ServiceName]*workflowpb.WorkflowExecutionInfo{}
	const ended = "ExecutionStatus IN ('Completed','Terminated','Failed','TimedOut','Canceled')"
	err := a.list(ctx, ofApplication(ended, application), func(e *workflowpb.WorkflowExecutionInfo) {
		n, ok := nameFromExecution(e)
		if before := last[n]; ok && (before == nil || e.StartTime.AsTime().After(before.StartTime.AsTime())) {
			last[n] = e
		}
	})
	var names []ServiceName
	for n, e := range last {
		if e.Status != enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
			names = append(names, n)
		}
	}
	return SortNames(names), err
}

// Progress returns what workers currently report of their work for a workflow.
func (a *Client) Progress(ctx context.Context, workflowID string) (all []protocol.Progress, err error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	err = a.withCurrentID(ctx, workflowID, func(id string) error {
		d, err := a.temporal.DescribeWorkflowExecution(ctx, id, "")
		all = nil
		for _, pending := range d.GetPendingActivities() {
			var p protocol.Progress
			if a.payloads.FromPayloads(pending.GetHeartbeatDetails(), &p) != nil || p.Description == "" {
				continue // the details are of another activity
			}
			s := pending.GetState()
			if runs := s == enumspb.PENDING_ACTIVITY_STATE_STARTED || s == enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED; runs || p.IsPutOff() {
				all = append(all, p) // others wait, and their details are of an earlier attempt
			}
		}
		return a.translate(workflowID, err)
	})
	slices.SortFunc(all, func(a, b protocol.Progress) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Description, b.Description))
	})
	return all, err
}

// TerminationReason returns the reason why the last run of a workflow was terminated; empty: it was not.
func (a *Client) TerminationReason(ctx context.Context, workflowID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	d, err := a.temporal.DescribeWorkflowExecution(ctx, workflowID, "")
	if notFound := new(serviceerror.NotFound); errors.As(err, &notFound) {
		return "", nil
	}
	if err != nil || d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED {
		return "", a.translate(workflowID, err)
	}
	events := a.temporal.GetWorkflowHistory(ctx, workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !events.HasNext() {
		return "", nil
	}
	e, err := events.Next()
	return e.GetWorkflowExecutionTerminatedEventAttributes().GetReason(), a.translate(workflowID, err)
}

// HowEnded describes how the last run of a workflow ended, and who ended it; empty: that is unknown.
func (a *Client) HowEnded(ctx context.Context, workflowID string) string {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	d, err := a.temporal.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return ""
	}
	how, _ := activities.HowEnded(ctx, a.temporal, d.GetWorkflowExecutionInfo())
	return how
}

// Applications lists the running applications, sorted.
func (a *Client) Applications(ctx context.Context) ([]string, error) {
	var names []string
	query := fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Running'", protocol.ApplicationWorkflow)
	err := a.list(ctx, query, func(e *workflowpb.WorkflowExecutionInfo) {
		if name, ok := strings.CutPrefix(e.Execution.WorkflowId, protocol.ApplicationID("")); ok {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return names, err
}

// Plans lists the ids of the running plans of one application, or of all if the name is empty, sorted.
func (a *Client) Plans(ctx context.Context, application string) (ids []string, err error) {
	query := fmt.Sprintf("WorkflowType='%s' AND ExecutionStatus='Running'", protocol.PlanWorkflow)
	err = a.list(ctx, query, func(e *workflowpb.WorkflowExecutionInfo) {
		if id := e.Execution.WorkflowId; application == "" || strings.HasPrefix(id, protocol.PlanIDPrefix(application)) {
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	return ids, err
}

// ofApplication returns a visibility query for the services of one application, or of all if the name is empty.
func ofApplication(query, application string) string {
	query = fmt.Sprintf("WorkflowType='%s' AND %s", protocol.ServiceWorkflow, query)
	if application != "" {
		query += fmt.Sprintf(" AND %s='%s'", protocol.AttrApplication, application)
	}
	return query
}

// list calls found for each result of a visibility query.
func (a *Client) list(ctx context.Context, query string, found func(*workflowpb.WorkflowExecutionInfo)) error {
	ctx, cancel := context.WithTimeout(ctx, QueryTimeout)
	defer cancel()
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: a.namespace, Query: query, PageSize: 1000}
	for {
		page, err := a.temporal.ListWorkflow(ctx, request)
		if err != nil {
			return fmt.Errorf("list services: %w", a.translate("", err))
		}
		for _, e := range page.Executions {
			found(e)
		}
		if request.NextPageToken = page.NextPageToken; len(request.NextPageToken) == 0 {
			return nil
		}
	}
}

// Healthy returns why the server does not answer; nil: it does.
func (a *Client) Healthy(ctx context.Context) error {
	_, err := a.temporal.CheckHealth(ctx, &client.CheckHealthRequest{})
	return a.translate("", err)
}

// NewRequestID returns an id that makes a retried call the same call.
func NewRequestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}
