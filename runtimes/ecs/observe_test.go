package ecs

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/tests/ecsfake"
)

func bothRollbacks(t *testing.T, check func(t *testing.T, options ecsfake.Options)) {
	t.Run("the old deployment is promoted", func(t *testing.T) { check(t, ecsfake.Options{Rollback: ecsfake.RollbackPromotes}) })
	t.Run("a new deployment is started", func(t *testing.T) { check(t, ecsfake.Options{Rollback: ecsfake.RollbackStartsNew}) })
}

func messages(o entities.Object) (all []string) {
	for _, e := range o.Events {
		all = append(all, e.Message)
	}
	return all
}

// The circuit breaker rolls back an image that cannot be pulled: that is a failure of the version in every observation, then and much
// later, and no failure of the version that runs again.
func TestBreakerRollsBack(t *testing.T) {
	bothRollbacks(t, func(t *testing.T, options ecsfake.Options) {
		l := newTestCluster(t, options)
		l.applyStable(requestFor("v1", 1))
		l.Behave("shop/web:v2", ecsfake.CannotPull("shop/web:v2"))
		l.apply(requestFor("v2", 2))
		o := l.advanceUntil(requestFor("v2", 2), failed("v2"))
		require.Contains(t, summary(o), "rolled back by ECS: ECS deployment circuit breaker: tasks failed to start")
		require.Contains(t, messages(o), "task "+firstTask(t, o)+" of web:2 stopped: CannotPullContainerError: pull image manifest has been retried 1 time(s): failed to resolve ref shop/web:v2: not found")

		require.Contains(t, o.Message, "tasks failed to start; task "+firstTask(t, o)+" of web:2 stopped: CannotPullContainerError", "and why")
		l.Advance(2 * time.Hour) // then ECS no longer has the tasks
		for _, rt := range []*Runtime{l.Runtime, l.worker()} {
			l.Runtime = rt
			require.Equal(t, "FAILED; v1* 2/2; v2 0/0; rolled back by ECS: ECS deployment circuit breaker: tasks failed to start.", summary(l.observe(requestFor("v2", 2))))
			require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.observe(requestFor("v1", 3))))
		}
	})
}

// firstTask finds a task that is named in the events.
func firstTask(t *testing.T, o entities.Object) string {
	t.Helper()
	for _, e := range o.Events {
		if len(e.Message) > 13 && e.Message[:5] == "task " {
			return e.Message[5:13]
		}
	}
	t.Fatalf("no task is named in %q", messages(o))
	return ""
}

// A rolled back version can be applied again once the image exists.
func TestRolledBackVersionCanBeAppliedAgain(t *testing.T) {
	bothRollbacks(t, func(t *testing.T, options ecsfake.Options) {
		l := newTestCluster(t, options)
		l.applyStable(requestFor("v1", 1))
		l.Behave("shop/web:v2", ecsfake.CannotPull("shop/web:v2"))
		l.apply(requestFor("v2", 2))
		l.advanceUntil(requestFor("v2", 2), failed("v2"))
		l.Advance(time.Hour)
		l.Behave("shop/web:v2", ecsfake.Behaviour{})
		require.Equal(t, "SUCCEEDED; v2* 2/2", summary(l.applyStable(requestFor("v2", 2))))
		require.Equal(t, []string{"web:2", "web:1"}, l.revisions())
	})
}

func TestFirstDeploymentHasNothingToRollBackTo(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.Behave("shop/web:v1", ecsfake.CannotPull("shop/web:v1"))
	l.apply(requestFor("v1", 1))
	o := l.advanceUntil(requestFor("v1", 1), failed("v1"))
	require.Equal(t, "FAILED; v1* 0/0; ECS deployment circuit breaker: tasks failed to start; task "+firstTask(t, o)+" of web:1 stopped: CannotPullContainerError: pull image manifest has been retried 1 time(s): failed to resolve ref shop/web:v1: not found", summary(o))
}

