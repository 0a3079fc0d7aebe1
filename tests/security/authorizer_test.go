package security

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/server/common/authorization"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/examples/authorizer"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/fakeruntime"
	"github.com/converge-engine/converge/tests/idptest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// itself lets the server ask itself without a token, as its internal frontend does.
type itself struct{ authorizer.Mapper }

func (i itself) GetClaims(a *authorization.AuthInfo) (*authorization.Claims, error) {
	if a.AuthToken == "" {
		return &authorization.Claims{System: authorization.RoleAdmin}, nil
	}
	return i.Mapper.GetClaims(a)
}

func (itself) AuthInfoRequired() bool { return false }

// bearer is a connection that shows a token.
type bearer string

func (b bearer) GetHeaders(context.Context) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func as(t *testing.T, address, token string, options ...grpc.DialOption) client.Client {
	t.Helper()
	c, err := client.NewLazyClient(client.Options{
		HostPort: address, Logger: stage.Quiet{}, HeadersProvider: bearer(token), ConnectionOptions: client.ConnectionOptions{DialOptions: options},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// authorized is a server with the authorizer of the example, with those search attributes, and the issuer of the tokens that it takes.
func authorized(t *testing.T, attributes map[string]enumspb.IndexedValueType) (*embedded.Server, *idptest.Issuer) {
	t.Helper()
	issuer := idptest.New(t)
	provider, err := oidc.NewProvider(t.Context(), issuer.URL)
	require.NoError(t, err)
	mapper := authorizer.Mapper{Verifier: provider.Verifier(&oidc.Config{ClientID: idptest.Audience, SupportedSigningAlgs: []string{oidc.ES256}}), Namespace: client.DefaultNamespace}
	server, err := embedded.Start(t.Context(), embedded.Options{SearchAttributes: attributes, Authorizer: authorizer.Authorizer{}, ClaimMapper: itself{mapper}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server, issuer
}

// On a server with the authorizer of the example, people publish, release, approve, read and preview, and that is all: what would
// make a sender a writer of the namespace, by which gates could be walked around, is refused to them. Workers work. Who
// shows no token of the issuer does nothing.
func TestAuthorizerLetsPeopleAct_G1(t *testing.T) {
	t.Parallel()
	server, issuer := authorized(t, worker.SearchAttributes())
	with := func(options []grpc.DialOption, roles ...string) client.Client {
		return as(t, server.Address(), issuer.Token(t, map[string]any{"roles": roles}), options...)
	}
	tasks := &worker.Tasks{}
	people, workers, nobody := with(nil, "people"), with([]grpc.DialOption{tasks.DialOption()}, "workers"), with(nil)
	kept, runtime := t.TempDir(), fakeruntime.New(nil)
	stop, err := worker.Start(t.Context(), workers, worker.Options{Store: kept, Tasks: tasks, Factories: map[entities.RuntimeKind]activities.Factory{
		entities.RuntimeFake: func(entities.RuntimeDefinition) (runtimes.Runtime, error) { return runtime, nil },
	}})
	require.NoError(t, err)
	t.Cleanup(stop)

	w := &stage.World{T: t, Client: people, App: temporaltest.Unique(t), Dir: t.TempDir(), Store: kept, Fake: runtime, Address: server.Address()}
	publishes(w, ", {manualApproval: {}}")
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production WAITING_MANUAL_APPROVAL")
	ctx, id := t.Context(), w.ID("web")
	service, namespace := people.WorkflowService(), client.DefaultNamespace
	execution := &commonpb.WorkflowExecution{WorkflowId: id}
	queue := &taskqueuepb.TaskQueue{Name: protocol.TaskQueue}
	start := func(change func(*client.StartWorkflowOptions), of, kind string) error {
		o := client.StartWorkflowOptions{ID: of, TaskQueue: protocol.TaskQueue, WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING}
		change(&o)
		_, err := people.ExecuteWorkflow(ctx, o, kind, protocol.RuntimeInput{Runtime: "eu", StartMode: protocol.StartMode{Adopt: true}})
		return err
	}
	asItIs := func(*client.StartWorkflowOptions) {}
	for what, try := range map[string]func() error{
		"terminate": func() error { return people.TerminateWorkflow(ctx, id, "", "") },
		"cancel":    func() error { return people.CancelWorkflow(ctx, id, "") },
		"reset": func() error {
			_, err := people.ResetWorkflowExecution(ctx, &workflowservice.ResetWorkflowExecutionRequest{Namespace: namespace, WorkflowExecution: execution, WorkflowTaskFinishEventId: 3, RequestId: "r"})
			return err
		},
		"delete": func() error {
			_, err := service.DeleteWorkflowExecution(ctx, &workflowservice.DeleteWorkflowExecutionRequest{Namespace: namespace, WorkflowExecution: execution})
			return err
		},
		"take workflow tasks": func() error {
			_, err := service.PollWorkflowTaskQueue(ctx, &workflowservice.PollWorkflowTaskQueueRequest{Namespace: namespace, TaskQueue: queue})
			return err
		},
		"take activities": func() error {
			_, err := service.PollActivityTaskQueue(ctx, &workflowservice.PollActivityTaskQueueRequest{Namespace: namespace, TaskQueue: queue})
			return err
		},
		"answer for a worker": func() error {
			_, err := service.RespondWorkflowTaskCompleted(ctx, &workflowservice.RespondWorkflowTaskCompletedRequest{Namespace: namespace, TaskToken: []byte("x")})
			return err
		},
		"end an activity": func() error {
			_, err := service.RespondActivityTaskCompletedById(ctx, &workflowservice.RespondActivityTaskCompletedByIdRequest{Namespace: namespace, WorkflowId: id, ActivityId: "1"})
			return err
		},
		"start an activity": func() error {
			_, err := service.StartActivityExecution(ctx, &workflowservice.StartActivityExecutionRequest{Namespace: namespace, ActivityId: "a", ActivityType: &commonpb.ActivityType{Name: protocol.ActivityApply}, TaskQueue: queue})
			return err
		},
		"signal with start": func() error {
			_, err := people.SignalWithStartWorkflow(ctx, "service/x/y", protocol.Pause, nil, client.StartWorkflowOptions{TaskQueue: protocol.TaskQueue}, protocol.ServiceWorkflow)
			return err
		},
		"pause an activity": func() error {
			_, err := service.PauseActivity(ctx, &workflowservice.PauseActivityRequest{Namespace: namespace, Execution: execution})
			return err
		},
		"a batch": func() error {
			_, err := service.StartBatchOperation(ctx, &workflowservice.StartBatchOperationRequest{Namespace: namespace, JobId: "j"})
			return err
		},
		"a schedule": func() error {
			_, err := service.CreateSchedule(ctx, &workflowservice.CreateScheduleRequest{Namespace: namespace, ScheduleId: "s"})
			return err
		},
		"settings of the namespace": func() error {
			_, err := service.UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{Namespace: namespace})
			return err
		},
		"search attributes": func() error {
			_, err := people.OperatorService().RemoveSearchAttributes(ctx, &operatorservice.RemoveSearchAttributesRequest{Namespace: namespace, SearchAttributes: []string{protocol.AttrStatus}})
			return err
		},
		"start a service":             func() error { return start(asItIs, "service/x/y", protocol.ServiceWorkflow) },
		"start another workflow":      func() error { return start(asItIs, "x", "Evil") },
		"a runtime by a service's id": func() error { return start(asItIs, "service/x/y", protocol.RuntimeWorkflow) },
		"a runtime that ends another": func() error {
			return start(func(o *client.StartWorkflowOptions) {
				o.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING
			}, "runtime/eu", protocol.RuntimeWorkflow)
		},
		"a runtime that nobody serves": func() error {
			return start(func(o *client.StartWorkflowOptions) { o.TaskQueue = "nobody" }, "runtime/eu", protocol.RuntimeWorkflow)
		},
		"a runtime again and again": func() error {
			return start(func(o *client.StartWorkflowOptions) { o.CronSchedule = "@every 1s" }, "runtime/eu", protocol.RuntimeWorkflow)
		},
	} {
		require.ErrorAs(t, try(), new(*serviceerror.PermissionDenied), what)
	}
	for _, c := range []client.Client{nobody, as(t, server.Address(), "made up")} {
		_, err := c.QueryWorkflow(ctx, id, "", protocol.QueryStatus)
		require.ErrorAs(t, err, new(*serviceerror.PermissionDenied))
		require.ErrorAs(t, c.SignalWorkflow(ctx, id, "", protocol.Pause, raw(`{"by":"mallory"}`)), new(*serviceerror.PermissionDenied))
	}

	require.NoError(t, start(asItIs, "runtime/eu", protocol.RuntimeWorkflow), "what people pause")
	plan := protocol.PlanOfIncarnation(w.App, "staging", 1)
	_, err = people.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: plan.ID(), TaskQueue: protocol.TaskQueue}, protocol.PlanWorkflow,
		protocol.PlanInput{PlanRef: plan, PlanTask: protocol.PlanTask{Incarnation: 1, Whole: true, By: "alice"}})
	require.NoError(t, err, "what converge run start starts")
	require.NotEmpty(t, w.History(id))
	w.Signal("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	_, err = publish.Publish(ctx, publish.Options{Client: nobody, Dir: w.Dir, StoreURL: w.Store, By: "mallory", Fake: true})
	require.Error(t, err)
}

// Search attributes are added by those who may: others get the commands for an administrator. Adding again changes nothing, and an
// attribute of another type is reported.
func TestSearchAttributesAreAddedByThoseWhoMay_G1(t *testing.T) {
	t.Parallel()
	server, issuer := authorized(t, nil)
	converge := func(environment, namespace string) (string, int) {
		cmd := exec.CommandContext(t.Context(), shared.Converge(t), "admin", "search-attributes", "--address", server.Address(), "--namespace", namespace)
		cmd.Env, cmd.Dir = append(os.Environ(), environment), t.TempDir()
		out, err := cmd.CombinedOutput()
		require.True(t, err == nil || errors.As(err, new(*exec.ExitError)), err)
		return string(out), cmd.ProcessState.ExitCode()
	}
	as := func(role string) string {
		return "TEMPORAL_GRPC_META_AUTHORIZATION=Bearer " + issuer.Token(t, map[string]any{"roles": []string{role}})
	}
	out, code := converge(as("people"), client.DefaultNamespace)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "namespace default lacks search attributes, and they cannot be added: Request unauthorized.; create them with:\n"+
		"  temporal operator search-attribute create --namespace default --name ConvergeApplication --type Keyword\n")

	out, code = converge(as("workers"), client.DefaultNamespace)
	require.Zero(t, code, out)
	require.Equal(t, "added to namespace default: ConvergeApplication, ConvergeChanged, ConvergeService, ConvergeStatus, ConvergeVersion, ConvergeWaitingFor\n", out)
	for _, role := range []string{"workers", "people"} {
		out, code = converge(as(role), client.DefaultNamespace)
		require.Zero(t, code, out)
		require.Equal(t, "namespace default has all search attributes\n", out)
	}

	admin, err := client.Dial(client.Options{HostPort: server.Address(), Logger: stage.Quiet{}})
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	_, err = admin.WorkflowService().RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: "other", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
	require.NoError(t, err)
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // the server may not know the new namespace everywhere yet
		_, err := admin.OperatorService().AddSearchAttributes(t.Context(), &operatorservice.AddSearchAttributesRequest{
			Namespace: "other", SearchAttributes: map[string]enumspb.IndexedValueType{protocol.AttrStatus: enumspb.INDEXED_VALUE_TYPE_INT},
		})
		return err == nil, fmt.Sprint(err)
	})
	out, code = converge("", "other")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "namespace other has the search attribute ConvergeStatus with the type Int instead of Keyword; use another namespace, or: "+
		"temporal operator search-attribute remove --namespace other --name ConvergeStatus")
}
