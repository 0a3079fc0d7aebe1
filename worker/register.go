package worker

import (
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
	"github.com/converge-engine/converge/runtimes/kubernetes"
	"github.com/converge-engine/converge/workflows"
)

// factories lists the kinds of runtime; a new one is a folder under runtimes/ and a line here.
// Clusters are the connections that the worker's runtimes share.
func factories(clusters *kubernetes.Clusters) map[entities.RuntimeKind]activities.Factory {
	return map[entities.RuntimeKind]activities.Factory{
		entities.RuntimeCustom:     func(d entities.RuntimeDefinition) (runtimes.Runtime, error) { return custom.NewIn(d, clusters) },
		entities.RuntimeKubernetes: func(d entities.RuntimeDefinition) (runtimes.Runtime, error) { return kubernetes.New(d, clusters) },
	}
}

// registerWorkflows lists the workflow types.
func registerWorkflows(w worker.WorkflowRegistry) {
	w.RegisterWorkflowWithOptions(workflows.Service, workflow.RegisterOptions{Name: protocol.ServiceWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Application, workflow.RegisterOptions{Name: protocol.ApplicationWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Preview, workflow.RegisterOptions{Name: protocol.PreviewWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Runtime, workflow.RegisterOptions{Name: protocol.RuntimeWorkflow})
}

// registerActivities lists the activities of the common queue.
func registerActivities(w worker.ActivityRegistry, a *activities.Activities) {
	registerRuntimeActivities(w, a)
	register := func(name string, f any) { w.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: name}) }
	register(protocol.ActivityLoadSpec, a.LoadSpec)
	register(protocol.ActivityPrepare, a.Prepare)
	register(protocol.ActivityNotify, a.Notify)
	register(protocol.ActivitySpill, a.Spill)
	register(protocol.ActivityRestore, a.Restore)
	register(protocol.ActivityCheck, a.Check)
	register(protocol.ActivityPreflight, a.Preflight)
	register(protocol.ActivityVerify, a.Verify)
	register(protocol.ActivityLease, a.Lease)
	register(protocol.ActivityHistory, a.History)
	register(protocol.ActivityAnnounce, a.Announce)
	register(protocol.ActivityHold, a.Hold)
}

// registerRuntimeActivities lists those that touch a runtime: all that a remote worker polls for.
func registerRuntimeActivities(w worker.ActivityRegistry, a *activities.Activities) {
	w.RegisterActivityWithOptions(a.Observe, activity.RegisterOptions{Name: protocol.ActivityObserve})
	w.RegisterActivityWithOptions(a.Apply, activity.RegisterOptions{Name: protocol.ActivityApply})
	w.RegisterActivityWithOptions(a.Extension, activity.RegisterOptions{Name: protocol.ActivityExtension})
	w.RegisterActivityWithOptions(a.Remove, activity.RegisterOptions{Name: protocol.ActivityRemove})
	w.RegisterActivityWithOptions(a.Preview, activity.RegisterOptions{Name: protocol.ActivityPreview})
}
