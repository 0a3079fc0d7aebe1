package tracing

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/subject"
)

// updateTracing traces updates in workflows, and the decisions that they cause. A run learns of traces only from its own updates, also in a
// replay, and forgets them when it continues as new: later work is not traced.
type updateTracing struct {
	interceptor.WorkerInterceptorBase
	tracer interceptor.Tracer
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (d *updateTracing) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &updateTracingInbound{tracer: d.tracer, causes: &causes{byVersion: map[string]interceptor.TracerSpanRef{}}}
	i.Next = next
	return i
}

type updateTracingInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	tracer interceptor.Tracer
	causes *causes
}

// Init wraps the outbound calls.
func (i *updateTracingInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	o := &updateTracingOutbound{tracer: i.tracer, causes: i.causes}
	o.Next = outbound
	return i.Next.Init(o)
}

// ExecuteUpdate records the trace of an update, and how long its answer takes. A replay only records the trace.
func (i *updateTracingInbound) ExecuteUpdate(ctx workflow.Context, in *interceptor.UpdateInput) (answer any, err error) {
	parent := i.parentSpan(ctx)
	i.causes.record(in, parent)
	if parent == nil || workflow.IsReplaying(ctx) {
		return i.Next.ExecuteUpdate(ctx, in)
	}
	span, spanErr := i.tracer.StartSpan(&interceptor.TracerStartSpanOptions{
		Parent: parent, Operation: "HandleUpdate", Name: in.Name, FromHeader: true, Time: time.Now(), Tags: runTags(ctx),
	})
	if spanErr != nil {
		return i.Next.ExecuteUpdate(ctx, in)
	}
	i.causes.record(in, span)
	defer func() { span.Finish(&interceptor.TracerFinishSpanOptions{Error: err}) }()
	return i.Next.ExecuteUpdate(ctx, in)
}

// parentSpan is the span that an update came from; nil if there is none or it is invalid.
func (i *updateTracingInbound) parentSpan(ctx workflow.Context) interceptor.TracerSpanRef {
	payload := interceptor.WorkflowHeader(ctx)[header]
	var data map[string]string
	if payload == nil || converter.GetDefaultDataConverter().FromPayload(payload, &data) != nil {
		return nil
	}
	ref, err := i.tracer.UnmarshalSpan(data)
	if err != nil {
		return nil
	}
	return ref
}

// runTags identifies the current run of a workflow.
func runTags(ctx workflow.Context) map[string]string {
	info := workflow.GetInfo(ctx)
	return map[string]string{"temporalWorkflowID": info.WorkflowExecution.ID, "temporalRunID": info.WorkflowExecution.RunID}
}

// maxCauses is for how many releases a run remembers the trace: the newest ones.
const maxCauses = 100

// causes are the spans of updates, by the version that they released, and the span of the last update of any kind.
type causes struct {
	byVersion  map[string]interceptor.TracerSpanRef
	order      []string
	lastUpdate interceptor.TracerSpanRef
}

func (c *causes) record(in *interceptor.UpdateInput, span interceptor.TracerSpanRef) {
	c.lastUpdate = span
	var released struct {
		Version string `json:"version"`
	}
	if len(in.Args) != 1 || in.Name != protocol.Release {
		return
	}
	raw, ok := in.Args[0].(json.RawMessage)
	if !ok || json.Unmarshal(raw, &released) != nil || released.Version == "" {
		return
	}
	delete(c.byVersion, released.Version)
	if span == nil {
		return
	}
	c.order = append(slices.DeleteFunc(c.order, func(v string) bool { return v == released.Version }), released.Version)
	c.byVersion[released.Version] = span
	if len(c.order) > maxCauses {
		delete(c.byVersion, c.order[0])
		c.order = c.order[1:]
	}
}

// configSuffix is the suffix of a version with a newer configuration.
var configSuffix = regexp.MustCompile(`-i[0-9]+$`)

// causeOf is the span of the release of a version, or else of the last update; nil if no update was traced.
func (c *causes) causeOf(version string) interceptor.TracerSpanRef {
	for _, name := range [...]string{version, configSuffix.ReplaceAllString(version, "")} {
		if span, known := c.byVersion[name]; known {
			return span
		}
	}
	return c.lastUpdate
}

type updateTracingOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	tracer interceptor.Tracer
	causes *causes
}

// ExecuteActivity traces the decision that starts an activity, and passes its span to the activity.
func (o *updateTracingOutbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	if changed := subject.Of(args); changed.Changes && !workflow.IsReplaying(ctx) {
		if cause := o.causes.causeOf(changed.Release); cause != nil {
			o.traceDecision(ctx, name, changed, cause)
		}
	}
	return o.Next.ExecuteActivity(ctx, name, args...)
}

func (o *updateTracingOutbound) traceDecision(ctx workflow.Context, name string, changed subject.Subject, cause interceptor.TracerSpanRef) {
	spanTags := runTags(ctx)
	maps.Copy(spanTags, tags(changed))
	span, err := o.tracer.StartSpan(&interceptor.TracerStartSpanOptions{
		Parent: cause, Operation: "Decide", Name: name, ToHeader: true, Time: time.Now(), Tags: spanTags,
	})
	if err != nil {
		return
	}
	defer span.Finish(&interceptor.TracerFinishSpanOptions{})
	data, err := o.tracer.MarshalSpan(span)
	if err != nil || len(data) == 0 {
		return
	}
	if payload, err := converter.GetDefaultDataConverter().ToPayload(data); err == nil {
		interceptor.WorkflowHeader(ctx)[header] = payload
	}
}
