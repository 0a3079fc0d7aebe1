package worker

import (
	"context"
	"slices"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/converge-engine/converge/entities/protocol"
)

// changingActivities are the activities that change external systems: a worker that stops lets them finish.
var changingActivities = []string{protocol.ActivityApply, protocol.ActivityRemove, protocol.ActivityExtension, protocol.ActivitySteer}

// stopInterceptor is the interceptor that cancels all other activities soon after a worker starts to stop, so that they do not delay it.
type stopInterceptor struct {
	interceptor.WorkerInterceptorBase
	stopCtx context.Context
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (r *stopInterceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &stopInbound{stopCtx: r.stopCtx}
	i.Next = next
	return i
}

type stopInbound struct {
	interceptor.ActivityInboundInterceptorBase
	stopCtx context.Context
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (r *stopInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if slices.Contains(changingActivities, activity.GetInfo(ctx).ActivityType.Name) {
		return r.Next.ExecuteActivity(ctx, in)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.stopCtx, cancel)()
	return r.Next.ExecuteActivity(ctx, in)
}
