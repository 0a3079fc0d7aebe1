package ecsfake_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// deployments are the service deployments of web, newest first, in full.
func (l *lab) deployments() []types.ServiceDeployment {
	l.Helper()
	list, err := l.client.ListServiceDeployments(l.ctx, &ecs.ListServiceDeploymentsInput{Cluster: aws.String("shop"), Service: aws.String("web")})
	require.NoError(l, err)
	in := &ecs.DescribeServiceDeploymentsInput{}
	for _, d := range list.ServiceDeployments {
		in.ServiceDeploymentArns = append(in.ServiceDeploymentArns, *d.ServiceDeploymentArn)
	}
	out, err := l.client.DescribeServiceDeployments(l.ctx, in)
	require.NoError(l, err)
	return out.ServiceDeployments
}

// guide deployment-circuit-breaker: half the desired count, at least 3, at most 200; API ThresholdConfiguration.
func TestThresholdOfTheBreaker(t *testing.T) {
	for _, row := range []struct {
		desired int32
		config  *types.ThresholdConfiguration
		want    int32
	}{
		{0, nil, 3},
		{1, nil, 3},
		{6, nil, 3},
		{25, nil, 13},
		{400, nil, 200},
		{800, nil, 200},
		{800, &types.ThresholdConfiguration{Type: types.ThresholdTypeUnboundedPercent, Value: 50}, 400},
		{10, &types.ThresholdConfiguration{Type: types.ThresholdTypeBoundedPercent, Value: 80}, 8},
		{10, &types.ThresholdConfiguration{Type: types.ThresholdTypeCount, Value: 1}, 1},
	} {
		l := newLab(t, ecsfake.Options{})
		l.create(l.register("web", "web:1"), row.desired, func(in *ecs.CreateServiceInput) {
			breaker(true)(in)
			in.DeploymentConfiguration.DeploymentCircuitBreaker.ThresholdConfiguration = row.config
		})
		require.Equal(t, row.want, l.deployments()[0].DeploymentCircuitBreaker.Threshold, "%d tasks", row.desired)
	}
}

// broken are ways in which a new version can fail, with what is seen of it.
var broken = map[string]struct {
	behaviour ecsfake.Behaviour
	reason    string
	stopCode  types.TaskStopCode
	exitCode  *int32
}{
	"image":    {ecsfake.CannotPull("web:2"), "CannotPullContainerError: pull image manifest has been retried 1 time(s): failed to resolve ref web:2: not found", "TaskFailedToStart", nil},
	"exits":    {ecsfake.ExitsEarly(1), "Essential container in task exited", "EssentialContainerExited", aws.Int32(1)},
	"sick":     {ecsfake.Behaviour{Unhealthy: true}, "Task failed container health checks", "ServiceSchedulerInitiated", aws.Int32(0)},
	"no place": {ecsfake.Behaviour{Unplaceable: true}, "", "", nil},
}

