package activities

import (
	"context"
	"errors"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
)

// Deadlines returns the error of a local activity that ran into its deadline as protocol.ErrTimeout. The SDK does so only if it notices
// the deadline before the activity returns; otherwise the workflow would take an error such as "read x: context deadline exceeded" for an
// answer of the dependency, and not try again outside the workflow task.
type Deadlines struct {
	interceptor.WorkerInterceptorBase
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (*Deadlines) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	d := &deadline{}
	d.Next = next
	return d
}

type deadline struct {
	interceptor.ActivityInboundInterceptorBase
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (d *deadline) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	answer, err := d.Next.ExecuteActivity(ctx, in)
	if activity.GetInfo(ctx).IsLocalActivity {
		err = timeoutError(ctx, err)
	}
	return answer, err
}

// timeoutError is the error of a call whose context may have a deadline: protocol.ErrTimeout if the call ended without an answer when it had
// passed. A refusal is an answer.
func timeoutError(ctx context.Context, err error) error {
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.As(err, new(*temporal.ApplicationError)) {
		return err
	}
	return temporal.NewNonRetryableApplicationError(err.Error(), protocol.ErrTimeout, nil)
}
