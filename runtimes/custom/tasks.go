package custom

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/ecs"
	"github.com/converge-engine/converge/runtimes/kubernetes/job"
)

// Tasks runs commands as tasks of Amazon ECS. *ecs.Accounts implements it, and its RunTask is the contract.
type Tasks interface {
	RunTask(ctx context.Context, r ecs.TaskRequest) (ecs.TaskResult, error)
}

// taskRunner runs commands as tasks of Amazon ECS, under the same contract as local ones (C2, C3, C6, C7). An apply has one task per
// instance at a time, for all workers together; each fetch has its own.
type taskRunner struct {
	task    entities.CommandTask
	backend Tasks
}

func (t *taskRunner) run(ctx context.Context, res *result, w command) {
	if err := checkTaskInput(w); err != nil {
		res.setError(runtimes.CodeFetchFailed, runtimes.Permanent(err))
		return
	}
	started := time.Now()
	taskResult, err := t.backend.RunTask(ctx, ecs.TaskRequest{
		Task: t.task, ExclusiveKey: w.exclusiveKey, AttemptID: w.attemptID, Command: res.argv, Env: w.env,
		Tags:    map[string]string{ecs.TagOwner: w.labels.owner.Key(), ecs.TagTask: w.labels.purpose},
		Timeout: res.timeout, Limit: MaxDocument, StopAtLimit: res.needsOutput,
	})
	remote := job.ResultOf(taskResult.Document)
	remote.Merged = taskResult.Merged && taskResult.LogProblem == ""
	res.storeRemoteOutput(remote, started)
	res.location = taskResult.Location
	if taskResult.LogProblem != "" {
		res.out.Remark = "(its output is unknown: " + taskResult.LogProblem + ")\n"
	}
	switch {
	case err != nil && ctx.Err() != nil:
		res.setInterrupted(ctx)
	case err != nil:
		res.setError(ecs.TaskCode(err), err)
	case res.needsOutput && taskResult.LogProblem != "":
		res.setError(runtimes.CodeFetchFailed, fmt.Errorf("%s exited %d, but its output is unknown: %s", res.argv[0], taskResult.ExitCode, taskResult.LogProblem))
	default:
		res.setRemoteResult(remote, "the image of "+t.task.TaskDefinition)
	}
}

// checkTaskInput refuses values that would be visible in the description of a task and in CloudTrail, and files, which a task cannot get.
func checkTaskInput(w command) error {
	switch {
	case len(w.secrets) > 0:
		return fmt.Errorf("%s: secrets cannot be passed to an ECS task, because its description shows its environment; set them in the \"secrets\" of the task definition's container, from Secrets Manager or SSM",
			strings.Join(slices.Sorted(maps.Keys(w.secrets)), ", "))
	case len(w.files) > 0:
		return fmt.Errorf("the service has files (%s), which cannot be copied into an ECS task", strings.Join(slices.Sorted(maps.Keys(w.files)), ", "))
	}
	return nil
}