func TestBreakerRollsBack(t *testing.T) {
	for name, row := range broken {
		for mode, rollback := range map[string]ecsfake.Rollback{"promoted": ecsfake.RollbackPromotes, "new": ecsfake.RollbackStartsNew} {
			t.Run(name+" "+mode, func(t *testing.T) {
				l := newLab(t, ecsfake.Options{Rollback: rollback})
				l.Behave("web:2", row.behaviour)
				one, two := l.register("web", "web:1", checked), l.register("web", "web:2", checked)
				l.create(one, 2, breaker(true))
				before := l.settled()
				bad := *l.update(to(two)).Deployments[0].Id

				story := l.story()
				if name != "no place" {
					require.True(t, slices.ContainsFunc(story, func(line string) bool {
						return strings.HasPrefix(line, "PRIMARY web:1 IN_PROGRESS") && strings.Contains(line, "ACTIVE web:2 FAILED")
					}), story)
				}
				web := l.web()
				require.Equal(t, "PRIMARY web:1 COMPLETED 2+0/2 failed 0", rollout(web))
				require.Equal(t, one, *web.TaskDefinition)
				require.Equal(t, rollback == ecsfake.RollbackPromotes, *web.Deployments[0].Id == *before.Deployments[0].Id)
				require.Contains(t, messages(web), "(service web) (deployment "+bad+") deployment failed: tasks failed to start.")
				require.Contains(t, messages(web), "(service web) rolling back to deployment "+*web.Deployments[0].Id+".")

				records := l.deployments()
				require.Len(t, records, 2, "a rollback belongs to the deployment that it undoes")
				require.Equal(t, types.ServiceDeploymentStatusRollbackSuccessful, records[0].Status)
				require.Equal(t, "ECS deployment circuit breaker: tasks failed to start.", *records[0].StatusReason)
				require.Equal(t, types.ServiceDeploymentRollbackMonitorsStatusTriggered, records[0].DeploymentCircuitBreaker.Status)
				require.GreaterOrEqual(t, records[0].DeploymentCircuitBreaker.FailureCount, int32(3))
				require.Equal(t, *records[1].TargetServiceRevision.Arn, *records[0].Rollback.ServiceRevisionArn)
				require.NotNil(t, records[0].FinishedAt)

				stopped := l.tasks(func(in *ecs.ListTasksInput) { in.StartedBy, in.DesiredStatus = &bad, types.DesiredStatusStopped })
				if row.reason == "" {
					require.Empty(t, stopped)
					require.Contains(t, messages(web), "(service web) was unable to place a task because no container instance met all of its requirements.")
					return
				}
				require.True(t, slices.ContainsFunc(stopped, func(task types.Task) bool {
					exit := task.Containers[0].ExitCode
					return *task.StoppedReason == row.reason && task.StopCode == row.stopCode && *task.LastStatus == "STOPPED" &&
						(exit == nil) == (row.exitCode == nil) && aws.ToInt32(exit) == aws.ToInt32(row.exitCode)
				}))
			})
		}
	}
}

func TestFailedDeploymentStaysWhereNothingRollsBack(t *testing.T) {
	for name, row := range map[string]struct {
		first, rollback bool
		want            string
	}{
		"no rollback wished":      {false, false, "PRIMARY web:2 FAILED 0+0/2 failed 4; ACTIVE web:1 COMPLETED 2+0/0 failed 0"},
		"nothing to roll back to": {true, true, "PRIMARY web:2 FAILED 0+0/2 failed 4"},
		"neither":                 {true, false, "PRIMARY web:2 FAILED 0+0/2 failed 4"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			l.register("web", "web:1")
			l.register("web", "web:2")
			l.Behave("web:2", ecsfake.CannotPull("web:2"))
			if row.first {
				l.create("web:2", 2, breaker(row.rollback))
			} else {
				l.create("web:1", 2, breaker(row.rollback))
				l.settled()
				l.update(to("web:2"))
			}
			l.Advance(time.Hour)
			web := l.web()
			require.Equal(t, row.want, rollout(web))
			require.Equal(t, "ECS deployment circuit breaker: tasks failed to start.", *web.Deployments[0].RolloutStateReason)
			require.Equal(t, types.ServiceDeploymentStatusStopped, l.deployments()[0].Status)
			require.NotNil(t, l.deployments()[0].StoppedAt)
			require.Nil(t, l.deployments()[0].Rollback)

			l.update(to("web:1"))
			require.Equal(t, "PRIMARY web:1 COMPLETED 2+0/2 failed 0", rollout(l.settled()), "a new deployment helps")
		})
	}
}

func TestBreakerThatIsOffLetsFailuresGoOn(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.Behave("web:1", ecsfake.ExitsEarly(1))
	l.create(l.register("web", "web:1"), 1)
	l.Advance(20 * time.Minute)
	early := l.web().Deployments[0]
	require.Equal(t, types.DeploymentRolloutStateInProgress, early.RolloutState)
	require.Greater(t, early.FailedTasks, int32(5))
	l.Advance(4 * time.Hour)
	require.Less(t, l.web().Deployments[0].FailedTasks-early.FailedTasks, int32(15), "starts are throttled, at last to one in 27 minutes")
	impaired := 0
	for _, message := range messages(l.web()) {
		if message == "(service web) is unable to consistently start tasks successfully." {
			impaired++
		}
	}
	require.Equal(t, 1, impaired, "it is said once in six hours")
	l.Behave("web:1", ecsfake.Behaviour{})
	require.Equal(t, "PRIMARY web:1 COMPLETED 1+0/1 failed 0", rollout(l.settled()))
}

