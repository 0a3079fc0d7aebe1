package deployment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
)

// Rollout moves workflows of other versions to the current version of a deployment; the workers of that version run it. Idle workflows get
// no task, so they are woken in waves, and each starts its next run on this version. The workflows of a version without pollers cannot
// answer a wake-up and are taken over in mid-run.
//
// Several workers may run it in parallel: they find that a workflow is moved already.
type Rollout struct {
	Namespace
	Version Version
	// SetCurrent makes the version current as soon as workers of it poll, unless it was current before and was replaced.
	SetCurrent bool
	// Wave is how many workflows are woken per second.
	Wave int
	Log  *slog.Logger

	settled       bool                  // it is current, or stays replaced
	replaced      bool                  // that was logged
	checkedAt     map[string]time.Time  // by run id: when it was woken or examined last
	noPollerSince map[Version]time.Time // since when the server knows no worker of the version
}

// Run runs until ctx ends.
func (r *Rollout) Run(ctx context.Context) {
	r.checkedAt, r.noPollerSince = map[string]time.Time{}, map[Version]time.Time{}
	for wait := time.Duration(0); pause(ctx, wait); {
		if r.SetCurrent && !r.settled {
			r.makeCurrent(ctx)
		}
		more, err := r.round(ctx)
		if err != nil && ctx.Err() == nil {
			r.Log.Warn("workflows are not moved yet", "to", Text(r.Version), "error", err)
		}
		wait = 10 * time.Second
		if more {
			wait = time.Second
		}
	}
}

