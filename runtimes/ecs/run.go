package ecs

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
)

// TaskRequest is a command to run as its own task.
type TaskRequest struct {
	Task entities.CommandTask
	// ExclusiveKey, if not empty, limits the cluster to one task at a time of this name. AttemptID names the attempt: RunTask waits for
	// the task of an interrupted attempt of that name, or uses its result, and first stops any other task of ExclusiveKey. Without an
	// AttemptID each run has its own task.
	ExclusiveKey, AttemptID string
	Tags                    map[string]string // for people

	Command []string
	Env     map[string]string // not for secrets: everyone who may describe the task can read it
	// Timeout covers everything, including the wait for capacity and for the image.
	Timeout time.Duration
	// StopAtLimit ends a command that prints more than Limit bytes to stdout; both need the wrapper.
	Limit       int
	StopAtLimit bool
}

// TaskResult is the result of a command.
type TaskResult struct {
	// Location is the task, with a link to it, for people; empty: there is none.
	Location string
	// Document is the wrapper's, or one that is built from ECS and the log.
	report.Document
	// Merged: there was no wrapper, so stdout is the log with both streams.
	Merged bool
	// LogProblem is why the output is unknown.
	LogProblem string
}

// TaskError is why a task has no exit code. Code is that of a reading.
type TaskError struct{ Code, Message string }

func (e *TaskError) Error() string { return e.Message }

