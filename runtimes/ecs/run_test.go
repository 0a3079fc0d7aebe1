package ecs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/kubernetes/job/report"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// taskCluster is a fake of ECS with a fast clock, with a task definition tool:1 in the cluster shop.
type taskCluster struct {
	*testing.T
	*ecsfake.Server
	client *ecs.Client // of another user
}

func newTaskCluster(t *testing.T, change ...func(*ecs.RegisterTaskDefinitionInput)) *taskCluster {
	t.Helper()
	const speed = 2000
	server, err := ecsfake.New(ecsfake.Options{Speed: speed, LimitClock: time.Now})
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	y := &taskCluster{t, server, server.Client(noRetries)}
	_, err = y.client.CreateCluster(t.Context(), &ecs.CreateClusterInput{ClusterName: aws.String("shop")})
	require.NoError(t, err)
	in := &ecs.RegisterTaskDefinitionInput{Family: aws.String("tool"), ContainerDefinitions: []types.ContainerDefinition{
		{Name: aws.String("tool"), Image: aws.String("tool:1"), Memory: aws.Int32(128), LogConfiguration: &types.LogConfiguration{
			LogDriver: types.LogDriverAwslogs, Options: map[string]string{"awslogs-group": "tools", "awslogs-stream-prefix": "converge", "awslogs-region": "us-east-1"},
		}},
		{Name: aws.String("beside"), Image: aws.String("beside:1"), Memory: aws.Int32(128), Essential: aws.Bool(false)},
	}}
	for _, c := range change {
		c(in)
	}
	_, err = y.client.RegisterTaskDefinition(t.Context(), in)
	require.NoError(t, err)
	return y
}

// worker has its own caches, as another worker has.
func (y *taskCluster) worker(change ...func(*timing)) *Accounts {
	accounts := &Accounts{
		Configure: (&testCluster{}).configure, timing: fastTiming(append([]func(*timing){func(t *timing) { t.logPollInterval = time.Millisecond }}, change...)...),
		ConfigureLogs: func(o *cloudwatchlogs.Options) {
			var same ecs.Options
			(&testCluster{}).configure(&same)
			o.HTTPClient, o.Credentials, o.BaseEndpoint = same.HTTPClient, same.Credentials, &y.URL
		},
	}
	y.Cleanup(accounts.Close)
	return accounts
}

// task is a command in the container tool.
func (y *taskCluster) task(argv ...string) TaskRequest {
	return TaskRequest{
		Task:    entities.CommandTask{Cluster: entities.ECSRuntime{Cluster: "shop", Region: "us-east-1", Endpoint: y.URL}, TaskDefinition: "tool:1"},
		Command: argv, Env: map[string]string{"PVN_SERVICE": "web", "A": "1"}, Timeout: time.Minute, Tags: map[string]string{TagOwner: "shop/web/prod"},
	}
}

// started are all tasks that were started so far, by what they are to be.
func (y *taskCluster) started(status types.DesiredStatus) []types.Task {
	y.Helper()
	list, err := y.client.ListTasks(y.Context(), &ecs.ListTasksInput{Cluster: aws.String("shop"), DesiredStatus: status})
	require.NoError(y, err)
	if len(list.TaskArns) == 0 {
		return nil
	}
	out, err := y.client.DescribeTasks(y.Context(), &ecs.DescribeTasksInput{Cluster: aws.String("shop"), Tasks: list.TaskArns, Include: []types.TaskField{types.TaskFieldTags}})
	require.NoError(y, err)
	return out.Tasks
}

// running waits until so many tasks run.
func (y *taskCluster) running(n int) []types.Task {
	y.Helper()
	var all []types.Task
	require.Eventually(y, func() bool {
		all = y.started(types.DesiredStatusRunning)
		for _, t := range all {
			if *t.LastStatus != "RUNNING" {
				return false
			}
		}
		return len(all) == n
	}, time.Minute, time.Millisecond)
	return all
}

