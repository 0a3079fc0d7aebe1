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

// decisions traces updates in workflows, and the decisions that they cause. A run learns of traces only from its own updates, also in a
// replay, and forgets them when it continues as new: later work is not traced.
type decisions struct {
	interceptor.WorkerInterceptorBase
	tracer interceptor.Tracer
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (d *decisions) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &decisionsInbound{tracer: d.tracer, causes: &causes{of: map[string]interceptor.TracerSpanRef{}}}
	i.Next = next
	return i
}

type decisionsInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	tracer interceptor.Tracer
	causes *causes
}

// Init wraps the outbound calls.
func (i *decisionsInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	o := &decisionsOutbound{tracer: i.tracer, causes: i.causes}
	o.Next = outbound
	return i.Next.Init(o)
}

// ExecuteUpdate records the trace of an update, and how long its answer takes. A replay only records the trace.
func (i *decisionsInbound) ExecuteUpdate(ctx workflow.Context, in *interceptor.UpdateInput) (answer any, err error) {
	asked := i.read(ctx)
	i.causes.note(in, asked)
	if asked == nil || workflow.IsReplaying(ctx) {
		return i.Next.ExecuteUpdate(ctx, in)
	}
	span, failed := i.tracer.StartSpan(&interceptor.TracerStartSpanOptions{
		Parent: asked, Operation: "HandleUpdate", Name: in.Name, FromHeader: true, Time: time.Now(), Tags: about(ctx),
	})
	if failed != nil {
		return i.Next.ExecuteUpdate(ctx, in)
	}
	i.causes.note(in, span)
	defer func() { span.Finish(&interceptor.TracerFinishSpanOptions{Error: err}) }()
	return i.Next.ExecuteUpdate(ctx, in)
}

// read is the span that an update came from; nil if there is none or it is invalid.
func (i *decisionsInbound) read(ctx workflow.Context) interceptor.TracerSpanRef {
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

// about identifies the current run of a workflow.
func about(ctx workflow.Context) map[string]string {
	info := workflow.GetInfo(ctx)
	return map[string]string{"temporalWorkflowID": info.WorkflowExecution.ID, "temporalRunID": info.WorkflowExecution.RunID}
}

// mostCauses is for how many releases a run remembers the trace: the newest ones.
const mostCauses = 100

// causes are the spans of updates, by the version that they released, and the span of the last update of any kind.
type causes struct {
	of    map[string]interceptor.TracerSpanRef
	order []string
	last  interceptor.TracerSpanRef
}

func (c *causes) note(in *interceptor.UpdateInput, span interceptor.TracerSpanRef) {
	c.last = span
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
	delete(c.of, released.Version)
	if span == nil {
		return
	}
	c.order = append(slices.DeleteFunc(c.order, func(v string) bool { return v == released.Version }), released.Version)
	c.of[released.Version] = span
	if len(c.order) > mostCauses {
		delete(c.of, c.order[0])
		c.order = c.order[1:]
	}
}

// configured is the suffix of a version with a newer configuration.
var configured = regexp.MustCompile(`-i[0-9]+$`)

// because is the span of the release of a version, or else of the last update; nil if no update was traced.
func (c *causes) because(version string) interceptor.TracerSpanRef {
	for _, name := range [...]string{version, configured.ReplaceAllString(version, "")} {
		if span, known := c.of[name]; known {
			return span
		}
	}
	return c.last
}

type decisionsOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	tracer interceptor.Tracer
	causes *causes
}

// ExecuteActivity traces the decision that starts an activity, and passes its span to the activity.
func (o *decisionsOutbound) ExecuteActivity(ctx workflow.Context, name string, args ...any) workflow.Future {
	if what := subject.Of(args); what.Changes && !workflow.IsReplaying(ctx) {
		if because := o.causes.because(what.Release); because != nil {
			o.decided(ctx, name, what, because)
		}
	}
	return o.Next.ExecuteActivity(ctx, name, args...)
}

func (o *decisionsOutbound) decided(ctx workflow.Context, name string, what subject.Subject, because interceptor.TracerSpanRef) {
	described := about(ctx)
	maps.Copy(described, tags(what))
	span, err := o.tracer.StartSpan(&interceptor.TracerStartSpanOptions{
		Parent: because, Operation: "Decide", Name: name, ToHeader: true, Time: time.Now(), Tags: described,
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
