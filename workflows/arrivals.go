package workflows

import (
	"slices"
	"strings"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"
)

// Arrivals is the interceptor that keeps the order in which signals of different names came. A
// workflow gets them by name, and a whole batch at once after its worker was away; but a pause and
// a resume mean something else the other way round. Workers and replayers register it
// (worker/worker.go).
type Arrivals struct {
	interceptor.WorkerInterceptorBase
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (*Arrivals) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &arrivalsInbound{}
	i.Next = next
	return i
}

type arrivalsInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	order arrivalOrder
}

// ExecuteWorkflow gives the workflow access to the order.
func (i *arrivalsInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	return i.Next.ExecuteWorkflow(workflow.WithValue(ctx, arrivalKey{}, &i.order), in)
}

// HandleSignal notes the name; the signal itself goes to its channel, if it may have one.
func (i *arrivalsInbound) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	i.order.names = append(i.order.names, in.SignalName)
	if reserved(in.SignalName) {
		return nil
	}
	return i.Next.HandleSignal(ctx, in)
}

// reserved: a name that anybody can send, and that a workflow of the SDK panics of when it asks for it: it would fail, again
// and again, of one signal.
func reserved(signal string) bool { return strings.HasPrefix(signal, "__temporal_") }

// reservedCame tells whether a signal has come that no channel has.
func reservedCame(ctx workflow.Context) bool {
	order, ok := ctx.Value(arrivalKey{}).(*arrivalOrder)
	return ok && slices.ContainsFunc(order.names, reserved)
}

type arrivalKey struct{}

// arrivalOrder is the names of signals that have come and were not collected yet.
type arrivalOrder struct{ names []string }

// arrived takes the names of the signals that have come, one for each signal, in the order in which
// they came. Signals that nobody noted (a worker without the interceptor) are left to rest.
func arrived(ctx workflow.Context) (noted, rest []string) {
	if order, ok := ctx.Value(arrivalKey{}).(*arrivalOrder); ok {
		noted, order.names = order.names, nil
	}
	rest = workflow.GetUnhandledSignalNames(ctx)
	slices.Sort(rest) // they come out of a map
	return noted, rest
}