// The command replaces that of the container, gets its environment, and its exit code and output come back.
func TestCommandRunsAsTask_A20_A21_C7(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	y.Command("migrate up", ecsfake.Run{ExitCode: 3, Log: []string{"one", "two"}})
	res, err := y.worker().RunTask(t.Context(), y.task("migrate", "up"))
	require.NoError(t, err)
	require.Equal(t, 3, res.ExitCode)
	require.Equal(t, "one\ntwo\n", string(res.Stdout.Data))
	require.True(t, res.Merged)
	require.Empty(t, res.LogProblem)
	require.Regexp(t, `^ECS task [0-9a-f]{8}: https://us-east-1\.console\.aws\.amazon\.com/ecs/v2/clusters/shop/tasks/[0-9a-f]{32}/configuration\?region=us-east-1$`, res.Location)
	task := y.started(types.DesiredStatusStopped)[0]
	override, err := json.Marshal(task.Overrides.ContainerOverrides)
	require.NoError(t, err)
	require.Contains(t, string(override), `"Command":["migrate","up"]`)
	require.Contains(t, string(override), `"Environment":[{"Name":"A","Value":"1"},{"Name":"PVN_SERVICE","Value":"web"}]`)
	require.Equal(t, "shop/web/prod", valueOf(task.Tags, TagOwner))
}

// With a wrapper stdout and stderr come apart, and the exit code is the command's own.
func TestTaskInWrapper_C3(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	var document strings.Builder
	require.NoError(t, report.Document{
		ExitCode: 7, StartedAt: time.Unix(1, 0).UTC(), Stdout: report.Stream{Data: []byte("out\n"), Bytes: 4}, Stderr: report.Stream{Data: []byte("err\n"), Bytes: 4},
	}.Write(&document))
	y.Command("tool plan", ecsfake.Run{ExitCode: 7, Log: []string{"noise", strings.TrimSpace(document.String())}})
	r := y.task("tool", "plan")
	r.Task.Wrapper, r.Limit, r.StopAtLimit = "/converge-wrapper", 1000, true
	res, err := y.worker().RunTask(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, [3]any{7, "out\n", "err\n"}, [3]any{res.ExitCode, string(res.Stdout.Data), string(res.Stderr.Data)})
	require.False(t, res.Merged)
	require.Regexp(t, `^/converge-wrapper exec --deadline \S+Z --limit 1000 --stop-at-limit -- tool plan$`,
		strings.Join(y.started(types.DesiredStatusStopped)[0].Overrides.ContainerOverrides[0].Command, " "))
}

// A document that the log's agent cut into several events is put together again, over the pages of an answer.
func TestSplitDocumentOfATaskIsJoined_C3(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	text := strings.Repeat("0123456789", 50_000)
	var document strings.Builder
	require.NoError(t, report.Document{Stdout: report.Stream{Data: []byte(text), Bytes: int64(len(text))}}.Write(&document))
	line := strings.TrimSpace(document.String())
	events := make([]string, 12_000)
	for i := range events {
		events[i] = "talk"
	}
	const most = 262_118
	y.Command("long", ecsfake.Run{Log: append(events, line[:most], line[most:])})
	r := y.task("long")
	r.Task.Wrapper = "/converge-wrapper"
	res, err := y.worker().RunTask(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, text, string(res.Stdout.Data))

	y.Command("talks", ecsfake.Run{Log: events})
	res, err = y.worker().RunTask(t.Context(), y.task("talks"))
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("talk\n", len(events)), string(res.Stdout.Data))
}