// API Deployment, failedTasks: what was RUNNING and has no check to fail does not count. Nor is it throttled (guide
// service-throttle-logic).
func TestTasksThatWereRunningTripNoBreaker(t *testing.T) {
	for _, after := range []time.Duration{0, 20 * time.Second} {
		l := newLab(t, ecsfake.Options{})
		l.Behave("web:1", ecsfake.Exits(1, after))
		l.create(l.register("web", "web:1"), 1, breaker(true))
		l.Advance(50 * time.Minute)
		require.Equal(t, types.DeploymentRolloutStateInProgress, l.web().Deployments[0].RolloutState)
		require.Zero(t, l.web().Deployments[0].FailedTasks)
		stopped := l.tasks(func(in *ecs.ListTasksInput) { in.DesiredStatus = types.DesiredStatusStopped })
		require.Greater(t, len(stopped), 80)
		require.EqualValues(t, 1, *stopped[0].Containers[0].ExitCode)
		require.NotContains(t, messages(l.web()), "(service web) is unable to consistently start tasks successfully.")
	}
}

func TestUnhealthyTasksTellOfTheirTargetGroup(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.Behave("web:1", ecsfake.Behaviour{Unhealthy: true})
	l.register("web", "web:1", func(in *ecs.RegisterTaskDefinitionInput) {
		in.ContainerDefinitions[0].PortMappings = []types.PortMapping{{ContainerPort: aws.Int32(80)}}
	})
	l.create("web", 1, breaker(true), balanced("web", 80), func(in *ecs.CreateServiceInput) {
		in.HealthCheckGracePeriodSeconds = aws.Int32(120)
	})
	l.Advance(2 * time.Minute)
	require.Empty(t, l.tasks(func(in *ecs.ListTasksInput) { in.DesiredStatus = types.DesiredStatusStopped }), "the grace period lasts")
	require.Equal(t, "PRIMARY web:1 FAILED 0+0/1 failed 3", rollout(l.settled()))
	task := l.tasks(func(in *ecs.ListTasksInput) { in.DesiredStatus = types.DesiredStatusStopped })[0]
	require.Equal(t, "Task failed ELB health checks in (target-group arn:group)", *task.StoppedReason)
	require.True(t, slices.ContainsFunc(messages(l.web()), func(message string) bool {
		return strings.HasSuffix(message, "(port 80) is unhealthy in (target-group arn:group) due to (reason Health checks failed).")
	}))
}

func TestHealthyTaskResetsTheCount(t *testing.T) {
	for _, reset := range []bool{true, false} {
		t.Run(fmt.Sprint(reset), func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			l.register("web", "web:1", checked)
			l.Behave("web:1", ecsfake.ExitsEarly(1))
			l.create("web:1", 1, func(in *ecs.CreateServiceInput) {
				breaker(true)(in)
				in.DeploymentConfiguration.DeploymentCircuitBreaker.ResetOnHealthyTask = &reset
			})
			for l.web().Deployments[0].FailedTasks < 1 {
				l.Advance(time.Second)
			}
			// The second task is under way and fails; the third is well.
			l.Behave("web:1", ecsfake.Behaviour{})
			require.Equal(t, map[bool]string{
				true:  "PRIMARY web:1 COMPLETED 1+0/1 failed 0",
				false: "PRIMARY web:1 COMPLETED 1+0/1 failed 2",
			}[reset], rollout(l.settled()))
		})
	}
}

func TestRollbackThatFails(t *testing.T) {
	for _, rollback := range []ecsfake.Rollback{ecsfake.RollbackPromotes, ecsfake.RollbackStartsNew} {
		l := newLab(t, ecsfake.Options{Rollback: rollback})
		l.register("web", "web:1")
		l.register("web", "web:2")
		l.create("web:1", 1, breaker(true), percents(0, 100))
		l.settled()
		l.Behave("web:1", ecsfake.CannotPull("web:1"))
		l.Behave("web:2", ecsfake.CannotPull("web:2"))
		l.update(to("web:2"))
		l.Advance(time.Hour)
		require.Equal(t, "PRIMARY web:1 FAILED 0+0/1 failed 3", rollout(l.web()))
		require.Equal(t, types.ServiceDeploymentStatusRollbackFailed, l.deployments()[0].Status)
	}
}

