package workflows

import (
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

// Starts is the interceptor that fails a run at once that was not started by Converge (G1). State is carried only by continue-as-new, and a
// first run starts with the state in the store. Workers register it (worker/worker.go). A replayer does not need it, since it does not
// affect a valid run.
type Starts struct {
	interceptor.WorkerInterceptorBase
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (*Starts) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &startsInbound{}
	i.Next = next
	return i
}

type startsInbound struct {
	interceptor.WorkflowInboundInterceptorBase
}

// ExecuteWorkflow fails an invalid start.
func (i *startsInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	if len(in.Args) == 1 {
		if input, ok := in.Args[0].(protocol.Input); ok {
			if err := checkStart(workflow.GetInfo(ctx), input, workflow.IsReplaying(ctx)); err != nil {
				return nil, err
			}
		}
	}
	return i.Next.ExecuteWorkflow(ctx, in)
}

// checkStart refuses a workflow whose id differs from its input, one with a schedule or a retry attempt, and a first run that brings state
// of its own or does not adopt. A run that started when this was allowed continues.
func checkStart(info *workflow.Info, in protocol.Input, replaying bool) error {
	id, carried, first := in.StartState()
	refuse := func(why string) error {
		return temporal.NewNonRetryableApplicationError("this workflow was not started by Converge: "+why+"; start it with: converge config publish DIR", protocol.ErrRefused, nil)
	}
	continued := info.ContinuedExecutionRunID != ""
	switch {
	case info.WorkflowExecution.ID != id:
		return refuse("its id is " + info.WorkflowExecution.ID + ", but its input is that of " + id)
	case info.CronSchedule != "" || info.Attempt > 1:
		return refuse("it has a schedule, or is a retry")
	case !continued && !carried.Empty():
		return refuse("only a run that continued as new may start with state")
	case !continued && !first.Adopt && !replaying:
		return refuse(`its input does not have "adopt", so it would not use the state in the store`)
	}
	return nil
}
