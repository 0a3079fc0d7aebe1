package worker

import (
	"context"
	"slices"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/converge-engine/converge/entities/protocol"
)

// changing are the activities that change external systems: a worker that stops lets them finish.
var changing = []string{protocol.ActivityApply, protocol.ActivityRemove, protocol.ActivityExtension, protocol.ActivitySteer}

// readings is the interceptor that cancels all other activities soon after a worker starts to stop, so that they do not delay it.
type readings struct {
	interceptor.WorkerInterceptorBase
	until context.Context
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (r *readings) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &reading{until: r.until}
	i.Next = next
	return i
}

type reading struct {
	interceptor.ActivityInboundInterceptorBase
	until context.Context
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (r *reading) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if slices.Contains(changing, activity.GetInfo(ctx).ActivityType.Name) {
		return r.Next.ExecuteActivity(ctx, in)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.until, cancel)()
	return r.Next.ExecuteActivity(ctx, in)
}
