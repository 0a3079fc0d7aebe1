package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/converge-engine/converge/entities/protocol"
)

// late gives each activity a context whose deadline has passed, as the SDK does to one that takes too long.
type late struct {
	interceptor.WorkerInterceptorBase
}

func (*late) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &lateActivity{}
	i.Next = next
	return i
}

type lateActivity struct {
	interceptor.ActivityInboundInterceptorBase
}

func (i *lateActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	ctx, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	return i.Next.ExecuteActivity(ctx, in)
}

// Every worker returns the error of a local activity at its deadline as a timeout.
func TestWorkerReturnsLateErrorsAsTimeouts_F5(t *testing.T) {
	read := func(context.Context) error { return errors.New("read x from the store: context deadline exceeded") }
	run := func(first ...interceptor.WorkerInterceptor) error {
		env := (&testsuite.WorkflowTestSuite{}).NewTestActivityEnvironment()
		env.SetWorkerOptions(worker.Options{Interceptors: interceptors(Options{Interceptors: first}, nil)})
		_, err := env.ExecuteLocalActivity(read)
		return err
	}
	var failed *temporal.ApplicationError
	require.ErrorAs(t, run(&late{}), &failed)
	require.Equal(t, protocol.ErrTimeout, failed.Type())
	require.NotErrorAs(t, run(), &failed, "in time")
}