// A rollback of a service whose task definition did not change.
func TestBreakerRollsBackServiceAlone(t *testing.T) {
	bothRollbacks(t, func(t *testing.T, options ecsfake.Options) {
		l := newTestCluster(t, options)
		network := func(subnet string) func(*serviceSpec) {
			return func(s *serviceSpec) {
				withField("networkConfiguration", map[string]any{"awsvpcConfiguration": map[string]any{"subnets": []any{subnet}}})(s)
				s.image = "shop/web:v1"
				s.change = func(definition, _ map[string]any) { definition["networkMode"] = "awsvpc" }
			}
		}
		l.applyStable(requestFor("v1", 1, network("subnet-a")))
		l.Behave("shop/web:v1", ecsfake.CannotPull("shop/web:v1"))
		l.apply(requestFor("v1-i2", 2, network("subnet-b")))
		o := l.advanceUntil(requestFor("v1-i2", 2, network("subnet-b")), failed("v1-i2"))
		require.Contains(t, summary(o), "rolled back by ECS")
	})
}

// Tasks that run and then exit trip no breaker (they were RUNNING): the version is never stable, never failed by ECS, and
// its tasks say why; the progress deadline of the engine ends that.
func TestTasksThatExitAreNeverStable(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1))
	l.Behave("shop/web:v2", ecsfake.Exits(3, 5*time.Second))
	l.apply(requestFor("v2", 2))
	for range 120 {
		l.Advance(10 * time.Second)
		o := l.observe(requestFor("v2", 2))
		require.Equal(t, entities.ObjectPending, o.Status, summary(o))
		require.False(t, stable("v2")(o))
	}
	require.Contains(t, messages(l.observe(requestFor("v2", 2)))[len(l.observe(requestFor("v2", 2)).Events)-1], "(web exited with 3)")
}

func TestNoTasksAreEnough(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	require.Equal(t, "SUCCEEDED; v1* 0/0", summary(l.applyStable(requestFor("v1", 1, withField("desiredCount", 0)))))
	require.Equal(t, "SUCCEEDED; v2* 0/0", summary(l.applyStable(requestFor("v2", 2, withField("desiredCount", 0)))))
}

func TestDriftIsOfDeclaredFieldsOnly(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	in := requestFor("v1", 1)
	l.applyStable(in)
	l.update(func(u *ecs.UpdateServiceInput) { u.DesiredCount, u.EnableExecuteCommand = aws.Int32(4), aws.Bool(true) })
	o := l.advanceUntil(in, func(o entities.Object) bool { return o.Status == entities.ObjectSucceeded })
	require.Equal(t, "SUCCEEDED; v1*! 4/4; not as declared: desiredCount is 4, declared 2", summary(o))
	require.Equal(t, "updated the service web: desiredCount\n", l.apply(in))
	require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.advanceUntil(in, stable("v1"))))
	require.True(t, l.web().EnableExecuteCommand, "undeclared fields are not changed")

	scaled := requestFor("v2", 2, withField("desiredCount", nil))
	l.applyStable(scaled)
	l.update(func(u *ecs.UpdateServiceInput) { u.DesiredCount = aws.Int32(7) })
	require.Equal(t, "SUCCEEDED; v2* 7/7", summary(l.advanceUntil(scaled, func(o entities.Object) bool { return stable("v2")(o) && o.Versions[0].Replicas == 7 })))
	require.Empty(t, l.apply(scaled))
}

