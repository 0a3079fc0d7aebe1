package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/interceptor"

	"github.com/converge-engine/converge/worker/subject"
)

// activityTracing traces the activities of a traced workflow, as Temporal's SDK does.
type activityTracing struct {
	interceptor.WorkerInterceptorBase
	tracing interceptor.Interceptor
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (a *activityTracing) InterceptActivity(ctx context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return a.tracing.InterceptActivity(ctx, next)
}

// spanSubject adds the subject of an activity to its span.
type spanSubject struct {
	interceptor.WorkerInterceptorBase
}

// InterceptActivity implements interceptor.WorkerInterceptor.
func (*spanSubject) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	i := &spanSubjectInbound{}
	i.Next = next
	return i
}

type spanSubjectInbound struct {
	interceptor.ActivityInboundInterceptorBase
}

// ExecuteActivity implements interceptor.ActivityInboundInterceptor.
func (i *spanSubjectInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		for key, value := range tags(subject.Of(in.Args)) {
			span.SetAttributes(attribute.String(key, value))
		}
	}
	return i.Next.ExecuteActivity(ctx, in)
}

// tags are the known fields of a subject, as attributes of a span.
func tags(s subject.Subject) map[string]string {
	all := map[string]string{}
	for _, field := range s.Fields() {
		all["converge."+field[0]] = field[1]
	}
	return all
}
