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

// tasks runs commands as tasks of Amazon ECS, under the same contract as local ones (C2, C3, C6, C7). An apply has one task per
// instance at a time, for all workers together; each fetch has its own.
type tasks struct {
	where entities.CommandTask
	on    Tasks
}

func (t *tasks) run(ctx context.Context, res *result, w work) {
	if err := readable(w); err != nil {
		res.end(runtimes.CodeFetchFailed, runtimes.Permanent(err))
		return
	}
	started := time.Now()
	got, err := t.on.RunTask(ctx, ecs.TaskRequest{
		Where: t.where, One: w.one, Try: w.try, Command: res.argv, Env: w.env,
		Tags:    map[string]string{ecs.TagOwner: w.labels.owner.Key(), ecs.TagTask: w.labels.purpose},
		Timeout: res.timeout, Limit: MaxDocument, StopAtLimit: res.answers,
	})
	ended := job.ResultOf(got.Document)
	ended.Merged = got.Merged && got.NoLog == ""
	res.remote(ended, started)
	res.place = got.Place
	if got.NoLog != "" {
		res.out.Remark = "(its output is unknown: " + got.NoLog + ")\n"
	}
	switch {
	case err != nil && ctx.Err() != nil:
		res.interrupted(ctx)
	case err != nil:
		res.end(ecs.TaskCode(err), err)
	case res.answers && got.NoLog != "":
		res.end(runtimes.CodeFetchFailed, fmt.Errorf("%s exited %d, but its output is unknown: %s", res.argv[0], got.ExitCode, got.NoLog))
	default:
		res.endedRemotely(ended, "the image of "+t.where.TaskDefinition)
	}
}

// readable refuses values that would be visible in the description of a task and in CloudTrail, and files, which a task cannot get.
func readable(w work) error {
	switch {
	case len(w.secrets) > 0:
		return fmt.Errorf("%s: secrets cannot be passed to an ECS task, because its description shows its environment; set them in the \"secrets\" of the task definition's container, from Secrets Manager or SSM",
			strings.Join(slices.Sorted(maps.Keys(w.secrets)), ", "))
	case len(w.files) > 0:
		return fmt.Errorf("the service has files (%s), which cannot be copied into an ECS task", strings.Join(slices.Sorted(maps.Keys(w.files)), ", "))
	}
	return nil
}