func TestAlarmsFailADeployment(t *testing.T) {
	for name, row := range map[string]struct {
		alarm    string
		rollback bool
		late     time.Duration
		want     string
		status   types.ServiceDeploymentStatus
	}{
		"with rollback":   {"errors", true, 15 * time.Second, "PRIMARY web:1 COMPLETED 1+0/1 failed 0", "ROLLBACK_SUCCESSFUL"},
		"without":         {"errors", false, 15 * time.Second, "PRIMARY web:2 FAILED 1+0/1 failed 0; ACTIVE web:1 COMPLETED 1+0/0 failed 0", "STOPPED"},
		"while it bakes":  {"errors", true, 100 * time.Second, "PRIMARY web:1 COMPLETED 1+0/1 failed 0", "ROLLBACK_SUCCESSFUL"},
		"after that":      {"errors", true, 10 * time.Minute, "PRIMARY web:2 COMPLETED 1+0/1 failed 0", "SUCCESSFUL"},
		"another's alarm": {"disk", true, 15 * time.Second, "PRIMARY web:2 COMPLETED 1+0/1 failed 0", "SUCCESSFUL"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			l.register("web", "web:1")
			l.register("web", "web:2")
			l.create("web:1", 1, func(in *ecs.CreateServiceInput) {
				configuration(in).Alarms = &types.DeploymentAlarms{AlarmNames: []string{"errors"}, Enable: true, Rollback: row.rollback}
			})
			l.settled()
			l.update(to("web:2"))
			l.Advance(row.late)
			l.Alarm(row.alarm, true)
			l.settled()
			l.Advance(time.Minute)
			require.Equal(t, row.want, rollout(l.web()))
			d := l.deployments()[0]
			require.Equal(t, row.status, d.Status)
			if row.status != "SUCCESSFUL" {
				require.Equal(t, []string{"errors"}, d.Alarms.TriggeredAlarmNames)
				require.Equal(t, types.ServiceDeploymentRollbackMonitorsStatusTriggered, d.Alarms.Status)
			}
		})
	}
}

func TestStoppingAServiceDeployment(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	l.register("web", "web:2")
	l.create("web:1", 1)
	stop := func(change ...func(*ecs.StopServiceDeploymentInput)) error {
		in := &ecs.StopServiceDeploymentInput{ServiceDeploymentArn: l.deployments()[0].ServiceDeploymentArn}
		for _, c := range change {
			c(in)
		}
		_, err := l.client.StopServiceDeployment(l.ctx, in)
		return err
	}
	require.Equal(t, "ConflictException", code(stop()), "nothing to roll back to")
	l.settled()
	require.Equal(t, "ConflictException", code(stop()), "not in progress")
	l.update(to("web:2"))
	require.Equal(t, "InvalidParameterException", code(stop(func(in *ecs.StopServiceDeploymentInput) { in.StopType = types.StopServiceDeploymentStopTypeAbort })))
	require.Equal(t, "ServiceDeploymentNotFoundException", code(stop(func(in *ecs.StopServiceDeploymentInput) {
		in.ServiceDeploymentArn = aws.String("arn:aws:ecs:us-east-1:123456789012:service-deployment/shop/web/x")
	})))
	require.NoError(t, stop())
	require.Equal(t, types.ServiceDeploymentStatusRollbackRequested, l.deployments()[0].Status)
	l.Advance(time.Second)
	require.Equal(t, types.ServiceDeploymentStatusRollbackInProgress, l.deployments()[0].Status)
	require.NoError(t, stop(), "it continues")
	require.Equal(t, "PRIMARY web:1 COMPLETED 1+0/1 failed 0", rollout(l.settled()))
	require.Equal(t, types.ServiceDeploymentStatusRollbackSuccessful, l.deployments()[0].Status)
}

