package ecsfake_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// story advances second by second until the service settles, and writes each state that deployments[] goes through.
func (l *lab) story() []string {
	l.Helper()
	lines := []string{}
	for range 3600 {
		web := l.web()
		if line := rollout(web); len(lines) == 0 || line != lines[len(lines)-1] {
			lines = append(lines, line)
		}
		if web.Deployments[0].RolloutState != types.DeploymentRolloutStateInProgress && len(web.Deployments) == 1 {
			return lines
		}
		l.Advance(time.Second)
	}
	l.Fatal(lines)
	return nil
}

func TestRolloutRunsNextToTheOldDeployment(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	one, two := l.register("web", "web:1"), l.register("web", "web:2")
	created := l.create(one, 2)
	require.Equal(t, "PRIMARY web:1 IN_PROGRESS 0+0/2 failed 0", rollout(created))
	require.Equal(t, []string{
		"PRIMARY web:1 IN_PROGRESS 0+2/2 failed 0",
		"PRIMARY web:1 IN_PROGRESS 2+0/2 failed 0",
		"PRIMARY web:1 COMPLETED 2+0/2 failed 0",
	}, l.story())
	web := l.web()
	require.Equal(t, "ECS deployment "+*web.Deployments[0].Id+" completed.", *web.Deployments[0].RolloutStateReason)

	updated := l.update(to(two))
	require.Equal(t, "PRIMARY web:2 IN_PROGRESS 0+0/2 failed 0; ACTIVE web:1 COMPLETED 2+0/0 failed 0", rollout(updated))
	require.Equal(t, two, *updated.TaskDefinition)
	require.Equal(t, []string{
		"PRIMARY web:2 IN_PROGRESS 0+2/2 failed 0; ACTIVE web:1 COMPLETED 2+0/0 failed 0",
		"PRIMARY web:2 IN_PROGRESS 2+0/2 failed 0; ACTIVE web:1 COMPLETED 2+0/0 failed 0",
		"PRIMARY web:2 IN_PROGRESS 2+0/2 failed 0; ACTIVE web:1 COMPLETED 0+0/0 failed 0",
		"PRIMARY web:2 COMPLETED 2+0/2 failed 0",
	}, l.story())
	tasks := l.tasks(func(in *ecs.ListTasksInput) { in.ServiceName = aws.String("web") })
	require.Len(t, tasks, 2)
	for _, task := range tasks {
		require.Equal(t, *updated.Deployments[0].Id, *task.StartedBy)
	}
}

// What may run and must run at any time of a rollout from four old tasks to four new ones (API DeploymentConfiguration).
func TestPercentsGovernARollout(t *testing.T) {
	for _, row := range []struct {
		desired, low, high    int32
		least, most, leastNow int32
	}{
		{desired: 4, low: 100, high: 200, least: 4, most: 8},
		{desired: 4, low: 50, high: 100, least: 2, most: 4},
		{desired: 4, low: 50, high: 150, least: 2, most: 6},
		{desired: 4, low: 100, high: 125, least: 4, most: 5},
		{desired: 3, low: 50, high: 133, least: 2, most: 3}, // rounded up and down
		{desired: 4, low: 0, high: 100, least: 0, most: 4},
		{desired: 1, low: 0, high: 200, least: 0, most: 1},
	} {
		t.Run(fmt.Sprintf("%d tasks %d to %d percent", row.desired, row.low, row.high), func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			l.register("web", "web:1", checked)
			l.register("web", "web:2", checked)
			l.create("web:1", row.desired, percents(row.low, row.high))
			l.settled()
			l.update(to("web:2"))
			least, most := row.desired, int32(0)
			for len(l.web().Deployments) > 1 || l.web().Deployments[0].RolloutState != types.DeploymentRolloutStateCompleted {
				web := l.web()
				least, most = min(least, web.RunningCount), max(most, web.RunningCount+web.PendingCount)
				l.Advance(time.Second)
			}
			require.Equal(t, []int32{row.least, row.most}, []int32{least, most})
			require.Equal(t, row.desired, l.web().RunningCount)
		})
	}
}