// What kept a container from running, or ended it from outside, is an error with ECS's reasons, and never an exit code.
func TestTaskWithoutExitCode_A20(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, code, says string
		prepare          func(*taskCluster, *TaskRequest)
		permanent        bool
	}{
		{"image", runtimes.CodeFetchFailed, `task [0-9a-f]{8} of tool:1 did not start: CannotPullContainerError: .*tool:1: not found \(TaskFailedToStart\)`, func(y *taskCluster, _ *TaskRequest) {
			y.Behave("tool:1", ecsfake.CannotPull("tool:1"))
		}, false},
		{"program", runtimes.CodeCommandNotFound, `did not start: CannotStartContainerError: exec: "x": executable file not found in \$PATH`, func(y *taskCluster, _ *TaskRequest) {
			y.Behave("tool:1", ecsfake.Behaviour{PullError: `CannotStartContainerError: exec: "x": executable file not found in $PATH`})
		}, false},
		{"no capacity", runtimes.CodeFetchFailed, `no task of tool:1 was started: RESOURCE:MEMORY`, func(y *taskCluster, _ *TaskRequest) { y.Instances("shop", 0) }, false},
		{"no definition", runtimes.CodeFetchFailed, `run a task in cluster shop: ClientException: Unable to describe task definition`, func(_ *taskCluster, r *TaskRequest) { r.Task.TaskDefinition = "none:1" }, true},
		{"no container", runtimes.CodeFetchFailed, `run a task in cluster shop: InvalidParameterException: Override for container named x is not`, func(_ *taskCluster, r *TaskRequest) { r.Task.Container = "x" }, true},
		{"permission", runtimes.CodeForbidden, `AccessDeniedException: .*ecs:RunTask \(grant that role or user the permission`, func(y *taskCluster, _ *TaskRequest) {
			y.Break(ecsfake.Fault{Kind: ecsfake.AccessDenied, Operations: []string{"RunTask"}})
		}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			y := newTaskCluster(t)
			r := y.task("x")
			row.prepare(y, &r)
			_, err := y.worker().RunTask(t.Context(), r)
			require.Error(t, err)
			require.Regexp(t, row.says, err.Error())
			require.Equal(t, row.code, TaskCode(err))
			require.Equal(t, row.permanent, runtimes.IsPermanent(err))
		})
	}
}

// Somebody who stops a task ends its container with an exit code, which is none of the command's.
func TestTaskStoppedByHandHasNoExitCode_A20(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	y.Command("serve", ecsfake.Run{For: -1})
	done := make(chan error, 1)
	go func() {
		_, err := y.worker().RunTask(t.Context(), y.task("serve"))
		done <- err
	}()
	_, err := y.client.StopTask(t.Context(), &ecs.StopTaskInput{Cluster: aws.String("shop"), Task: y.running(1)[0].TaskArn, Reason: aws.String("lunch")})
	require.NoError(t, err)
	require.Regexp(t, `task [0-9a-f]{8} of tool:1 was stopped: lunch \(UserInitiated\)`, (<-done).Error())
}

// A command that takes too long, or whose caller no longer waits, is stopped, and its last output is reported.
func TestTaskIsStopped_A20_A21(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	y.Command("slow", ecsfake.Run{For: -1, Log: []string{"halfway"}})
	r := y.task("slow")
	r.Timeout = time.Second
	res, err := y.worker(func(t *timing) { t.drainPollInterval = 100 * time.Millisecond }).RunTask(t.Context(), r)
	require.Regexp(t, `^slow did not finish within 1s: task [0-9a-f]{8} is RUNNING; last output: halfway$`, err.Error())
	require.Equal(t, runtimes.CodeTimeout, TaskCode(err))
	require.Equal(t, "halfway\n", string(res.Stdout.Data))
	require.Empty(t, y.started(types.DesiredStatusRunning))

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := y.worker().RunTask(ctx, y.task("slow"))
		done <- err
	}()
	y.running(1)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Empty(t, y.started(types.DesiredStatusRunning))
	for _, task := range y.started(types.DesiredStatusStopped) {
		require.Equal(t, stoppedByUs, *task.StoppedReason)
	}
}

// deadWorker workers send no more requests.
type deadWorker struct{ atomic.Bool }

type deadClient struct {
	ecs.HTTPClient
	*deadWorker
}

func (c deadClient) Do(r *http.Request) (*http.Response, error) {
	if c.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return c.HTTPClient.Do(r)
}

