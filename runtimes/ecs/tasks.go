package ecs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/entities"
)

// stopped is the stop reasons of a service's recently stopped tasks.
type stopped struct {
	at         time.Time // when they were read
	rolledBack string    // the revision that ECS had rolled back at that time
	events     []entities.Event
}

const (
	tasksRead  = 100 // the limit of DescribeTasks
	tasksShown = 5
)

// stoppedTasks says why tasks of a service's current deployments, and of a revision that ECS rolled back, stopped. No event of the
// service has this reason. It reads them from time to time while a service is not healthy, and only as long as the rate limit leaves
// enough calls for more important requests. A failure has no other effect.
func (c *cluster) stoppedTasks(ctx context.Context, s *types.Service, rolledBack string) []entities.Event {
	c.mu.Lock()
	e := c.entry(text(s.ServiceName))
	known := e.stopped
	due := (time.Since(known.at) >= c.timing.taskInterval || rolledBack != known.rolledBack) && c.account.limiter.hasSpare(taskReads)
	if due {
		e.stopped.at, e.stopped.rolledBack = time.Now(), rolledBack
	}
	c.mu.Unlock()
	if !due {
		return known.events
	}
	tasks, err := c.tasks(ctx, s)
	if err != nil {
		return known.events
	}
	events := stopEvents(tasks, s, rolledBack)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entry(text(s.ServiceName)).stopped.events = events
	return events
}

// tasks reads the stopped tasks. It filters them by deployment itself: ListTasks accepts startedBy only without other filters.
func (c *cluster) tasks(ctx context.Context, s *types.Service) ([]types.Task, error) {
	client, err := c.account.client(ctx)
	if err != nil {
		return nil, err
	}
	most := int32(tasksRead)
	list, err := call(ctx, c, taskReads, client.ListTasks, &ecs.ListTasksInput{
		Cluster: &c.name, ServiceName: s.ServiceName, DesiredStatus: types.DesiredStatusStopped, MaxResults: &most,
	})
	if err != nil || len(list.TaskArns) == 0 {
		return nil, err
	}
	out, err := call(ctx, c, taskReads, client.DescribeTasks, &ecs.DescribeTasksInput{Cluster: &c.name, Tasks: list.TaskArns})
	if err != nil {
		return nil, err
	}
	return out.Tasks, nil
}

// stopEvents are the newest stopped tasks of a service's current deployments, or of a revision, except those that the scheduler stopped
// without an error.
func stopEvents(tasks []types.Task, s *types.Service, rolledBack string) (events []entities.Event) {
	started := map[string]bool{}
	for _, d := range s.Deployments {
		started[text(d.Id)] = true
	}
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(t types.Task) bool {
		relevant := started[text(t.StartedBy)] || rolledBack != "" && text(t.TaskDefinitionArn) == rolledBack
		return !relevant || t.StopCode == types.TaskStopCodeServiceSchedulerInitiated && exitCodes(t) == "" || endOf(t).IsZero()
	})
	slices.SortFunc(tasks, func(a, b types.Task) int {
		return cmp.Or(endOf(b).Compare(endOf(a)), cmp.Compare(text(a.TaskArn), text(b.TaskArn)))
	})
	for _, t := range tasks[:min(len(tasks), tasksShown)] {
		line := fmt.Sprintf("task %s of %s stopped: %s", idOf(text(t.TaskArn)), short(text(t.TaskDefinitionArn)), text(t.StoppedReason))
		if exit := exitCodes(t); exit != "" {
			line += " (" + exit + ")"
		}
		events = append(events, entities.Event{Timestamp: endOf(t), Message: line})
	}
	return events
}

// idOf is the beginning of a task's id.
func idOf(arn string) string {
	id := arn[strings.LastIndex(arn, "/")+1:]
	const enough = 8
	return id[:min(len(id), enough)]
}

func endOf(t types.Task) time.Time {
	for _, at := range []*time.Time{t.StoppedAt, t.StoppingAt} {
		if at != nil {
			return at.UTC()
		}
	}
	return time.Time{}
}

// exitCodes lists the exit codes of a task's containers, without those that succeeded.
func exitCodes(t types.Task) string {
	var all []string
	for _, c := range t.Containers {
		switch {
		case c.ExitCode != nil && *c.ExitCode != 0:
			all = append(all, fmt.Sprintf("%s exited with %d", text(c.Name), *c.ExitCode))
		case text(c.Reason) != "" && text(c.Reason) != text(t.StoppedReason):
			all = append(all, text(c.Name)+": "+text(c.Reason))
		}
	}
	return strings.Join(all, "; ")
}
