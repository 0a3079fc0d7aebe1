// Package deployment knows the versions of workers that serve a namespace at the same time, and moves workflows from one version to
// another: worker deployment versioning, in Temporal's terms. A version is a build of a deployment. Every workflow that lives forever is
// pinned to the version with which its run started, and moves to another when that run ends.
//
// It also examines a namespace for problems. It calls only Temporal, and queries workflows only for their status. It imports the entities,
// the protocol and Temporal's SDK.
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

// Namespace is the namespace whose versions are examined.
type Namespace struct {
	Client client.Client
	Name   string
	// PollTimeout is how long a worker that waits for work may be silent; 0 means DefaultPollTimeout. The server remembers stopped workers
	// for longer.
	PollTimeout time.Duration
	// Attributes are the search attributes that the namespace needs. If nil, they are not examined.
	Attributes map[string]enumspb.IndexedValueType
}

// DefaultPollTimeout is how long a worker that waits for work may be silent: a poll without work ends after a minute, unless a server is
// configured to end it sooner.
const DefaultPollTimeout = 75 * time.Second

func (n Namespace) pollTimeout() time.Duration { return cmp.Or(n.PollTimeout, DefaultPollTimeout) }

// Deployment returns the builds of a deployment, and which one is current. A deployment exists once a worker of it has polled.
func (n Namespace) Deployment(ctx context.Context, name string) (info client.WorkerDeploymentInfo, exists bool, err error) {
	d, err := n.Client.WorkerDeploymentClient().GetHandle(name).Describe(ctx, client.WorkerDeploymentDescribeOptions{})
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return info, false, nil
	}
	return d.Info, err == nil, err
}

// Deployments are the names of all deployments whose workers have ever served our queue.
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

// queueKinds are the kinds of tasks of the common queue.
var queueKinds = [...]enumspb.TaskQueueType{enumspb.TASK_QUEUE_TYPE_WORKFLOW, enumspb.TASK_QUEUE_TYPE_ACTIVITY}

// Polled is when workers of each version last polled for tasks of workflows or of activities: a worker that is busy with workflows in
// its cache may not poll for others for long. Workers without versioning have the zero version.
func (n Namespace) Polled(ctx context.Context) (map[Version]time.Time, error) {
	polled := map[Version]time.Time{}
	for _, kind := range queueKinds {
		queue, err := n.Client.WorkflowService().DescribeTaskQueue(ctx, &workflowservice.DescribeTaskQueueRequest{
			Namespace: n.Name, TaskQueueType: kind,
			TaskQueue: &taskqueuepb.TaskQueue{Name: protocol.TaskQueue, Kind: enumspb.TASK_QUEUE_KIND_NORMAL},
		})
		if err != nil {
			return nil, fmt.Errorf("describe the task queue %s: %w", protocol.TaskQueue, err)
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

// longLived selects the workflows that outlive deployments.
const longLived = protocol.RunningQuery

// Pinned are the running workflows that are pinned to a version.
func (n Namespace) Pinned(ctx context.Context, v Version) iter.Seq2[*workflowpb.WorkflowExecutionInfo, error] {
	return n.list(ctx, pinnedQuery(v))
}

func pinnedQuery(v Version) string {
	return fmt.Sprintf("%s AND TemporalWorkflowVersioningBehavior='Pinned' AND TemporalWorkerDeploymentVersion='%s'", longLived, escape(Text(v)))
}

// list yields the workflows that a query finds, up to the first error.
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

// versioning is the pinning of a running workflow; nil if the run has ended.
func (n Namespace) versioning(ctx context.Context, e *workflowpb.WorkflowExecutionInfo) (*workflowpb.WorkflowExecutionVersioningInfo, error) {
	d, err := n.Client.DescribeWorkflowExecution(ctx, e.Execution.WorkflowId, e.Execution.RunId)
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return nil, nil
	}
	if err != nil || d.WorkflowExecutionInfo.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
		return nil, err
	}
	return d.WorkflowExecutionInfo.GetVersioningInfo(), nil
}

// OverriddenTo is the version that a person pinned a workflow to permanently, regardless of its code; zero if there is none.
func OverriddenTo(info *workflowpb.WorkflowExecutionVersioningInfo) Version {
	v := info.GetVersioningOverride().GetPinned().GetVersion()
	return Version{DeploymentName: v.GetDeploymentName(), BuildID: v.GetBuildId()}
}
