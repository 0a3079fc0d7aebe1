package workflows

import (
	"slices"
	"strings"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"
)

// Arrivals is the interceptor that keeps the order in which signals of different names arrived. A workflow receives signals by name, and
// all of them at once after its worker was away. A pause and a resume mean something else in the opposite order. Workers and replayers
// register it (worker/worker.go).
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

// HandleSignal records the name. The signal itself goes to its channel, unless its name is reserved.
func (i *arrivalsInbound) HandleSignal(ctx workflow.Context, in *interceptor.HandleSignalInput) error {
	i.order.names = append(i.order.names, in.SignalName)
	if isReserved(in.SignalName) {
		return nil
	}
	return i.Next.HandleSignal(ctx, in)
}

// isReserved reports whether a signal has a name that the SDK reserves. Any client can send such a signal, and a workflow panics when it
// opens a channel of that name, so a single signal would fail it again and again.
func isReserved(signal string) bool { return strings.HasPrefix(signal, "__temporal_") }

// hasReservedSignal reports whether a signal with a reserved name arrived.
func hasReservedSignal(ctx workflow.Context) bool {
	order, ok := ctx.Value(arrivalKey{}).(*arrivalOrder)
	return ok && slices.ContainsFunc(order.names, isReserved)
}

type arrivalKey struct{}

// arrivalOrder holds the names of signals that arrived and were not collected yet.
type arrivalOrder struct{ names []string }

// takeArrived returns and clears the names of the signals that arrived, one per signal, in the order of arrival. Signals that were not
// recorded (by a worker without the interceptor) are in rest.
func takeArrived(ctx workflow.Context) (noted, rest []string) {
	if order, ok := ctx.Value(arrivalKey{}).(*arrivalOrder); ok {
		noted, order.names = order.names, nil
	}
	rest = workflow.GetUnhandledSignalNames(ctx)
	slices.Sort(rest) // the SDK iterates over a map
	return noted, rest
}
