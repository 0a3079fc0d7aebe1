package ecsfake_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// run starts a one-off task of the family web.
func (l *lab) run(change ...func(*ecs.RunTaskInput)) (*ecs.RunTaskOutput, error) {
	in := &ecs.RunTaskInput{Cluster: aws.String("shop"), TaskDefinition: aws.String("web")}
	for _, c := range change {
		c(in)
	}
	return l.client.RunTask(l.ctx, in)
}

func commanded(command ...string) func(*ecs.RunTaskInput) {
	return func(in *ecs.RunTaskInput) {
		in.Overrides = &types.TaskOverride{ContainerOverrides: []types.ContainerOverride{{Name: aws.String("web"), Command: command}}}
	}
}

// describe is one task; nil when it is missing.
func (l *lab) describe(arn *string) *types.Task {
	l.Helper()
	out, err := l.client.DescribeTasks(l.ctx, &ecs.DescribeTasksInput{Cluster: aws.String("shop"), Tasks: []string{*arn}})
	require.NoError(l, err)
	if len(out.Tasks) == 0 {
		require.Equal(l, "MISSING", *out.Failures[0].Reason)
		return nil
	}
	return &out.Tasks[0]
}

func TestTasksGoThroughTheirLives(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1", fargate, checked)
	l.create("web", 1, func(in *ecs.CreateServiceInput) {
		in.LaunchType, in.NetworkConfiguration = types.LaunchTypeFargate, subnets()
	})
	task := l.tasks(func(in *ecs.ListTasksInput) {})[0]
	lives := []string{}
	note := func() {
		now := l.describe(task.TaskArn)
		line := fmt.Sprintf("%s of %s, %s", *now.LastStatus, *now.DesiredStatus, now.HealthStatus)
		if len(lives) == 0 || lives[len(lives)-1] != line {
			lives = append(lives, line)
		}
	}
	for range 60 {
		note()
		l.Advance(time.Second)
	}
	_, err := l.client.StopTask(l.ctx, &ecs.StopTaskInput{Cluster: aws.String("shop"), Task: task.TaskArn})
	require.NoError(t, err)
	for range 60 {
		note()
		l.Advance(time.Second)
	}
	require.Equal(t, []string{
		"PROVISIONING of RUNNING, UNKNOWN",
		"PENDING of RUNNING, UNKNOWN",
		"RUNNING of RUNNING, UNKNOWN",
		"RUNNING of RUNNING, HEALTHY",
		"DEACTIVATING of STOPPED, HEALTHY",
		"STOPPING of STOPPED, HEALTHY",
		"DEPROVISIONING of STOPPED, HEALTHY",
		"STOPPED of STOPPED, HEALTHY",
	}, lives)
	stopped := l.describe(task.TaskArn)
	require.Equal(t, "UserInitiated Task stopped by user 0", fmt.Sprint(stopped.StopCode, " ", *stopped.StoppedReason, " ", *stopped.Containers[0].ExitCode))
	require.True(t, stopped.CreatedAt.Before(*stopped.StartedAt) && stopped.StartedAt.Before(*stopped.StoppedAt))
	l.Advance(time.Hour)
	require.Nil(t, l.describe(task.TaskArn), "stopped tasks are remembered for an hour")
}

func TestOneOffTasksEndAsTheLeverDecides(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	l.Command("migrate up", ecsfake.Run{ExitCode: 3, For: time.Minute})
	l.Command("serve", ecsfake.Run{For: -1})
	for _, row := range []struct {
		change func(*ecs.RunTaskInput)
		after  time.Duration
		status string
		code   *int32
	}{
		{commanded("migrate", "up"), 30 * time.Second, "RUNNING", nil},
		{commanded("migrate", "up"), 2 * time.Minute, "STOPPED", aws.Int32(3)},
		{commanded("other"), time.Minute, "STOPPED", aws.Int32(0)},
		{func(*ecs.RunTaskInput) {}, time.Hour, "RUNNING", nil},
	} {
		out, err := l.run(row.change, func(in *ecs.RunTaskInput) { in.StartedBy = aws.String("converge") })
		require.NoError(t, err)
		require.Equal(t, "PENDING family:web converge", *out.Tasks[0].LastStatus+" "+*out.Tasks[0].Group+" "+*out.Tasks[0].StartedBy)
		l.Advance(row.after)
		task := l.describe(out.Tasks[0].TaskArn)
		require.Equal(t, row.status, *task.LastStatus)
		require.Equal(t, row.code, task.Containers[0].ExitCode)
	}
}