// makeCurrent retries setCurrent until it is done.
func (r *Rollout) makeCurrent(ctx context.Context) {
	for ctx.Err() == nil && !r.settled {
		var err error
		if r.settled, err = r.setCurrent(ctx); err != nil {
			r.Log.Warn("not current yet", "version", Text(r.Version), "error", err)
		}
		if !r.settled {
			pause(ctx, time.Second)
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// setCurrent makes the version current. A version that was current before and was replaced stays replaced: the restart of one of its
// workers does not mean a rollback.
func (r *Rollout) setCurrent(ctx context.Context) (done bool, err error) {
	deployment := r.Client.WorkerDeploymentClient().GetHandle(r.Version.DeploymentName)
	described, err := deployment.DescribeVersion(ctx, client.WorkerDeploymentDescribeVersionOptions{BuildID: r.Version.BuildID})
	var notFound *serviceerror.NotFound
	switch {
	case errors.As(err, &notFound):
		return false, nil // the first poll registers it
	case err != nil:
		return false, err
	case !described.Info.CurrentSinceTime.IsZero():
		return true, nil
	case described.Info.DrainageInfo != nil && r.replaced:
		return true, nil
	case described.Info.DrainageInfo != nil:
		r.replaced = true
		r.Log.Warn("this version was replaced before and does not become current automatically", "version", Text(r.Version),
			"to go back", setCurrentCommand(r.Version))
		return true, nil
	}
	_, err = deployment.SetCurrentVersion(ctx, client.WorkerDeploymentSetCurrentVersionOptions{
		BuildID: r.Version.BuildID, IgnoreMissingTaskQueues: true,
	})
	return err == nil, err
}

// round wakes a wave, and takes over workflows of abandoned versions. more means that another round should follow soon.
func (r *Rollout) round(ctx context.Context) (more bool, err error) {
	info, exists, err := r.Deployment(ctx, r.Version.DeploymentName)
	if err != nil {
		return false, err
	}
	if current := info.RoutingConfig.CurrentVersion; current == nil || *current != r.Version {
		r.settled = false // it was replaced, or the database of Temporal was restored from a backup that does not know it
		return !exists, nil
	}
	polled, err := r.Polled(ctx)
	if err != nil {
		return false, err
	}
	for _, summary := range info.VersionSummaries {
		v := summary.Version
		drained := summary.DrainageStatus == client.WorkerDeploymentVersionDrainageStatusDrained
		if drained || v == r.Version || info.RoutingConfig.RampingVersion != nil && v == *info.RoutingConfig.RampingVersion {
			continue
		}
		hasMore, err := r.moveFrom(ctx, v, r.isAbandoned(v, polled[v]))
		if err != nil {
			return false, err
		}
		more = more || hasMore
	}
	return more, nil
}

// isAbandoned reports that no worker has polled for the version for more than a minute. If the server knows no poller, the time counts from
// when that was first seen: the server may have restarted.
func (r *Rollout) isAbandoned(v Version, polled time.Time) bool {
	if !polled.IsZero() {
		delete(r.noPollerSince, v)
		return time.Since(polled) >= r.pollTimeout()
	}
	if r.noPollerSince[v].IsZero() {
		r.noPollerSince[v] = time.Now()
	}
	return time.Since(r.noPollerSince[v]) >= r.pollTimeout()
}

// A woken workflow moves once it is at rest, and is examined again rarely; soon if its workers may be gone.
const (
	recheckDelay = time.Minute
	recheckSoon  = 15 * time.Second
)

// moveFrom moves a wave of the workflows that are pinned to a version, and reports whether there may be more. Workflows with operations in
// flight move later without help.
func (r *Rollout) moveFrom(ctx context.Context, v Version, abandoned bool) (more bool, err error) {
	gap := recheckDelay
	if abandoned {
		gap = recheckSoon
	}
	var wave []*workflowpb.WorkflowExecutionInfo
	for e, err := range r.Pinned(ctx, v) {
		if err != nil {
			return false, err
		}
		if time.Since(r.checkedAt[e.Execution.RunId]) < gap {
			continue
		}
		if wave = append(wave, e); len(wave) == r.Wave {
			break
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, e := range wave {
		r.checkedAt[e.Execution.RunId] = time.Now()
		group.Go(func() error { return ignoreNotFound(r.move(ctx, e.Execution, v, abandoned)) })
	}
	return len(wave) == r.Wave, group.Wait()
}

// move wakes one workflow, so that it ends its run and starts the next one on this version. A workflow that a person pinned permanently
// stays. The workers of its version count as gone only if its task has waited as long too: a busy worker polls rarely.
func (r *Rollout) move(ctx context.Context, e *commonpb.WorkflowExecution, from Version, abandoned bool) error {
	d, err := r.Client.DescribeWorkflowExecution(ctx, e.WorkflowId, e.RunId)
	if err != nil {
		return err
	}
	info, task := d.WorkflowExecutionInfo.GetVersioningInfo(), d.PendingWorkflowTask
	switch {
	case d.WorkflowExecutionInfo.Status != enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, info.GetVersioningOverride() != nil,
		info.GetDeploymentVersion().GetBuildId() != from.BuildID:
		return nil
	case task == nil:
		return r.Client.SignalWorkflow(ctx, e.WorkflowId, e.RunId, protocol.SignalWake, protocol.Wake{Version: Text(r.Version)})
	case abandoned && r.isUnanswered(task, time.Now()):
		return r.takeOver(ctx, e, from)
	}
	return nil // it has a task, so it will see the new version
}

// isUnanswered reports that a task has waited longer than live workers would let it wait.
func (n Namespace) isUnanswered(task *workflowpb.PendingWorkflowTaskInfo, now time.Time) bool {
	return task.State == enumspb.PENDING_WORKFLOW_TASK_STATE_SCHEDULED && now.Sub(task.ScheduledTime.AsTime()) >= n.pollTimeout()
}

// takeOver moves a workflow in the middle of its run. Its history allows that, as it does when workers are replaced in place. The override
// ends with the next task; after that the workflow is pinned to this version.
func (r *Rollout) takeOver(ctx context.Context, e *commonpb.WorkflowExecution, from Version) error {
	r.Log.Warn("taken over from a version without workers", "workflow", e.WorkflowId, "from", Text(from), "to", Text(r.Version))
	_, err := r.Client.UpdateWorkflowExecutionOptions(ctx, client.UpdateWorkflowExecutionOptionsRequest{
		WorkflowId: e.WorkflowId, RunId: e.RunId,
		WorkflowExecutionOptionsChanges: client.WorkflowExecutionOptionsChanges{VersioningOverride: &client.VersioningOverrideChange{
			Value: &client.OneTimeVersioningOverride{TargetVersion: r.Version},
		}},
	})
	if err != nil {
		return fmt.Errorf("take over %s: %w", e.WorkflowId, err)
	}
	return nil
}

// ignoreNotFound drops the error if the run has ended: its next run is on this version already.
func ignoreNotFound(err error) error {
	var notFound *serviceerror.NotFound
	if errors.As(err, &notFound) {
		return nil
	}
	return err
}
