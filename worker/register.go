package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/custom"
	"github.com/converge-engine/converge/runtimes/ecs"
	"github.com/converge-engine/converge/runtimes/kubernetes"
	"github.com/converge-engine/converge/workflows"
)

// factories lists the kinds of runtime; a new one is a folder under runtimes/ and a line here. Clusters and accounts are the connections
// that the worker's runtimes share; on is the environment for commands.
func factories(clusters *kubernetes.Clusters, accounts *ecs.Accounts, on custom.Worker) map[entities.RuntimeKind]activities.Factory {
	return map[entities.RuntimeKind]activities.Factory{
		entities.RuntimeCustom:     func(d entities.RuntimeDefinition) (runtimes.Runtime, error) { return custom.NewWithWorker(d, on) },
		entities.RuntimeKubernetes: func(d entities.RuntimeDefinition) (runtimes.Runtime, error) { return kubernetes.Connect(d, clusters) },
		entities.RuntimeECS:        func(d entities.RuntimeDefinition) (runtimes.Runtime, error) { return ecs.Connect(d, accounts) },
	}
}

// registerWorkflows lists the workflow types.
func registerWorkflows(w worker.WorkflowRegistry) {
	w.RegisterWorkflowWithOptions(workflows.Service, workflow.RegisterOptions{Name: protocol.ServiceWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Application, workflow.RegisterOptions{Name: protocol.ApplicationWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Preview, workflow.RegisterOptions{Name: protocol.PreviewWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Runtime, workflow.RegisterOptions{Name: protocol.RuntimeWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Installation, workflow.RegisterOptions{Name: protocol.InstallationWorkflow})
	w.RegisterWorkflowWithOptions(workflows.Plan, workflow.RegisterOptions{Name: protocol.PlanWorkflow})
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
	register(protocol.ActivityAdopt, a.Adopt)
	register(protocol.ActivityVerify, a.Verify)
	register(protocol.ActivityLease, a.Lease)
	register(protocol.ActivityHistory, a.History)
	register(protocol.ActivityAnnounce, a.Announce)
	register(protocol.ActivityObserveAll, a.ObserveAll)
	register(protocol.ActivityPause, a.Pause)
	register(protocol.ActivityDrain, a.Drain)
	register(protocol.ActivityAlone, a.Alone)
	register(protocol.ActivityUnmanage, a.Unmanage)
	register(protocol.ActivityPropose, a.Propose)
	register(protocol.ActivityDecide, a.Decide)
	register(protocol.ActivityReserve, a.Reserve)
	register(protocol.ActivityOutcome, a.Outcome)
	register(protocol.ActivityRules, a.Rules)
	register(protocol.ActivityInForce, a.InForce)
	register(protocol.ActivityGranted, a.Granted)
	register(protocol.ActivityConfigure, a.Configure)
	register(protocol.ActivityConfirm, a.Confirm)
	register(protocol.ActivityBaseline, a.Baseline)
	register(protocol.ActivityLibrary, a.Library)
	register(protocol.ActivityPlanBegin, a.PlanBegin)
	register(protocol.ActivityPlanKeep, a.PlanKeep)
	register(protocol.ActivityPlanFollow, a.PlanFollow)
	register(protocol.ActivityPlanCommands, a.PlanCommands)
}

// registerRuntimeActivities lists the activities that access a runtime: all that a remote worker polls for.
func registerRuntimeActivities(w worker.ActivityRegistry, a *activities.Activities) {
	w.RegisterActivityWithOptions(a.Observe, activity.RegisterOptions{Name: protocol.ActivityObserve})
	w.RegisterActivityWithOptions(a.Apply, activity.RegisterOptions{Name: protocol.ActivityApply})
	w.RegisterActivityWithOptions(a.Extension, activity.RegisterOptions{Name: protocol.ActivityExtension})
	w.RegisterActivityWithOptions(a.PlanRun, activity.RegisterOptions{Name: protocol.ActivityPlanRun})
	w.RegisterActivityWithOptions(a.Remove, activity.RegisterOptions{Name: protocol.ActivityRemove})
	w.RegisterActivityWithOptions(a.Steer, activity.RegisterOptions{Name: protocol.ActivitySteer})
	w.RegisterActivityWithOptions(a.Check, activity.RegisterOptions{Name: protocol.ActivityCheck})
	w.RegisterActivityWithOptions(a.Preflight, activity.RegisterOptions{Name: protocol.ActivityPreflight})
	w.RegisterActivityWithOptions(a.Preview, activity.RegisterOptions{Name: protocol.ActivityPreview})
}

// SearchAttributes are the search attributes that a namespace needs (docs/protocol.md, Search attributes), by name.
func SearchAttributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		protocol.AttrApplication: enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.AttrService:     enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.AttrStatus:      enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.AttrVersion:     enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		protocol.AttrWaitingFor:  enumspb.INDEXED_VALUE_TYPE_KEYWORD_LIST,
		protocol.AttrChanged:     enumspb.INDEXED_VALUE_TYPE_DATETIME,
	}
}

// EnsureSearchAttributes adds the attributes that a namespace lacks, and returns their names. Without them every workflow task would fail.
// If the caller lacks the permission, the error has the commands for an administrator.
func EnsureSearchAttributes(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	if namespace == "" {
		namespace = client.DefaultNamespace
	}
	missing := SearchAttributes()
	have, _ := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		kind, exists := have.GetCustomAttributes()[name] // none, if they cannot be listed
		if exists && kind != missing[name] {
			return nil, fmt.Errorf("namespace %s has the search attribute %s with the type %s instead of %s; use another namespace, or: "+
				"temporal operator search-attribute remove --namespace %s --name %s", namespace, name, kind, missing[name], namespace, name)
		}
		if exists {
			delete(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	_, err := c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: namespace, SearchAttributes: missing,
	})
	if err != nil {
		return nil, fmt.Errorf("namespace %s lacks search attributes, and they cannot be added: %w; create them with:\n%s",
			namespace, err, createCommands(namespace, missing))
	}
	return slices.Sorted(maps.Keys(missing)), nil
}

func createCommands(namespace string, missing map[string]enumspb.IndexedValueType) string {
	var out []string
	for name, kind := range missing {
		out = append(out, fmt.Sprintf("  temporal operator search-attribute create --namespace %s --name %s --type %s", namespace, name, kind))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}