func TestServiceDeploymentsAndRevisions(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	one := l.register("web", "web:1")
	l.create(one, 1)
	l.settled()
	first := l.Now()
	l.Advance(time.Hour)
	l.update(to(l.register("web", "web:2")))
	running := l.deployments()[0]
	require.Equal(t, types.ServiceDeploymentStatusInProgress, running.Status)
	require.Equal(t, *running.ServiceDeploymentArn, *l.web().CurrentServiceDeployment)
	require.Regexp(t, `^arn:aws:ecs:us-east-1:123456789012:service-deployment/shop/web/[\w-]+$`, *running.ServiceDeploymentArn)
	require.Len(t, running.SourceServiceRevisions, 1)
	require.Equal(t, types.ServiceDeploymentRollbackMonitorsStatusDisabled, running.DeploymentCircuitBreaker.Status)

	revisions, err := l.client.DescribeServiceRevisions(l.ctx, &ecs.DescribeServiceRevisionsInput{
		ServiceRevisionArns: []string{*running.SourceServiceRevisions[0].Arn, "arn:aws:ecs:us-east-1:123456789012:service-revision/shop/web/1"},
	})
	require.NoError(t, err)
	require.Equal(t, one, *revisions.ServiceRevisions[0].TaskDefinition)
	require.Equal(t, "MISSING", *revisions.Failures[0].Reason)

	list := func(in ecs.ListServiceDeploymentsInput) int {
		in.Cluster, in.Service = aws.String("shop"), aws.String("web")
		out, err := l.client.ListServiceDeployments(l.ctx, &in)
		require.NoError(t, err)
		return len(out.ServiceDeployments)
	}
	require.Equal(t, 2, list(ecs.ListServiceDeploymentsInput{}))
	require.Equal(t, 1, list(ecs.ListServiceDeploymentsInput{Status: []types.ServiceDeploymentStatus{"SUCCESSFUL"}}))
	require.Equal(t, 1, list(ecs.ListServiceDeploymentsInput{CreatedAt: &types.CreatedAt{After: &first}}))
	require.Equal(t, 1, list(ecs.ListServiceDeploymentsInput{MaxResults: aws.Int32(1)}))
	out, err := l.client.DescribeServiceDeployments(l.ctx, &ecs.DescribeServiceDeploymentsInput{ServiceDeploymentArns: []string{"x"}})
	require.NoError(t, err)
	require.Equal(t, "MISSING", *out.Failures[0].Reason)
	_, err = l.client.DescribeServiceDeployments(l.ctx, &ecs.DescribeServiceDeploymentsInput{ServiceDeploymentArns: make([]string, 21)})
	require.Equal(t, "InvalidParameterException", code(err))
}

func TestBlueGreenBakesBeforeItCleansUp(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	l.register("web", "web:2")
	l.register("web", "web:3")
	l.Behave("web:3", ecsfake.CannotPull("web:3"))
	l.create("web:1", 2, breaker(true), percents(100, 100), func(in *ecs.CreateServiceInput) {
		configuration(in).Strategy, configuration(in).BakeTimeInMinutes = types.DeploymentStrategyBlueGreen, aws.Int32(5)
	})
	l.settled()
	l.update(to("web:2"))
	require.Equal(t, types.ServiceDeploymentLifecycleStageScaleUp, l.deployments()[0].LifecycleStage)
	l.Advance(2 * time.Minute)
	require.Equal(t, "PRIMARY web:2 IN_PROGRESS 2+0/2 failed 0; ACTIVE web:1 COMPLETED 2+0/0 failed 0", rollout(l.web()), "both are there in full")
	require.Equal(t, types.ServiceDeploymentLifecycleStageBakeTime, l.deployments()[0].LifecycleStage)
	require.InDelta(t, 100, *l.deployments()[0].TargetServiceRevision.RequestedProductionTrafficWeight, 0)
	require.Equal(t, "PRIMARY web:2 COMPLETED 2+0/2 failed 0", rollout(l.settled()))
	require.Equal(t, types.ServiceDeploymentLifecycleStageCleanUp, l.deployments()[0].LifecycleStage)

	l.update(to("web:3"))
	story := l.story()
	require.Equal(t, "PRIMARY web:2 COMPLETED 2+0/2 failed 0", story[len(story)-1])
	require.Equal(t, types.ServiceDeploymentStatusRollbackSuccessful, l.deployments()[0].Status)
}
