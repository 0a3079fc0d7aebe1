package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/grpc"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/codec"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/deployment"
)

// API is the interface of the verbs to Temporal. Its errors are errRefused, errNotFound, errNoWorker, errLost, or others that a retry
// does not fix.
type API interface {
	// Query queries a workflow; it writes no history.
	Query(ctx context.Context, workflowID, query string, into any) error
	// Update sends an act and waits for the answer. Two calls with the same request id are the same act.
	Update(ctx context.Context, workflowID, verb, requestID string, act, into any) error
	// Start starts a workflow unless it runs already.
	Start(ctx context.Context, workflowID, workflowType string, input any) error
	// Services lists the running services of one application, or of all if the name is empty. The list is sorted.
	Services(ctx context.Context, application string) ([]serviceName, error)
	// EndedServices lists, with the same parameter and order, the services whose last run ended abnormally. Some of them may run again.
	EndedServices(ctx context.Context, application string) ([]serviceName, error)
	// Progress returns what workers currently report of their work for a workflow.
	Progress(ctx context.Context, workflowID string) ([]protocol.Progress, error)
	// Altered returns what operators did to a workflow or its activities in Temporal.
	Altered(ctx context.Context, workflowID string) ([]deployment.Alteration, error)
	// Paused lists the ids of the workflows of one application and its services, or of all if the name is empty, that an operator has
	// paused, or an activity of which.
	Paused(ctx context.Context, application string) ([]string, error)
	// TerminationReason returns the reason why the last run of a workflow was terminated. It is empty if the run was not terminated.
	TerminationReason(ctx context.Context, workflowID string) (reason string, err error)
	// HowEnded describes how the last run of a workflow ended, and who ended it. It is empty if that is unknown.
	HowEnded(ctx context.Context, workflowID string) string
	// Applications lists the running applications, sorted.
	Applications(ctx context.Context) ([]string, error)
	// Plans lists the ids of the running plans of one application, or of all if the name is empty. The list is sorted.
	Plans(ctx context.Context, application string) ([]string, error)
	// Temporal returns the connection and its namespace, for publishing and for the worker.
	Temporal() (c client.Client, namespace string)
	Close()
}

// These errors are the causes of a failed call that callers must distinguish.
var (
	errNotFound = errors.New("not found")
	errNoWorker = errors.New("no worker answers")
	errLost     = errors.New("connection lost")
	errNoServer = errors.New("no Temporal server")
)

// refusedError is an act that was refused; nothing changed.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return "refused: " + e.reason }

// unreachableError is an errNoServer: the server does not answer, or not yet.
type unreachableError struct{ text string }

func (e *unreachableError) Error() string { return e.text }

func (e *unreachableError) Is(target error) bool { return target == errNoServer }

// connection says how to reach the server. Empty fields come from the environment or the profile.
type connection struct {
	address, namespace, profile string
	identity                    string       // identity of this process for the server; empty: converge
	local                       bool         // use the server of converge dev and ignore the environment
	log                         *slog.Logger // log of the SDK; nil: none
	dial                        []grpc.DialOption
	metrics                     client.MetricsHandler           // of the SDK; nil: none
	interceptors                []interceptor.ClientInterceptor // around calls
	payloads                    *codec.Codec                    // nil: nothing is encrypted
	ownKeys                     bool                            // payloads are decrypted with own keys, never with a codec server
}

const (
	dialTimeout  = 5 * time.Second
	queryTimeout = 10 * time.Second
)

// options follows Temporal's own conventions: flags over environment over profile over defaults.
func (c connection) options() (client.Options, error) {
	var o client.Options
	if !c.local {
		profile, err := envconfig.LoadClientConfigProfile(envconfig.LoadClientConfigProfileOptions{ConfigFileProfile: c.profile})
		if err == nil {
			o, err = profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
		}
		if err != nil {
			return o, fmt.Errorf("read Temporal's connection settings: %w", err)
		}
		if server := profile.Codec; server != nil && server.Endpoint != "" && !c.ownKeys && !c.payloads.Keyed() {
			c.payloads = codec.Remote(server.Endpoint, server.Auth, cmp.Or(c.namespace, o.Namespace))
		}
	}
	if c.payloads == nil {
		c.payloads = &codec.Codec{}
	}
	o.DataConverter, o.FailureConverter = c.payloads.Converters()
	if c.address != "" {
		o.HostPort = c.address
	}
	if o.HostPort == "" {
		o.HostPort = "127.0.0.1:7233"
	}
	if c.namespace != "" {
		o.Namespace = c.namespace
	}
	if o.Namespace == "" {
		o.Namespace = client.DefaultNamespace
	}
	o.Identity = cmp.Or(c.identity, "converge")
	o.MetricsHandler, o.Interceptors = c.metrics, c.interceptors
	o.Logger = sdklog.NewStructuredLogger(cmp.Or(c.log, slog.New(slog.DiscardHandler)))
	o.ConnectionOptions.GetSystemInfoTimeout = dialTimeout
	o.ConnectionOptions.GrpcCompression = worker.Compression(o.HostPort)
	o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, c.dial...)
	return o, nil
}