// An attempt that is repeated after its worker was lost waits for the task that was started, or uses the result of one that has
// ended. The next attempt stops the remaining tasks and has its own task.
func TestTaskOfALostWorkerIsReused_A21_C1(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	y.Command("migrate", ecsfake.Run{For: -1})
	r := y.task("migrate")
	r.ExclusiveKey, r.AttemptID, r.Task.Wrapper = "shop/web/migrate", "1", "/converge-wrapper" // whose deadline differs from worker to worker
	var gone deadWorker
	lost := func() {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		worker := y.worker()
		configure := worker.Configure
		worker.Configure = func(o *ecs.Options) {
			configure(o)
			o.HTTPClient = deadClient{o.HTTPClient, &gone}
		}
		go func() { _, _ = worker.RunTask(ctx, r) }()
	}
	lost()
	first := y.running(1)[0]
	lost()
	require.Eventually(t, func() bool { return y.Calls()["RunTask"] == 2 }, time.Minute, time.Millisecond)
	require.Equal(t, *first.TaskArn, *y.running(1)[0].TaskArn)

	gone.Store(true)
	y.Command("migrate", ecsfake.Run{ExitCode: 4})
	r.AttemptID = "2"
	res, err := y.worker().RunTask(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, 4, res.ExitCode)
	require.Empty(t, y.started(types.DesiredStatusRunning))
	require.Len(t, y.started(types.DesiredStatusStopped), 2)
	again, err := y.worker().RunTask(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, [2]any{4, res.Location}, [2]any{again.ExitCode, again.Location})
}

// A task that an interrupted attempt stopped is no result of the same attempt when it is repeated.
func TestStoppedTaskIsRestarted_A21(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	y.Command("migrate", ecsfake.Run{For: -1})
	r := y.task("migrate")
	r.ExclusiveKey, r.AttemptID = "shop/web/migrate", "1"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := y.worker().RunTask(ctx, r)
		done <- err
	}()
	y.running(1)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	y.Command("migrate", ecsfake.Run{})
	res, err := y.worker().RunTask(t.Context(), r)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Len(t, y.started(types.DesiredStatusStopped), 2)
}

// An answer that is lost starts nothing twice, and reads that lag do no harm.
func TestLostAnswerStartsOneTask_C1(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	y.Break(ecsfake.Fault{Kind: ecsfake.LostAnswer, Operations: []string{"RunTask"}, Times: 2})
	y.Lag(20 * time.Second)
	res, err := y.worker().RunTask(t.Context(), y.task("x"))
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	y.Lag(0)
	require.Equal(t, 3, y.Calls()["RunTask"])
	require.Eventually(t, func() bool { return len(y.started(types.DesiredStatusStopped)) == 1 }, time.Minute, time.Millisecond)
}

// If the output is unknown, the result has only the exit code, and says so.
func TestTaskWithoutLog_A20(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t, func(in *ecs.RegisterTaskDefinitionInput) { in.ContainerDefinitions[0].LogConfiguration = nil })
	y.Command("x", ecsfake.Run{ExitCode: 5, Log: []string{"unheard"}})
	res, err := y.worker().RunTask(t.Context(), y.task("x"))
	require.NoError(t, err)
	require.Equal(t, 5, res.ExitCode)
	require.Equal(t, "container tool has no log driver awslogs with a group", res.LogProblem)

	y = newTaskCluster(t)
	y.Command("x", ecsfake.Run{ExitCode: 5, Log: []string{"unread"}})
	y.Break(ecsfake.Fault{Kind: ecsfake.AccessDenied, Operations: []string{"GetLogEvents"}})
	res, err = y.worker().RunTask(t.Context(), y.task("x"))
	require.NoError(t, err)
	require.Equal(t, 5, res.ExitCode)
	require.Contains(t, res.LogProblem, "log group tools cannot be read: AccessDeniedException: ")
	require.Empty(t, res.Stdout.Data)
}

// Without a prefix the stream is called as Docker calls the container.
func TestLogWithoutPrefix_A20(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t, func(in *ecs.RegisterTaskDefinitionInput) {
		delete(in.ContainerDefinitions[0].LogConfiguration.Options, "awslogs-stream-prefix")
	})
	y.Command("x", ecsfake.Run{Log: []string{"heard"}})
	res, err := y.worker().RunTask(t.Context(), y.task("x"))
	require.NoError(t, err)
	require.Equal(t, "heard\n", string(res.Stdout.Data))
}