func TestRunningTasksIsRefused(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	for message, change := range map[string]func(*ecs.RunTaskInput){
		"InvalidParameterException: Count must be between 1 and 10.":                       func(in *ecs.RunTaskInput) { in.Count = aws.Int32(11) },
		"ClusterNotFoundException":                                                         func(in *ecs.RunTaskInput) { in.Cluster = nil },
		"ClientException: Unable to find task definition":                                  func(in *ecs.RunTaskInput) { in.TaskDefinition = aws.String("x") },
		"InvalidParameterException: Network Configuration is not valid":                    func(in *ecs.RunTaskInput) { in.NetworkConfiguration = subnets() },
		"InvalidParameterException: Task definition does not support launch_type FARGATE.": func(in *ecs.RunTaskInput) { in.LaunchType = types.LaunchTypeFargate },
		"InvalidParameterException: Override for container named x is not a container in the": func(in *ecs.RunTaskInput) {
			in.Overrides = &types.TaskOverride{ContainerOverrides: []types.ContainerOverride{{Name: aws.String("x")}}}
		},
	} {
		_, err := l.run(change)
		require.ErrorContains(t, err, message)
	}
	l.Instances("shop", 0)
	out, err := l.run()
	require.NoError(t, err)
	require.Empty(t, out.Tasks)
	require.Equal(t, "RESOURCE:MEMORY", *out.Failures[0].Reason, "no room is not an error")
}

func TestClientTokensOfRunTask(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	token := func(in *ecs.RunTaskInput) { in.ClientToken = aws.String("one") }
	first, err := l.run(token)
	require.NoError(t, err)
	again, err := l.run(token)
	require.NoError(t, err)
	require.Equal(t, *first.Tasks[0].TaskArn, *again.Tasks[0].TaskArn)
	_, err = l.run(token, commanded("other"))
	var conflict *types.ConflictException
	require.True(t, errors.As(err, &conflict))
	require.Equal(t, []string{*first.Tasks[0].TaskArn}, conflict.ResourceIds)
}

func TestListingTasks(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	l.register("job", "job:1")
	web := l.create("web", 2)
	l.Command("serve", ecsfake.Run{For: -1})
	_, err := l.run(func(in *ecs.RunTaskInput) {
		in.TaskDefinition, in.Count, in.StartedBy = aws.String("job"), aws.Int32(10), aws.String("converge")
	})
	require.NoError(t, err)
	for _, row := range []struct {
		change func(*ecs.ListTasksInput)
		want   int
	}{
		{func(*ecs.ListTasksInput) {}, 12},
		{func(in *ecs.ListTasksInput) { in.ServiceName = web.ServiceArn }, 2},
		{func(in *ecs.ListTasksInput) { in.Family = aws.String("job") }, 10},
		{func(in *ecs.ListTasksInput) { in.StartedBy = aws.String("converge") }, 10},
		{func(in *ecs.ListTasksInput) { in.StartedBy = web.Deployments[0].Id }, 2},
		{func(in *ecs.ListTasksInput) { in.DesiredStatus = types.DesiredStatusStopped }, 0},
		{func(in *ecs.ListTasksInput) { in.DesiredStatus = types.DesiredStatusPending }, 0},
		{func(in *ecs.ListTasksInput) { in.MaxResults = aws.Int32(7) }, 7},
	} {
		require.Len(t, l.tasks(row.change), row.want)
	}
	_, err = l.client.ListTasks(l.ctx, &ecs.ListTasksInput{Cluster: aws.String("shop"), ServiceName: aws.String("web"), StartedBy: aws.String("x")})
	require.ErrorContains(t, err, "startedBy must be the only filter")
	_, err = l.client.ListTasks(l.ctx, &ecs.ListTasksInput{Cluster: aws.String("shop"), ServiceName: aws.String("x")})
	require.Equal(t, "ServiceNotFoundException", code(err))
	_, err = l.client.DescribeTasks(l.ctx, &ecs.DescribeTasksInput{Cluster: aws.String("shop"), Tasks: make([]string, 101)})
	require.Equal(t, "InvalidParameterException", code(err))
	_, err = l.client.StopTask(l.ctx, &ecs.StopTaskInput{Cluster: aws.String("shop"), Task: aws.String("x")})
	require.ErrorContains(t, err, "InvalidParameterException: The referenced task was not found.")
}
