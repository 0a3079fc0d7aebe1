package tests

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/embedded"
	"github.com/converge-engine/converge/workflows"
)

// holder asks for leases one after another, as a service does, and holds each for a moment.
func holder(ctx workflow.Context, runtime string, leases, limit int) error {
	id := workflow.GetInfo(ctx).WorkflowExecution.ID
	for n := range leases {
		lease := fmt.Sprintf("%s/%d", id, n)
		if err := workflow.SignalExternalWorkflow(ctx, protocol.RuntimeID(runtime), "", protocol.SignalLease, entities.LeaseRequest{
			ID: lease, Holder: id, Description: lease, Limit: limit, Timeout: time.Hour,
		}).Get(ctx, nil); err != nil {
			return err
		}
		var granted protocol.LeaseSignal
		for granted.ID != lease {
			workflow.GetSignalChannel(ctx, protocol.SignalGranted).Receive(ctx, &granted)
		}
		var now, most int64
		_ = workflow.SideEffect(ctx, func(workflow.Context) any {
			now = applying.Add(1)
			return now
		}).Get(&most)
		if err := workflow.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		for at := maxApplying.Load(); most > at && !maxApplying.CompareAndSwap(at, most); at = maxApplying.Load() {
		}
		applying.Add(-1)
		if err := workflow.SignalExternalWorkflow(ctx, protocol.RuntimeID(runtime), "", protocol.SignalGive, protocol.LeaseSignal{ID: lease}).Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// How many hold a lease now, and the most there ever were: of holders in this process.
var applying, maxApplying atomic.Int64

// No more than the limit hold a lease at once, whatever the number of holders; all get theirs, across
// continue-as-new; a lease costs its Runtime at most 14 events.
func TestLeases_C10(t *testing.T) {
	t.Parallel()
	server, err := embedded.Start(t.Context(), embedded.Options{ContinueAsNewAfter: 100})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	c, err := client.DialContext(t.Context(), client.Options{HostPort: server.Address()})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w := worker.New(c, protocol.TaskQueue, worker.Options{})
	w.RegisterWorkflowWithOptions(workflows.Runtime, workflow.RegisterOptions{Name: protocol.RuntimeWorkflow})
	w.RegisterWorkflow(holder)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)

	const holders, each, limit = 4, 5, 2
	first, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: protocol.RuntimeID("edge"), TaskQueue: protocol.TaskQueue},
		protocol.RuntimeWorkflow, protocol.RuntimeInput{Runtime: "edge"})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var runs []client.WorkflowRun
	for i := range holders {
		run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: fmt.Sprintf("service/shop/s%d", i), TaskQueue: protocol.TaskQueue}, holder, "edge", each, limit)
		require.NoError(t, err)
		runs = append(runs, run)
	}
	for _, run := range runs {
		require.NoError(t, run.Get(ctx, nil))
	}
	require.LessOrEqual(t, maxApplying.Load(), int64(limit))

	events, chain := 0, 0
	for run := first.GetRunID(); run != ""; chain++ {
		next := ""
		history := c.GetWorkflowHistory(ctx, protocol.RuntimeID("edge"), run, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for history.HasNext() {
			e, err := history.Next()
			require.NoError(t, err)
			events++
			if a := e.GetWorkflowExecutionContinuedAsNewEventAttributes(); a != nil {
				next = a.NewExecutionRunId
			}
		}
		run = next
	}
	t.Logf("%d events for %d leases in %d runs: %.1f each", events, holders*each, chain, float64(events)/(holders*each))
	require.Greater(t, chain, 1)
	require.LessOrEqual(t, float64(events)/(holders*each), 14.0)
}