// A person deploys another revision manually.
func TestManualChangeOfTheTaskDefinition(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	in := requestFor("v1", 1)
	l.applyStable(in)
	foreign, err := l.client.RegisterTaskDefinition(l.ctx, &ecs.RegisterTaskDefinitionInput{
		Family: aws.String("web"), ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("web"), Image: aws.String("hotfix"), Memory: aws.Int32(128)}},
	})
	require.NoError(t, err)
	l.update(func(u *ecs.UpdateServiceInput) { u.TaskDefinition = foreign.TaskDefinition.TaskDefinitionArn })
	o := l.advanceUntil(in, func(o entities.Object) bool { return o.Status == entities.ObjectSucceeded })
	require.Equal(t, "SUCCEEDED; * 2/2; it runs web:2, which another owner registered and deployed at 09:00 UTC", summary(o), "the version of another owner's revision is unknown")
	require.Equal(t, "updated the service web: taskDefinition\n", l.apply(in))
	require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.advanceUntil(in, stable("v1"))))
	require.Equal(t, []string{"web:2", "web:1"}, l.revisions())
}

// A person deploys over a version that is in progress: that is a manual change, and no failure of the version.
func TestReplacedDeploymentHasNotFailed(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1))
	l.apply(requestFor("v2", 2))
	l.update(func(u *ecs.UpdateServiceInput) { u.TaskDefinition = aws.String("web:1") })
	o := l.advanceUntil(requestFor("v2", 2), func(o entities.Object) bool { return o.Status == entities.ObjectSucceeded })
	require.Equal(t, "SUCCEEDED; v1* 2/2; it runs web:1", summary(o))
	l.applyStable(requestFor("v2", 2))
}

func TestServiceDeletedByHand(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	in := requestFor("v1", 1)
	l.applyStable(in)
	_, err := l.client.DeleteService(l.ctx, &ecs.DeleteServiceInput{Cluster: aws.String("shop"), Service: aws.String("web"), Force: aws.Bool(true)})
	require.NoError(t, err)
	l.Advance(5 * time.Minute)
	require.Equal(t, "PENDING; the service does not exist on the cluster shop: it was not created yet, or was deleted", summary(l.observe(in)))
	l.Advance(2 * time.Hour) // INACTIVE becomes MISSING
	require.Equal(t, "PENDING; the service does not exist on the cluster shop: it was not created yet, or was deleted", summary(l.observe(in)))
	require.Equal(t, "created the service web with web:1\n", l.apply(in))
	require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.advanceUntil(in, stable("v1"))))
}

func TestDeploymentAlarmsFailTheVersion(t *testing.T) {
	bothRollbacks(t, func(t *testing.T, options ecsfake.Options) {
		l := newTestCluster(t, options)
		alarmed := withField("deploymentConfiguration", map[string]any{
			"alarms": map[string]any{"alarmNames": []any{"errors"}, "enable": true, "rollback": true},
		})
		l.applyStable(requestFor("v1", 1, alarmed))
		l.apply(requestFor("v2", 2, alarmed))
		l.Advance(30 * time.Second)
		l.Alarm("errors", true)
		o := l.advanceUntil(requestFor("v2", 2, alarmed), failed("v2"))
		require.Contains(t, summary(o), "rolled back by ECS: ECS deployment alarms: alarm detected.")
	})
}

func TestLinksLeadToTheConsole(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	logging := func(s *serviceSpec) {
		s.change = func(definition, _ map[string]any) {
			definition["containerDefinitions"].([]any)[0].(map[string]any)["logConfiguration"] = map[string]any{
				"logDriver": "awslogs", "options": map[string]any{"awslogs-group": "/shop/web", "awslogs-region": "eu-west-1"},
			}
		}
	}
	l.apply(requestFor("v1", 1, logging))
	require.Equal(t, []entities.Link{
		{Type: "DETAIL", Name: "console", URL: "https://us-east-1.console.aws.amazon.com/ecs/v2/clusters/shop/services/web/health?region=us-east-1"},
		{Type: "LOG", Name: "web", URL: "https://eu-west-1.console.aws.amazon.com/cloudwatch/home?region=eu-west-1#logsV2:log-groups/log-group/$252Fshop$252Fweb"},
	}, l.observe(requestFor("v1", 1, logging)).Links)
}