// dial connects, or says how to get a server to connect to.
func dial(ctx context.Context, c connection) (API, error) {
	o, err := c.options()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	tc, err := client.DialContext(ctx, o)
	if err != nil {
		return nil, connectError(o.HostPort, err)
	}
	return &temporalAPI{client: tc, namespace: o.Namespace, address: o.HostPort, process: newRequestID(), payloads: o.DataConverter}, nil
}

func connectError(address string, err error) error {
	text := fmt.Sprintf("no Temporal server at %s (%s); start one with: converge dev, or name one with --address", address, cause(err))
	if strings.Contains(err.Error(), "not healthy") {
		text = fmt.Sprintf("the Temporal server at %s is starting or stopping (%s); try again in a few seconds", address, cause(err))
	}
	if errors.As(err, new(*serviceerror.Unavailable)) || errors.As(err, new(*serviceerror.DeadlineExceeded)) || errors.Is(err, context.DeadlineExceeded) {
		return &unreachableError{text}
	}
	return errors.New(text)
}

// cause returns the end of a gRPC error, which is the part that helps a user.
func cause(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "desc = "); i >= 0 {
		text = text[i+len("desc = "):]
	}
	if i := strings.LastIndex(text, "dial tcp "); i >= 0 {
		if _, rest, ok := strings.Cut(text[i+len("dial tcp "):], ": "); ok {
			text = rest
		}
	}
	if strings.Contains(text, "no children to pick from") { // gRPC's message for an unreachable server
		return "no such host"
	}
	return strings.TrimPrefix(strings.TrimPrefix(strings.Trim(text, `"`), "failed reaching server: "), "connect: ")
}

type temporalAPI struct {
	client             client.Client
	namespace, address string
	// process distinguishes this process from another one with the same request id. The server repeats its answer to the same process;
	// the workflow reports to another process that the request is known.
	process  string
	payloads converter.DataConverter
	keys     sync.Map // from the workflow id by current name to the real workflow id, for renamed services
}

func (a *temporalAPI) Temporal() (client.Client, string) { return a.client, a.namespace }
func (a *temporalAPI) Close()                            { a.client.Close() }

func (a *temporalAPI) Query(ctx context.Context, workflowID, query string, into any) error {
	return a.withCurrentID(ctx, workflowID, func(id string) error { return a.query(ctx, id, query, into) })
}

