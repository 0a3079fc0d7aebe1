package logs

import (
	"context"
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/subject"
)

// Activities adds the subject of an activity to its log lines, and logs each activity that changed something.
type Activities struct {
	interceptor.WorkerInterceptorBase
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (*Activities) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &inbound{}
	i.Next = next
	return i
}

type inbound struct {
	interceptor.ActivityInboundInterceptorBase
	out *outbound
}

// Init wraps the logger.
func (i *inbound) Init(next interceptor.ActivityOutboundInterceptor) error {
	i.out = &outbound{}
	i.out.Next = next
	return i.Next.Init(i.out)
}

type subjectKey struct{}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (i *inbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	about := subject.Of(in.Args)
	ctx = context.WithValue(ctx, subjectKey{}, about)
	began := time.Now()
	answer, err := i.Next.ExecuteActivity(ctx, in)
	if about.Changes {
		logResult(i.out.GetLogger(ctx), answer, err, time.Since(began))
	}
	return answer, err
}

// logResult logs the result of an activity that changes something.
func logResult(to log.Logger, answer any, err error, took time.Duration) {
	failed := ""
	switch a := answer.(type) {
	case protocol.ApplyAnswer:
		failed = a.Err
	case protocol.RemoveAnswer:
		failed = a.Err
	case protocol.SteerAnswer:
		failed = a.Err
	case protocol.ExtensionAnswer:
		failed = a.Err
	}
	switch took := took.Round(time.Millisecond).String(); {
	case activities.IsPutOff(err):
		to.Debug("put off", "error", err)
	case err != nil:
		to.Warn("interrupted", "took", took, "error", err)
	case failed != "":
		to.Warn("failed", "took", took, "error", failed)
	default:
		to.Info("done", "took", took)
	}
}

type outbound struct {
	interceptor.ActivityOutboundInterceptorBase
}

// GetLogger implements interceptor.ActivityOutboundInterceptor.
func (o *outbound) GetLogger(ctx context.Context) log.Logger {
	logger := o.Next.GetLogger(ctx)
	about, _ := ctx.Value(subjectKey{}).(subject.Subject)
	var fields []any
	for _, field := range about.Fields() {
		fields = append(fields, field[0], field[1])
	}
	if len(fields) == 0 {
		return logger
	}
	return log.With(logger, fields...)
}