func failure(code, format string, args ...any) error {
	return &TaskError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// TaskCode is the code of an error of RunTask, as in a reading.
func TaskCode(err error) string {
	var known *TaskError
	if errors.As(err, &known) {
		return known.Code
	}
	return readingCode(err)
}

// RunTask runs a command as its own task until it ends (A20, A21, C1). A command that ran is no error, with any exit code. A
// *TaskError says why there is no exit code. Any other error is of the API, or of ctx; it is permanent if ECS rejects the request. A
// task that has not ended is stopped, within half a minute after ctx ended.
func (a *Accounts) RunTask(ctx context.Context, r TaskRequest) (TaskResult, error) {
	if err := ctx.Err(); err != nil {
		return TaskResult{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	c := &command{TaskRequest: r, cluster: a.cluster(entities.RuntimeDefinition{ECS: &r.Task.Cluster}), until: time.Now().Add(r.Timeout), waitReason: "no task was started yet"}
	res, err := c.run(bounded)
	res.Location = c.location()
	var known *TaskError
	var limited *rateLimitError
	switch {
	case err == nil || ctx.Err() != nil || errors.As(err, &known) || errors.As(err, &limited):
		return res, err
	case bounded.Err() != nil:
		return res, failure(runtimes.CodeTimeout, "%s did not finish within %s: %s", r.Command[0], r.Timeout, c.waitReason)
	}
	return res, explain("run a task in cluster "+c.cluster.name, err)
}

// command is one call of RunTask.
type command struct {
	TaskRequest
	cluster    *cluster
	until      time.Time
	container  string
	logs       logs
	arn        string // of the task; empty: unknown
	requested  bool   // a task may have been started
	startedAt  time.Time
	described  bool   // the task was described
	stopping   bool   // the task is already stopping
	waitReason string // why it waits
}

// Limits of a run.
const (
	maxTries = 10               // of one attempt, if Converge stopped earlier ones
	cleanup  = 30 * time.Second // for stopping, after the caller's context has ended
)

// stoppedByUs is the stop reason of a task that an interrupted attempt stopped: it has no result.
const stoppedByUs = "converge: nobody waits for it any more"

func (c *command) run(ctx context.Context) (TaskResult, error) {
	d, err := c.cluster.describeRevision(ctx, c.Task.TaskDefinition)
	if err != nil {
		return TaskResult{}, err
	}
	c.container = cmp.Or(c.Task.Container, d.first)
	c.logs = d.logsOf(c.container)
	if err := c.stopOthers(ctx); err != nil {
		return TaskResult{}, err
	}
	c.AttemptID = cmp.Or(c.AttemptID, rand.Text())
	for n := range maxTries {
		task, err := c.attempt(ctx, n)
		switch {
		case err != nil:
			res := c.lastOutput(ctx)
			c.end(ctx)
			return res, err
		case task != nil:
			res := c.result(ctx, task)
			c.end(ctx) // its other containers may still run
			return res, nil
		}
	}
	return TaskResult{}, failure(runtimes.CodeFetchFailed, "the tasks of %d attempts were stopped before", maxTries)
}

// attempt starts a task and waits until its container ends; nil: the task is an earlier one that Converge stopped.
func (c *command) attempt(ctx context.Context, n int) (*types.Task, error) {
	arn, err := c.start(ctx, n)
	if err != nil || arn == "" {
		return nil, err
	}
	c.arn, c.startedAt = arn, time.Now()
	runtimes.ProgressOf(ctx).SetLocation(c.location())
	for first := true; ; first = false {
		task, err := c.describe(ctx)
		if err != nil {
			return nil, err
		}
		if first && task != nil && text(task.StoppedReason) == stoppedByUs {
			c.arn = ""
			return nil, nil
		}
		ended, err := c.verdict(task)
		if ended || err != nil {
			return task, err
		}
		if err := pause(ctx, c.cluster.timing.drainPollInterval); err != nil {
			return nil, err
		}
	}
}

// start starts the task of an attempt, or finds the task that was started for it. It finds it by the client token, which ECS keeps
// while the task exists and an hour longer, at most a day (API reference, ECS_Idempotency). Empty: ECS had the token, and started
// nothing.
func (c *command) start(ctx context.Context, n int) (string, error) {
	client, err := c.cluster.account.client(ctx)
	if err != nil {
		return "", err
	}
	c.requested, c.waitReason = true, "the task is about to be started"
	out, err := call(ctx, c.cluster, taskRuns, client.RunTask, c.input(n))
	var conflict *types.ConflictException
	switch {
	case errors.As(err, &conflict) && len(conflict.ResourceIds) > 0: // it was started with another deadline
		return conflict.ResourceIds[0], nil
	case err != nil:
		return "", err
	case len(out.Tasks) > 0:
		return text(out.Tasks[0].TaskArn), nil
	}
	for _, f := range out.Failures {
		return "", failure(runtimes.CodeFetchFailed, "no task of %s was started: %s", short(c.Task.TaskDefinition), strings.TrimSpace(text(f.Reason)+" "+text(f.Detail)))
	}
	return "", nil
}

func (c *command) input(n int) *ecs.RunTaskInput {
	w := c.Task
	in := &ecs.RunTaskInput{
		Cluster: &c.cluster.name, TaskDefinition: &w.TaskDefinition, ClientToken: new(c.token(n)), StartedBy: new(c.startedBy()), Group: new(c.group()),
		Overrides: &types.TaskOverride{ContainerOverrides: []types.ContainerOverride{{Name: &c.container, Command: c.argv()}}},
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		o := &in.Overrides.ContainerOverrides[0]
		o.Environment = append(o.Environment, types.KeyValuePair{Name: new(name), Value: new(c.Env[name])})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Tags)) {
		in.Tags = append(in.Tags, tag(key, c.Tags[key]))
	}
	if w.CapacityProvider != "" {
		in.CapacityProviderStrategy = []types.CapacityProviderStrategyItem{{CapacityProvider: &w.CapacityProvider, Weight: 1}}
	} else {
		in.LaunchType = types.LaunchType(w.LaunchType)
	}
	if len(w.Subnets) > 0 {
		network := &types.AwsVpcConfiguration{Subnets: w.Subnets, SecurityGroups: w.SecurityGroups, AssignPublicIp: types.AssignPublicIpDisabled}
		if w.AssignPublicIP {
			network.AssignPublicIp = types.AssignPublicIpEnabled
		}
		in.NetworkConfiguration = &types.NetworkConfiguration{AwsvpcConfiguration: network}
	}
	return in
}

// argv is the command of the container. The wrapper's timeout is a little earlier than ours, so that its document comes in time.
func (c *command) argv() []string {
	if c.Task.Wrapper == "" {
		return c.Command
	}
	margin := min(10*time.Second, c.Timeout/10) // the log arrives late
	argv := []string{c.Task.Wrapper, "exec", "--deadline", c.until.Add(-margin).UTC().Format(time.RFC3339Nano)}
	if c.Limit > 0 {
		argv = append(argv, "--limit", strconv.Itoa(c.Limit))
	}
	if c.StopAtLimit {
		argv = append(argv, "--stop-at-limit")
	}
	return append(append(argv, "--"), c.Command...)
}

// startedBy is the filter for the tasks of ExclusiveKey. group identifies those of this attempt: by its name and the whole request,
// without the deadline.
func (c *command) startedBy() string {
	return "converge/" + sum(cmp.Or(c.ExclusiveKey, c.AttemptID))
}

func (c *command) group() string {
	return "converge-" + sum(c.ExclusiveKey, c.AttemptID, c.Task, c.Command, c.Env, c.Timeout, c.Limit)
}

func (c *command) token(n int) string { return sum(c.group(), n) + sum(n, c.group()) }

func sum(values ...any) string {
	data, _ := json.Marshal(values) // never fails for texts and numbers
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:16])
}

// describe reads the task; nil: reads lag, and do not show it yet.
func (c *command) describe(ctx context.Context) (*types.Task, error) {
	client, err := c.cluster.account.client(ctx)
	if err != nil {
		return nil, err
	}
	out, err := call(ctx, c.cluster, taskReads, client.DescribeTasks, &ecs.DescribeTasksInput{Cluster: &c.cluster.name, Tasks: []string{c.arn}})
	if err != nil || len(out.Tasks) == 0 {
		return nil, err
	}
	return &out.Tasks[0], nil
}

