package workflows

import (
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

// Starts is the interceptor that ends a run at once that somebody started otherwise than Converge does (G1): state is
// carried by continuing as new only, and a first run begins with what the store knows. Workers register it (worker/worker.go);
// a replayer does not need it, since a run that may begin is not touched.
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

// ExecuteWorkflow fails what may not begin.
func (i *startsInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	if len(in.Args) == 1 {
		if input, ok := in.Args[0].(protocol.Input); ok {
			if err := mayBegin(workflow.GetInfo(ctx), input, workflow.IsReplaying(ctx)); err != nil {
				return nil, err
			}
		}
	}
	return i.Next.ExecuteWorkflow(ctx, in)
}

// mayBegin refuses a workflow under another id than its input says, with a schedule or as another attempt, and a first run that
// brings state of its own or knows nothing. A run that began when the last was allowed goes on.
func mayBegin(info *workflow.Info, in protocol.Input, replaying bool) error {
	id, carried, first := in.Begins()
	refuse := func(why string) error {
		return temporal.NewNonRetryableApplicationError("this is no start of Converge: "+why+"; start it with: converge apply DIR", protocol.ErrRefused, nil)
	}
	continued := info.ContinuedExecutionRunID != ""
	switch {
	case info.WorkflowExecution.ID != id:
		return refuse("its id is " + info.WorkflowExecution.ID + ", and its input is that of " + id)
	case info.CronSchedule != "" || info.Attempt > 1:
		return refuse("it has a schedule, or is an attempt after another")
	case !continued && !carried.Empty():
		return refuse("only a run that continued as new has state to begin with")
	case !continued && !first.Adopt && !replaying:
		return refuse(`its input does not say "adopt", so it would know nothing of what the store does`)
	}
	return nil
}