func TestRolloutReportsMissingCapacity(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	l.register("web", "web:2")
	l.create("web:1", 2, percents(100, 100))
	l.settled()
	l.update(to("web:2"))
	l.Advance(10 * time.Minute)
	require.Equal(t, "PRIMARY web:2 IN_PROGRESS 0+0/2 failed 0; ACTIVE web:1 COMPLETED 2+0/0 failed 0", rollout(l.web()))
	require.Contains(t, messages(l.web())[0], "(service web) was unable to stop or start tasks during a deployment because of the service deployment configuration.")
	l.update(func(in *ecs.UpdateServiceInput) {
		in.DeploymentConfiguration = &types.DeploymentConfiguration{MaximumPercent: aws.Int32(150)}
	})
	require.Equal(t, "PRIMARY web:2 COMPLETED 2+0/2 failed 0", rollout(l.settled()))
}

func TestCountChangesWithinADeployment(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	id := *l.create(l.register("web", "web:1"), 2).Deployments[0].Id
	l.settled()
	for _, n := range []int32{5, 1, 0, 3} {
		l.update(func(in *ecs.UpdateServiceInput) { in.DesiredCount = &n })
		web := l.settledAt(n)
		require.Equal(t, id, *web.Deployments[0].Id)
		require.Equal(t, fmt.Sprintf("PRIMARY web:1 COMPLETED %d+0/%d failed 0", n, n), rollout(web))
	}
}

func TestZeroTasksComplete(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.create(l.register("web", "web:1"), 0)
	require.Equal(t, "PRIMARY web:1 COMPLETED 0+0/0 failed 0", rollout(l.web()))
	l.update(to(l.register("web", "web:2")))
	require.Equal(t, "PRIMARY web:2 COMPLETED 0+0/0 failed 0", rollout(l.web()))
}

func TestForcedDeploymentKeepsTheDefinition(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	before := *l.create(l.register("web", "web:1"), 1).Deployments[0].Id
	l.settled()
	l.update(func(in *ecs.UpdateServiceInput) { in.ForceNewDeployment = true })
	require.Equal(t, "PRIMARY web:1 COMPLETED 1+0/1 failed 0", rollout(l.settled()))
	require.NotEqual(t, before, *l.web().Deployments[0].Id)
}

func TestNewerDeploymentOvertakes(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	for i := range 3 {
		l.register("web", fmt.Sprintf("web:%d", i+1))
	}
	l.create("web:1", 2)
	l.settled()
	l.update(to("web:2"))
	l.Advance(15 * time.Second)
	require.Equal(t, "PRIMARY web:3 IN_PROGRESS 0+0/2 failed 0; ACTIVE web:2 IN_PROGRESS 2+0/0 failed 0; ACTIVE web:1 COMPLETED 2+0/0 failed 0",
		rollout(l.update(to("web:3"))))
	require.Equal(t, "PRIMARY web:3 COMPLETED 2+0/2 failed 0", rollout(l.settled()))
	statuses := []types.ServiceDeploymentStatus{}
	for _, d := range l.deployments() {
		statuses = append(statuses, d.Status)
	}
	require.Equal(t, []types.ServiceDeploymentStatus{"SUCCESSFUL", "STOPPED", "SUCCESSFUL"}, statuses)
}

func TestFamilyMeansItsNewestActiveRevision(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1")
	two := l.register("web", "web:2")
	require.Equal(t, two, *l.create("web", 0).TaskDefinition)
}

func TestStoppedTaskOfAServiceIsReplaced(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.create(l.register("web", "web:1"), 1)
	l.settled()
	ours := func(in *ecs.ListTasksInput) { in.ServiceName = aws.String("web") }
	task := l.tasks(ours)[0]
	_, err := l.client.StopTask(l.ctx, &ecs.StopTaskInput{Cluster: aws.String("shop"), Task: task.TaskArn, Reason: aws.String("by hand")})
	require.NoError(t, err)
	l.Advance(time.Minute)
	require.Equal(t, "PRIMARY web:1 COMPLETED 1+0/1 failed 0", rollout(l.web()))
	require.NotEqual(t, *task.TaskArn, *l.tasks(ours)[0].TaskArn)
	stopped := l.tasks(func(in *ecs.ListTasksInput) { ours(in); in.DesiredStatus = types.DesiredStatusStopped })
	require.Equal(t, "UserInitiated by hand", string(stopped[0].StopCode)+" "+*stopped[0].StoppedReason)
}