// verdict decides whether the container has ended, or can never start. Its exit code counts only if it ended without being stopped:
// a stopped container has one too.
func (c *command) verdict(t *types.Task) (ended bool, err error) {
	if t == nil {
		if time.Since(c.startedAt) > c.cluster.timing.readLag || c.described {
			return false, failure(runtimes.CodeFetchFailed, "task %s no longer exists: ECS forgets a task an hour after its end", idOf(c.arn))
		}
		c.waitReason = "task " + idOf(c.arn) + " is not seen yet"
		return false, nil
	}
	c.described = true
	c.waitReason = fmt.Sprintf("task %s is %s", idOf(c.arn), text(t.LastStatus))
	over := text(t.LastStatus) == "STOPPED"
	c.stopping = text(t.DesiredStatus) == "STOPPED"
	at := slices.IndexFunc(t.Containers, func(o types.Container) bool { return text(o.Name) == c.container })
	switch {
	case t.StopCode != "" && t.StopCode != types.TaskStopCodeEssentialContainerExited:
		return false, c.noExitCodeError(t)
	case at >= 0 && t.Containers[at].ExitCode != nil && (t.StopCode != "" || text(t.Containers[at].LastStatus) == "STOPPED"):
		return true, nil
	case over:
		return false, c.noExitCodeError(t)
	}
	return false, nil
}

// noExitCodeError says why a task has no exit code, with the reasons of ECS.
func (c *command) noExitCodeError(t *types.Task) error {
	message := text(t.StoppedReason)
	for _, o := range t.Containers {
		if reason := text(o.Reason); reason != "" && !strings.Contains(message, reason) {
			message += "; " + text(o.Name) + ": " + reason
		}
	}
	code := runtimes.CodeFetchFailed
	if strings.Contains(message, "executable file not found") || strings.Contains(message, "no such file or directory") {
		code = runtimes.CodeCommandNotFound
	}
	ending := "was stopped"
	if t.StopCode == types.TaskStopCodeTaskFailedToStart {
		ending = "did not start"
	}
	return failure(code, "task %s of %s %s: %s (%s)", idOf(c.arn), short(text(t.TaskDefinitionArn)), ending, message, t.StopCode)
}

// stopOthers stops the tasks of ExclusiveKey that are not of this attempt, and waits until they have ended.
func (c *command) stopOthers(ctx context.Context) error {
	if c.ExclusiveKey == "" {
		return nil
	}
	others, err := c.running(ctx, func(t types.Task) bool { return text(t.Group) != c.group() })
	for _, other := range others {
		if err = c.stop(ctx, text(other.TaskArn)); err != nil {
			return err
		}
	}
	return err
}

// running lists the tasks of ExclusiveKey, or of this run, whose desired state is running. The filter cannot be combined with others
// (API ListTasks, startedBy).
func (c *command) running(ctx context.Context, matches func(types.Task) bool) ([]types.Task, error) {
	client, err := c.cluster.account.client(ctx)
	if err != nil {
		return nil, err
	}
	list, err := call(ctx, c.cluster, taskReads, client.ListTasks, &ecs.ListTasksInput{Cluster: &c.cluster.name, StartedBy: new(c.startedBy())})
	if err != nil || len(list.TaskArns) == 0 {
		return nil, err
	}
	out, err := call(ctx, c.cluster, taskReads, client.DescribeTasks, &ecs.DescribeTasksInput{Cluster: &c.cluster.name, Tasks: list.TaskArns})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(out.Tasks, func(t types.Task) bool { return !matches(t) }), nil
}

// stop stops a task, and returns when it has ended.
func (c *command) stop(ctx context.Context, arn string) error {
	client, err := c.cluster.account.client(ctx)
	if err != nil {
		return err
	}
	reason := stoppedByUs
	_, err = call(ctx, c.cluster, taskRuns, client.StopTask, &ecs.StopTaskInput{Cluster: &c.cluster.name, Task: &arn, Reason: &reason})
	if err != nil {
		return err
	}
	one := command{cluster: c.cluster, arn: arn}
	for {
		task, err := one.describe(ctx)
		if err != nil || task == nil || text(task.LastStatus) == "STOPPED" {
			return err
		}
		if err := pause(ctx, c.cluster.timing.drainPollInterval); err != nil {
			return err
		}
	}
}

// end stops a started task that has not ended, also if the answer with its name was lost. It waits until the task has ended, unless
// the worker loses its connection.
func (c *command) end(ctx context.Context) {
	timeout := cleanup
	if errors.Is(context.Cause(ctx), runtimes.ErrDisconnected) {
		timeout = runtimes.DisconnectGrace
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if c.arn == "" && c.requested {
		mine, err := c.running(ctx, func(t types.Task) bool { return text(t.Group) == c.group() })
		if err != nil || len(mine) == 0 {
			return
		}
		c.arn = text(mine[0].TaskArn)
	}
	if c.arn == "" || c.stopping {
		return
	}
	_ = c.stop(ctx, c.arn) // no other action is possible: the next attempt of ExclusiveKey stops it
}

// location is the name of the task and its link in the console.
func (c *command) location() string {
	parts := strings.Split(c.arn, ":")
	if len(parts) < 6 {
		return ""
	}
	name := strings.Split(parts[5], "/") // task/shop/0123
	id, cluster, region := name[len(name)-1], name[max(0, len(name)-2)], parts[3]
	return fmt.Sprintf("ECS task %s: %s/ecs/v2/clusters/%s/tasks/%s/configuration?region=%s", idOf(c.arn), entities.AWSConsole(region), cluster, id, region)
}
