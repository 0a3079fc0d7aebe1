package main

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
)

// trace notes when a worker gets to what lies between a signal and its apply, to say where the time
// goes. It is given to the connection, so that every worker on it pays the same for it.
type trace struct {
	interceptor.InterceptorBase
	mu     sync.Mutex
	passed map[string]time.Time // stage → when it was first passed
}

// The stages besides the names of activities, at whose begin and end (+"/end") one is passed. Of
// several workflow tasks the first counts, which is the one that starts the activity.
const (
	stageSignal   = "signal seen"
	stageRespond  = "task completed"
	respondMethod = "/temporal.api.workflowservice.v1.WorkflowService/RespondWorkflowTaskCompleted"
)

func newTrace() *trace { return &trace{passed: map[string]time.Time{}} }

func (t *trace) pass(stage string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, again := t.passed[stage]; !again {
		t.passed[stage] = now
	}
}

// take returns the stages passed since it was last called.
func (t *trace) take() map[string]time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.passed
	t.passed = map[string]time.Time{}
	return out
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (t *trace) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &tracedActivity{trace: t}
	i.Next = next
	return i
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (t *trace) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &tracedWorkflow{trace: t}
	i.Next = next
	return i
}

// call notes when the server is informed that a workflow task is completed, and when it has answered.
func (t *trace) call(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
	if method != respondMethod {
		return invoke(ctx, method, req, reply, conn, o...)
	}
	t.pass(stageRespond)
	err := invoke(ctx, method, req, reply, conn, o...)
	t.pass(stageRespond + "/end")
	return err
}

type tracedActivity struct {
	interceptor.ActivityInboundInterceptorBase
	trace *trace
}

func (a *tracedActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	name := activity.GetInfo(ctx).ActivityType.Name
	a.trace.pass(name)
	out, err := a.Next.ExecuteActivity(ctx, in)
	a.trace.pass(name + "/end")
	return out, err
}

type tracedWorkflow struct {
	interceptor.WorkflowInboundInterceptorBase
	trace *trace
}

func (w *tracedWorkflow) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	if !workflow.IsReplaying(ctx) {
		w.trace.pass(stageSignal)
	}
	return w.Next.HandleSignal(ctx, in)
}