func TestDaemonRunsOnEachInstance(t *testing.T) {
	l := newLab(t, ecsfake.Options{Instances: 3})
	l.register("web", "web:1")
	l.create("web:1", 0, func(in *ecs.CreateServiceInput) {
		in.SchedulingStrategy, in.DesiredCount = types.SchedulingStrategyDaemon, nil
	})
	web := l.settled()
	require.Equal(t, "PRIMARY web:1 COMPLETED 3+0/3 failed 0", rollout(web))
	require.Equal(t, []int32{0, 100}, []int32{*web.DeploymentConfiguration.MinimumHealthyPercent, *web.DeploymentConfiguration.MaximumPercent})
	l.Instances("shop", 5)
	require.EqualValues(t, 5, l.settledAt(5).DesiredCount)
	l.Instances("shop", 1)
	require.EqualValues(t, 1, l.settledAt(1).DesiredCount)
	l.update(to(l.register("web", "web:2")))
	require.Equal(t, "PRIMARY web:2 COMPLETED 1+0/1 failed 0", rollout(l.settled()))
	_, err := l.client.UpdateService(l.ctx, &ecs.UpdateServiceInput{Cluster: aws.String("shop"), Service: aws.String("web"), DesiredCount: aws.Int32(2)})
	require.ErrorContains(t, err, "The daemon scheduling strategy does not support a desired count")
	_, err = l.client.DeleteService(l.ctx, &ecs.DeleteServiceInput{Cluster: aws.String("shop"), Service: aws.String("web")})
	require.NoError(t, err, "a daemon needs no force")
}

func TestEventsAreNewestFirstAndAHundred(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.create(l.register("web", "web:1"), 1)
	web := l.settled()
	id := *web.Deployments[0].Id
	started := messages(web)[2]
	require.Equal(t, []string{
		"(service web) has reached a steady state.",
		"(service web) (deployment " + id + ") deployment completed.",
	}, messages(web)[:2])
	require.Regexp(t, `^\(service web\) has started 1 tasks: \(task [0-9a-f]{32}\)\.$`, started)
	require.True(t, web.Events[0].CreatedAt.After(*web.Events[2].CreatedAt))
	for range 60 {
		l.update(func(in *ecs.UpdateServiceInput) { in.ForceNewDeployment = true })
		l.settled()
	}
	require.Len(t, l.web().Events, 100)
}

var anID = regexp.MustCompile(`[0-9]{19}|[0-9a-f]{32}`)

func TestTheSameCallsGiveTheSameWorld(t *testing.T) {
	world := func() []string {
		l := newLab(t, ecsfake.Options{})
		l.Behave("web:2", ecsfake.CannotPull("web:2"))
		l.create(l.register("web", "web:1"), 3, breaker(true))
		l.settled()
		l.update(to(l.register("web", "web:2")))
		return append(l.story(), messages(l.web())...)
	}
	first := world()
	require.Equal(t, first, world())
	require.True(t, slices.ContainsFunc(first, anID.MatchString), "ids and all")
}

func TestTagsAreHandedToTasks(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.register("web", "web:1", func(in *ecs.RegisterTaskDefinitionInput) {
		in.Tags = []types.Tag{{Key: aws.String("of"), Value: aws.String("definition")}}
	})
	l.create("web", 1, func(in *ecs.CreateServiceInput) {
		in.Tags = []types.Tag{{Key: aws.String("of"), Value: aws.String("service")}}
		in.PropagateTags, in.EnableECSManagedTags = types.PropagateTagsService, true
	})
	task := func() string {
		tags := ""
		for _, tag := range l.tasks(func(in *ecs.ListTasksInput) { in.ServiceName = aws.String("web") })[0].Tags {
			tags += *tag.Key + "=" + *tag.Value + " "
		}
		return tags
	}
	l.settled()
	require.Equal(t, "of=service aws:ecs:clusterName=shop aws:ecs:serviceName=web ", task())
	l.update(func(in *ecs.UpdateServiceInput) {
		in.PropagateTags, in.ForceNewDeployment = types.PropagateTagsTaskDefinition, true
	})
	l.settled()
	require.Equal(t, "of=definition aws:ecs:clusterName=shop aws:ecs:serviceName=web ", task())
}
