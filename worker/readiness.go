package worker

import (
	"context"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/worker/monitor"
)

// addReadinessChecks connects a worker to its monitor and adds its readiness checks: in addition to its polls, which the monitor sees, a
// server that answers, and a store that can be read and still has its data.
func addReadinessChecks(m *monitor.Monitor, c client.Client, a *activities.Activities) {
	if m == nil {
		return
	}
	a.Metrics = m.Handler()
	a.Store.Measure(a.RecordStoreRequest)
	m.AddCheck("temporal", func(ctx context.Context) error {
		_, err := c.WorkflowService().GetSystemInfo(ctx, &workflowservice.GetSystemInfoRequest{})
		return err
	})
	m.AddCheck("store", func(ctx context.Context) error {
		_, err := a.Store.Installation(ctx)
		if a.Installation == "" && store.IsNotFound(err) { // as it was when this remote worker started
			return nil
		}
		return err
	})
}