func (a *temporalAPI) query(ctx context.Context, workflowID, query string, into any) error {
	return protocol.QueryWhole(func(q protocol.PartsQuery) (json.RawMessage, error) {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		var answer *client.QueryWorkflowWithOptionsResponse
		err := publish.Ask(ctx, func() (err error) {
			answer, err = a.client.QueryWorkflowWithOptions(ctx, &client.QueryWorkflowWithOptionsRequest{
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

func (a *temporalAPI) Update(ctx context.Context, workflowID, verb, requestID string, act, into any) error {
	return a.withCurrentID(ctx, workflowID, func(id string) error { return a.update(ctx, id, verb, requestID, act, into) })
}

func (a *temporalAPI) update(ctx context.Context, workflowID, verb, requestID string, act, into any) error {
	handle, err := a.client.UpdateWorkflow(ctx, client.UpdateWorkflowOptions{
		WorkflowID: workflowID, UpdateName: verb, UpdateID: requestID + "/" + a.process, Args: []any{act},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return a.translate(workflowID, err)
	}
	return a.translate(workflowID, handle.Get(ctx, into))
}

func (a *temporalAPI) Start(ctx context.Context, workflowID, workflowType string, input any) error {
	_, err := a.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: workflowID, TaskQueue: protocol.TaskQueue, StaticSummary: workflowID,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
	}, workflowType, input)
	return a.translate(workflowID, err)
}

func (a *temporalAPI) Services(ctx context.Context, application string) ([]serviceName, error) {
	var names []serviceName
	err := a.list(ctx, ofApplication("ExecutionStatus='Running'", application), func(e *workflowpb.WorkflowExecutionInfo) {
		if n, ok := nameFromExecution(e); ok {
			names = append(names, n)
		}
	})
	return sortNames(names), err
}

func (a *temporalAPI) EndedServices(ctx context.Context, application string) ([]serviceName, error) {
	last := map[serviceName]*workflowpb.WorkflowExecutionInfo{}
	const ended = "ExecutionStatus IN ('Completed','Terminated','Failed','TimedOut','Canceled')"
	err := a.list(ctx, ofApplication(ended, application), func(e *workflowpb.WorkflowExecutionInfo) {
		n, ok := nameFromExecution(e)
		if before := last[n]; ok && (before == nil || e.StartTime.AsTime().After(before.StartTime.AsTime())) {
			last[n] = e
		}
	})
	var names []serviceName
	for n, e := range last {
		if e.Status != enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
			names = append(names, n)
		}
	}
	return sortNames(names), err
}

func (a *temporalAPI) Progress(ctx context.Context, workflowID string) (all []protocol.Progress, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = a.withCurrentID(ctx, workflowID, func(id string) error {
		d, err := a.client.DescribeWorkflowExecution(ctx, id, "")
		all = nil
		for _, pending := range d.GetPendingActivities() {
			if s := pending.GetState(); s != enumspb.PENDING_ACTIVITY_STATE_STARTED && s != enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED {
				continue // its details are of an earlier attempt
			}
			var p protocol.Progress
			// Otherwise the details are of another activity.
			if a.payloads.FromPayloads(pending.GetHeartbeatDetails(), &p) == nil && p.Description != "" {
				all = append(all, p)
			}
		}
		return a.translate(workflowID, err)
	})
	slices.SortFunc(all, func(a, b protocol.Progress) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Description, b.Description))
	})
	return all, err
}

func (a *temporalAPI) TerminationReason(ctx context.Context, workflowID string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	d, err := a.client.DescribeWorkflowExecution(ctx, workflowID, "")
	if notFound := new(serviceerror.NotFound); errors.As(err, &notFound) {
		return "", nil
	}
	if err != nil || d.GetWorkflowExecutionInfo().GetStatus() != enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED {
		return "", a.translate(workflowID, err)
	}
	events := a.client.GetWorkflowHistory(ctx, workflowID, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
	if !events.HasNext() {
		return "", nil
	}
	e, err := events.Next()
	return e.GetWorkflowExecutionTerminatedEventAttributes().GetReason(), a.translate(workflowID, err)
}

func (a *temporalAPI) HowEnded(ctx context.Context, workflowID string) string {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	d, err := a.client.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return ""
	}
	how, _ := activities.HowEnded(ctx, a.client, d.GetWorkflowExecutionInfo())
	return how
}

func (a *temporalAPI) Applications(ctx context.Context) ([]string, error) {
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

func (a *temporalAPI) Plans(ctx context.Context, application string) (ids []string, err error) {
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
func (a *temporalAPI) list(ctx context.Context, query string, found func(*workflowpb.WorkflowExecutionInfo)) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: a.namespace, Query: query, PageSize: 1000}
	for {
		page, err := a.client.ListWorkflow(ctx, request)
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

// translate maps an error to one that verbs and users can distinguish.
func (a *temporalAPI) translate(workflowID string, err error) error {
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
		return &refusedError{codec.Refusal(application.Message())}
	case errors.As(err, &application):
		return errors.New(codec.Refusal(application.Message()))
	case errors.As(err, &noNamespace):
		return fmt.Errorf("no namespace %q on the Temporal server at %s", a.namespace, a.address)
	case errors.As(err, &notFound):
		return fmt.Errorf("%s: %w", workflowID, errNotFound)
	case errors.As(err, &deadline), errors.Is(err, context.DeadlineExceeded), isNoPoller(err):
		return a.timeoutError(workflowID)
	case isPausedWorkflow(err):
		return a.pausedError(workflowID)
	case errors.As(err, &notReady) && strings.Contains(err.Error(), "failed state"):
		return fmt.Errorf("%w for %s: a worker failed on it%s; see the worker's log", errNoWorker, workflowID, a.taskFailure(workflowID))
	case errors.As(err, &unavailable), errors.As(err, &exhausted), errors.As(err, &notReady):
		return fmt.Errorf("%w: Temporal server at %s: %s", errLost, a.address, cause(err))
	case workflowID != "": // for example a worker that cannot replay it; the id says which of many services failed
		return fmt.Errorf("%s: %w", workflowID, err)
	}
	return err
}

// timeoutError finds out why a call timed out: the server is unreachable, a worker fails at this workflow, or there is no worker.
func (a *temporalAPI) timeoutError(workflowID string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if workflowID == "" {
		return fmt.Errorf("%w: the Temporal server at %s took too long", errLost, a.address)
	}
	description, err := a.client.DescribeWorkflowExecution(ctx, workflowID, "")
	if err != nil {
		return fmt.Errorf("%w: no answer from the Temporal server at %s", errLost, a.address)
	}
	if description.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_PAUSED {
		return a.pausedError(workflowID)
	}
	if attempt := description.GetPendingWorkflowTask().GetAttempt(); attempt > 1 {
		return fmt.Errorf("%w for %s: a worker failed on it, attempt %d%s; see the worker's log", errNoWorker, workflowID, attempt, a.taskFailure(workflowID))
	}
	return fmt.Errorf("%w for %s; start one with: converge worker", errNoWorker, workflowID)
}

// taskFailure returns the version of the worker that failed at a workflow, and its error. It returns "" if they are unknown.
func (a *temporalAPI) taskFailure(workflowID string) string {
	if a.client == nil || workflowID == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	f, failed, err := deployment.Namespace{Client: a.client, Name: a.namespace}.LastFailure(ctx, workflowID, "")
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

// transient reports whether an error passes without intervention.
func transient(err error) bool { return errors.Is(err, errLost) || errors.Is(err, errNoWorker) }