// A start that ECS refuses as too fast waits; where there is no time for that, the reason is said.
func TestTasksWaitForTheAPI_C1(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	y.Break(ecsfake.Fault{Kind: ecsfake.Throttled, Operations: []string{"RunTask"}, Times: 1})
	worker := y.worker()
	_, err := worker.RunTask(t.Context(), y.task("x"))
	require.NoError(t, err)
	require.Equal(t, 1, y.Throttled()["RunTask"])

	mend := y.Break(ecsfake.Fault{Kind: ecsfake.Throttled, Operations: []string{"RunTask"}})
	r := y.task("x")
	r.Timeout = 500 * time.Millisecond
	_, err = worker.RunTask(t.Context(), r)
	mend()
	require.EqualError(t, err, "AWS currently throttles starts and stops of tasks in this account and region; the call is retried later")
	require.Equal(t, codeThrottled, TaskCode(err))
	require.Equal(t, rate{100, 40}, rates()[taskRuns])
}

// What is declared of where it runs reaches ECS, and nothing else does.
func TestPlacementOfATask_C10(t *testing.T) {
	t.Parallel()
	y := newTaskCluster(t)
	where := func(change func(*entities.CommandTask)) string {
		c := &command{TaskRequest: y.task("x"), cluster: &cluster{name: "shop"}, container: "tool"}
		change(&c.Task)
		in := c.input(0)
		text, err := json.Marshal([]any{in.LaunchType, in.CapacityProviderStrategy, in.NetworkConfiguration})
		require.NoError(t, err)
		require.LessOrEqual(t, len(*in.ClientToken), 64)
		require.LessOrEqual(t, len(*in.StartedBy), 128)
		return string(text)
	}
	require.Equal(t, `["",null,null]`, where(func(*entities.CommandTask) {}))
	require.Equal(t, `["FARGATE",null,{"AwsvpcConfiguration":{"Subnets":["a"],"AssignPublicIp":"ENABLED","SecurityGroups":["b"]}}]`, where(func(w *entities.CommandTask) {
		w.LaunchType, w.Subnets, w.SecurityGroups, w.AssignPublicIP = "FARGATE", []string{"a"}, []string{"b"}, true
	}))
	require.Equal(t, `["",[{"CapacityProvider":"spot","Base":0,"Weight":1}],null]`, where(func(w *entities.CommandTask) { w.CapacityProvider = "spot" }))
}

// A task that ECS no longer has is lost: RunTask does not wait until the timeout.
func TestForgottenTask_A20(t *testing.T) {
	t.Parallel()
	c := &command{arn: "arn:aws:ecs:us-east-1:123456789012:task/shop/0123", cluster: &cluster{timing: *fastTiming()}, startedAt: time.Now()}
	_, err := c.verdict(nil)
	require.NoError(t, err, "reads may lag")
	c.described = true
	_, err = c.verdict(nil)
	require.ErrorContains(t, err, "task 0123 no longer exists")
}

// Other containers of the task do not continue alone.
func TestOtherContainersAreStopped_A20(t *testing.T) {
	t.Parallel()
	running, exited := "RUNNING", "STOPPED"
	c := &command{container: "tool"}
	ended, err := c.verdict(&types.Task{LastStatus: &running, DesiredStatus: &running, Containers: []types.Container{
		{Name: aws.String("tool"), LastStatus: &exited, ExitCode: aws.Int32(0)}, {Name: aws.String("beside"), LastStatus: &running},
	}})
	require.NoError(t, err)
	require.True(t, ended)
	for _, code := range []types.TaskStopCode{types.TaskStopCodeSpotInterruption, types.TaskStopCodeUserInitiated, types.TaskStopCodeTerminationNotice} {
		_, err = c.verdict(&types.Task{LastStatus: &exited, StopCode: code, StoppedReason: aws.String("why"), Containers: []types.Container{{Name: aws.String("tool"), ExitCode: aws.Int32(0)}}})
		var none *TaskError
		require.True(t, errors.As(err, &none), fmt.Sprint(code))
		require.Contains(t, none.Message, "was stopped: why ("+string(code)+")")
	}
}
