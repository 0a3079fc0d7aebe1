// Package deployment knows which versions of workers serve a namespace at the same time, and moves workflows from one to
// another: worker deployment versioning, in Temporal's words. A version is a build of a deployment; every workflow that
// lives for ever is pinned to the one that it began its run with, and goes on to another when that run ends.
//
// It also examines a namespace for what is wrong with it. It asks Temporal, and of workflows their status only; it imports the
// entities, the protocol and Temporal's SDK.
package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/converge-engine/converge/entities/protocol"
)

// Version is one build of the workers of a deployment.
type Version = worker.WorkerDeploymentVersion

// Text names a version as Temporal does.
func Text(v Version) string { return v.DeploymentName + ":" + v.BuildID }

// Namespace is where versions are asked for.
type Namespace struct {
	Client client.Client
	Name   string
	// PollLasts is how long a worker that waits for work may be silent; 0: 75 seconds, since a poll that gets none ends after
	// a minute, unless a server is set to end it sooner. The server remembers workers that have stopped for longer.
	PollLasts time.Duration
	// Attributes are the search attributes that the namespace is to have. Nil: that is not looked at.
	Attributes map[string]enumspb.IndexedValueType
}

func (n Namespace) pollLasts() time.Duration { return cmp.Or(n.PollLasts, 75*time.Second) }

// Deployment says which builds of a deployment there are, and which one is current; there is none that no worker has
// polled for yet.
func (n Namespace) Deployment(ctx context.Context, name string) (info client.WorkerDeploymentInfo, there bool, err error) {
	d, err := n.Client.WorkerDeploymentClient().GetHandle(name).Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	var none *serviceerror.NotFound
	if errors.As(err, &none) {
		return info, false, nil
	}
	return d.Info, err == nil, err
}

// Deployments are the names of all there are whose workers have ever served our queue.
func (n Namespace) Deployments(ctx context.Context) ([]string, error) {
	list, err := n.Client.WorkerDeploymentClient().List(ctx, client.WorkerDeploymentListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for list.HasNext() {
		d, err := list.Next()
		if err != nil {
			return nil, err
		}
		names = append(names, d.Name)
	}
	return names, nil
}

// Polled says when workers of each version last asked for tasks, of workflows or of activities: while a worker carries on
// workflows that it holds in memory, it may not ask for others for long. The version of workers that have none is zero.
func (n Namespace) Polled(ctx context.Context) (map[Version]time.Time, error) {
	polled := map[Version]time.Time{}
	for _, kind := range [...]enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_WORKFLOW, enumspb.TASK_QUEUE_TYPE_ACTIVITY} {
		queue, err := n.Client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: n.Name, TaskQueueType: kind,
			TaskQueue: &taskqueuepb.TaskQueue{Name: protocol.TaskQueue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
		})
		if err != nil {
			return nil, fmt.Errorf("ask who serves the task queue %s: %w", protocol.TaskQueue, err)
		}
		for _, p := range queue.Pollers {
			v := Version{}
			if o := p.DeploymentOptions; o.GetWorkerVersioningMode() == enumspb.WORKER_VERSIONING_MODE_VERSIONED {
				v = Version{DeploymentName: o.DeploymentName, BuildID: o.BuildId}
			}
			if at := p.LastAccessTime.AsTime(); at.After(polled[v]) {
				polled[v] = at
			}
		}
	}
	return polled, nil
}

// ours are the workflows that outlive deployments.
const ours = protocol.Living

// Pinned are the running workflows that are pinned to a version.
func (n Namespace) Pinned(ctx context.Context, v Version) iter.Seq2[*workflowpb.WorkflowExecutionInfo, error] {
	return n.list(ctx, fmt.Sprintf("%s AND TemporalWorkflowVersioningBehavior='Pinned' AND TemporalWorkerDeploymentVersion='%s'", ours, escape(Text(v))))
}

// list are the workflows that a query finds, up to the first error.
func (n Namespace) list(ctx context.Context, query string) iter.Seq2[*workflowpb.WorkflowExecutionInfo, error] {
	return func(yield func(*workflowpb.WorkflowExecutionInfo, error) bool) {
		request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: n.Name, Query: query, PageSize: 200}
		for {
			page, err := n.Client.ListWorkflow(ctx, request)
			if err != nil {
				yield(nil, fmt.Errorf("list workflows: %w", err))
				return
			}
			for _, e := range page.Executions {
				if !yield(e, nil) {
					return
				}
			}
			if request.NextPageToken = page.NextPageToken; len(request.NextPageToken) == 0 {
				return
			}
		}
	}
}

func escape(text string) string { return strings.ReplaceAll(text, "'", `\'`) }

// versioning says what a running workflow is pinned to, and by whom: nil when the run is over.
func (n Namespace) versioning(ctx context.Context, e *workflowpb.WorkflowExecutionInfo) (*workflowpb.WorkflowExecutionVersioningInfo, error) {
	d, err := n.Client.DescribeWorkflowExecution(ctx, e.Execution.WorkflowId, e.Execution.RunId)
	var gone *serviceerror.NotFound
	if errors.As(err, &gone) {
		return nil, nil
	}
	if err != nil || d.WorkflowExecutionInfo.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, err
	}
	return d.WorkflowExecutionInfo.GetVersioningInfo(), nil
}

// OverriddenTo is the version that somebody pinned a workflow to for good, whatever its code says; zero: nobody did.
func OverriddenTo(info *workflowpb.WorkflowExecutionVersioningInfo) Version {
	v := info.GetVersioningOverride().GetPinned().GetVersion()
	return Version{DeploymentName: v.GetDeploymentName(), BuildID: v.GetBuildId()}
}
