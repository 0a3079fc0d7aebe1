package ecs

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// revisions are the ACTIVE ones of the family.
func (l *testCluster) revisions() (names []string) {
	l.Helper()
	arns, err := l.worker().cluster.revisions(l.ctx, "web")
	require.NoError(l, err)
	for _, arn := range arns {
		names = append(names, short(arn))
	}
	return names
}

func TestRollbackReusesTheRevision(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	require.Equal(t, "registered the task definition web:1\ncreated the service web with web:1\n", l.apply(requestFor("v1", 1)))
	require.Equal(t, "PENDING; v1* 0/2; web:1 is being deployed: 0 of 2 tasks run", summary(l.observe(requestFor("v1", 1))))
	require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.advanceUntil(requestFor("v1", 1), stable("v1"))))

	require.Equal(t, "registered the task definition web:2\nupdated the service web: taskDefinition\n", l.apply(requestFor("v2", 2)))
	require.Equal(t, "PENDING; v2* 0/2; v1* 2/2; web:2 is being deployed: 0 of 2 tasks run", summary(l.observe(requestFor("v2", 2))))
	require.Equal(t, "SUCCEEDED; v2* 2/2", summary(l.advanceUntil(requestFor("v2", 2), stable("v2"))))

	require.Equal(t, "updated the service web: taskDefinition\n", l.apply(requestFor("v1", 3)))
	require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.advanceUntil(requestFor("v1", 3), stable("v1"))))
	require.Equal(t, []string{"web:2", "web:1"}, l.revisions())
	require.Equal(t, "here 1 3 v1", valueOf(l.web().Tags, TagFence))
	require.Equal(t, "demo/web/staging/main", valueOf(l.web().Tags, TagOwner))
}

// A restart is a new deployment of the current version, once.
func TestRestartForcesADeployment_I1(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1))
	before := *l.web().Deployments[0].Id
	again := requestFor("v1", 2)
	again.Restart = true
	require.Equal(t, "updated the service web: forceNewDeployment\n", l.apply(again))
	again.Restart = false
	require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.advanceUntil(again, stable("v1"))))
	require.NotEqual(t, before, *l.web().Deployments[0].Id)
	require.Empty(t, l.apply(again))
	require.Equal(t, []string{"web:1"}, l.revisions())
}

// A version that changes the service alone replaces no task.
func TestServiceAloneChanges(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1))
	same := func(s *serviceSpec) { s.image = "shop/web:v1" }
	more := requestFor("v1-i2", 2, same, withField("desiredCount", 3), withField("enableExecuteCommand", true))
	require.Equal(t, "SUCCEEDED; v1-i2*! 2/2; not as declared: desiredCount is 2, declared 3, enableExecuteCommand is false, declared true", summary(l.observe(more)))
	require.Equal(t, "updated the service web: desiredCount, enableExecuteCommand\n", l.apply(more))
	require.Equal(t, "SUCCEEDED; v1-i2* 3/3", summary(l.advanceUntil(more, stable("v1-i2"))))
	require.Equal(t, []string{"web:1"}, l.revisions())
	require.Equal(t, "ecs-svc/", (*l.web().Deployments[0].Id)[:8])
	require.Len(t, l.web().Deployments, 1)
}

// Between registering and updating a worker dies: the next one finds what it registered. The same holds for an answer that
// was lost on the way, which the SDK would have asked for again.
func TestCrashBetweenRegisterAndUpdateRegistersOnce(t *testing.T) {
	for _, fault := range []ecsfake.Fault{
		{Kind: ecsfake.AccessDenied, Operations: []string{"UpdateService"}, Times: 1},
		{Kind: ecsfake.LostAnswer, Operations: []string{"RegisterTaskDefinition"}, Times: 1},
		{Kind: ecsfake.LostAnswer, Operations: []string{"UpdateService"}, Times: 1},
		{Kind: ecsfake.Cut, Operations: []string{"TagResource"}, Times: 1},
	} {
		t.Run(fmt.Sprint(fault.Operations, fault.Kind), func(t *testing.T) {
			l := newTestCluster(t, ecsfake.Options{})
			l.applyStable(requestFor("v1", 1))
			l.Break(fault)
			_, err := l.Runtime.Apply(l.ctx, requestFor("v2", 2))
			require.Error(t, err)
			require.False(t, runtimes.IsPermanent(err), err)
			l.Runtime = l.worker()
			l.applyStable(requestFor("v2", 2))
			require.Equal(t, []string{"web:2", "web:1"}, l.revisions())
		})
	}
}

func TestLostAnswerOfCreateMakesOneService(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.Break(ecsfake.Fault{Kind: ecsfake.LostAnswer, Operations: []string{"CreateService"}, Times: 1})
	_, err := l.Runtime.Apply(l.ctx, requestFor("v1", 1))
	require.Error(t, err)
	l.Lag(30 * time.Second) // reads do not show it yet: the token of the call does
	l.Runtime = l.worker()
	l.applyStable(requestFor("v1", 1))
	require.Equal(t, []string{"web:1"}, l.revisions())
}

// Reads that lag behind a write show the state before it: an apply does not trust them, and does not write again.
func TestLaggingReads(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.Lag(30 * time.Second)
	l.apply(requestFor("v1", 1))
	require.Nil(t, l.web())
	require.Equal(t, "PENDING; v1* 0/0; web:1 is being deployed: 0 of 2 tasks run", summary(l.observe(requestFor("v1", 1))))
	l.advanceUntil(requestFor("v1", 1), stable("v1"))
	l.ResetCalls()
	l.apply(requestFor("v2", 2))
	require.Contains(t, *l.web().TaskDefinition, "web:1")
	require.Equal(t, "PENDING; v2* 0/0; v1* 2/2; web:2 is being deployed: 0 of 2 tasks run", summary(l.observe(requestFor("v2", 2))))
	require.Empty(t, l.apply(requestFor("v2", 2)))
	require.Equal(t, 1, l.Calls()["UpdateService"])
	require.Equal(t, 1, l.Calls()["RegisterTaskDefinition"])
	l.advanceUntil(requestFor("v2", 2), stable("v2"))
}

func TestFenceRefusesLateApplies(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1))
	l.applyStable(requestFor("v2", 2))
	l.ResetCalls()
	for _, late := range []runtimes.Request{requestFor("v1", 1), requestFor("v3", 2)} {
		_, err := l.worker().Apply(l.ctx, late)
		var fenced *runtimes.FencedError
		require.ErrorAs(t, err, &fenced)
		require.Equal(t, "v2", fenced.By.FullVersion)
	}
	require.Zero(t, writes(l.Calls()))

	moved := requestFor("v1", 1)
	moved.Fence.Epoch = 2
	l.apply(moved)
}

func TestForeignServices(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	definition, err := l.client.RegisterTaskDefinition(l.ctx, &ecs.RegisterTaskDefinitionInput{
		Family: aws.String("web"), ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("web"), Image: aws.String("legacy"), Memory: aws.Int32(128)}},
	})
	require.NoError(t, err)
	_, err = l.client.CreateService(l.ctx, &ecs.CreateServiceInput{
		Cluster: aws.String("shop"), ServiceName: aws.String("web"), TaskDefinition: definition.TaskDefinition.TaskDefinitionArn, DesiredCount: aws.Int32(2),
	})
	require.NoError(t, err)
	l.ResetCalls()
	_, err = l.Runtime.Apply(l.ctx, requestFor("v1", 1))
	require.EqualError(t, err, "the service web already exists and belongs to an unknown owner (set adopt: true to take it over)")
	require.True(t, runtimes.IsPermanent(err))
	require.NoError(t, l.Runtime.Remove(l.ctx, requestFor("v1", 1)))
	require.Zero(t, writes(l.Calls()))
	require.Equal(t, "PENDING; it exists, and belongs to an unknown owner", summary(l.observe(requestFor("v1", 1))))

	in := requestFor("v1", 1)
	in.Payload.ECS.Adopt = true
	require.Equal(t, "adopted the service web from an unknown owner", l.apply(in)[:len("adopted the service web from an unknown owner")])
	l.advanceUntil(in, stable("v1"))
	require.Equal(t, []string{"web:2", "web:1"}, l.revisions())

	other := requestFor("v1", 1)
	other.Owner.Application = "rival"
	_, err = l.Runtime.Apply(l.ctx, other)
	require.ErrorContains(t, err, "belongs to demo/web/staging/main")
}

func TestOtherDeploymentControllersAreRefused(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	declared := requestFor("v1", 1, withField("deploymentController", map[string]any{"type": "CODE_DEPLOY"}))
	_, err := l.Runtime.Apply(l.ctx, declared)
	require.ErrorContains(t, err, "deployment controller CODE_DEPLOY; expected ECS or none")
	require.True(t, runtimes.IsPermanent(err))

	_, err = l.client.CreateService(l.ctx, &ecs.CreateServiceInput{
		Cluster: aws.String("shop"), ServiceName: aws.String("web"), DesiredCount: aws.Int32(1),
		DeploymentController: &types.DeploymentController{Type: types.DeploymentControllerTypeExternal},
		Tags:                 []types.Tag{tag(TagOwner, "demo/web/staging/main")},
	})
	require.NoError(t, err)
	_, err = l.Runtime.Apply(l.ctx, requestFor("v1", 1))
	require.ErrorContains(t, err, "uses the deployment controller EXTERNAL")
	require.Contains(t, summary(l.observe(requestFor("v1", 1))), "FAILED; it uses the deployment controller EXTERNAL")
}

func TestImmutableFieldsAreRefused(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1))
	_, err := l.Runtime.Apply(l.ctx, requestFor("v2", 2, withField("desiredCount", nil), withField("schedulingStrategy", "DAEMON")))
	require.ErrorContains(t, err, `schedulingStrategy of the service web cannot be changed (there it is "REPLICA")`)
	require.True(t, runtimes.IsPermanent(err))
}

func TestWrongDocumentsArePermanent(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	for _, row := range []struct{ definition, service, want string }{
		{`{"family": "web", "containers": []}`, `{"serviceName": "web"}`, "task definition: there is no field containers"},
		{`{"family": "web"}`, `{"serviceName": "web", "desiredCount": "many"}`, `service: desiredCount cannot be "many"`},
		{`{"family": "web"}`, `{"desiredCount": 1}`, "has no serviceName"},
		{`{"family": "web", "containerDefinitions": [{"name": "web", "memory": 128}]}`, `{"serviceName": "web"}`, "ClientException"},
	} {
		in := requestFor("v1", 1)
		in.Payload.ECS.Objects[0], in.Payload.ECS.Objects[1] = []byte(row.definition), []byte(row.service)
		_, err := l.Runtime.Apply(l.ctx, in)
		require.ErrorContains(t, err, row.want)
		require.True(t, runtimes.IsPermanent(err), err)
	}
}

// The value of a parameter gets the type of its field.
func TestScalarsAreConvertedToTheirFields(t *testing.T) {
	in := &ecs.RegisterTaskDefinitionInput{}
	document, err := decode([]byte(`{"family": "web", "cpu": 256, "containerDefinitions": [{"memory": "512", "essential": "true", "environment": [{"name": "N", "value": 3}]}]}`), in)
	require.NoError(t, err)
	require.Equal(t, "256", *in.Cpu)
	require.Equal(t, int32(512), *in.ContainerDefinitions[0].Memory)
	require.True(t, *in.ContainerDefinitions[0].Essential)
	require.Equal(t, "3", *in.ContainerDefinitions[0].Environment[0].Value)
	again, err := decode([]byte(`{"cpu": "256", "containerDefinitions": [{"environment": [{"value": "3", "name": "N"}], "memory": 512, "essential": true}], "family": "web"}`), &ecs.RegisterTaskDefinitionInput{})
	require.NoError(t, err)
	require.Equal(t, hashOf(document), hashOf(again))
}

func TestDaemonServices(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	daemon := func(s *serviceSpec) {
		withField("desiredCount", nil)(s)
		withField("schedulingStrategy", "DAEMON")(s)
		withField("deploymentConfiguration", nil)(s)
	}
	require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.applyStable(requestFor("v1", 1, daemon))))
	require.Equal(t, "SUCCEEDED; v2* 2/2", summary(l.applyStable(requestFor("v2", 2, daemon))))
	l.remove(requestFor("v2", 2, daemon))
	require.Equal(t, "INACTIVE", *l.web().Status)
}

// remove removes the instance while the clock advances.
func (l *testCluster) remove(in runtimes.Request) {
	l.Helper()
	done := make(chan error, 1)
	go func() { done <- l.Runtime.Remove(l.ctx, in) }()
	for {
		select {
		case err := <-done:
			require.NoError(l, err)
			return
		case <-time.After(10 * time.Millisecond):
			l.Advance(5 * time.Second)
		}
	}
}

func TestRemoveDrainsFirst(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1))
	l.applyStable(requestFor("v2", 2))
	l.ResetCalls()
	l.remove(requestFor("v2", 3))
	calls := l.Calls()
	require.Equal(t, "INACTIVE", *l.web().Status)
	require.Equal(t, 1, calls["UpdateService"], "desired 0 before anything is deleted")
	require.Equal(t, 1, calls["DeleteService"])
	require.Empty(t, l.revisions())
	require.Equal(t, "PENDING; the service does not exist on the cluster shop: it was not created yet, or was deleted", summary(l.observe(requestFor("v2", 3))))
	require.Equal(t, "SUCCEEDED; v2* 2/2", summary(l.applyStable(requestFor("v2", 4))))
}

func TestRemovalIsFenced(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v2", 2))
	var fenced *runtimes.FencedError
	require.ErrorAs(t, l.Runtime.Remove(l.ctx, requestFor("v1", 1)), &fenced)
	require.Equal(t, "ACTIVE", *l.web().Status)
}

// Pruning keeps used revisions, those of others and the newest ten, and deregisters a few at a time.
func TestPruneKeepsUsedAndNewestRevisions(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	foreign, err := l.client.RegisterTaskDefinition(l.ctx, &ecs.RegisterTaskDefinitionInput{
		Family: aws.String("web"), ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("web"), Image: aws.String("legacy"), Memory: aws.Int32(128)}},
	})
	require.NoError(t, err)
	const versions = 13
	for n := range versions {
		l.applyStable(requestFor(fmt.Sprint("v", n), int64(n+1)))
	}
	in := requestFor("v13", versions+1)
	in.Payload.ECS.Prune = true
	out := l.apply(in)
	require.Contains(t, out, "deregistered ")
	left := l.revisions()
	require.Contains(t, left, short(*foreign.TaskDefinition.TaskDefinitionArn))
	require.Contains(t, left, short(*l.web().TaskDefinition))
	for _, d := range l.web().Deployments {
		require.Contains(t, left, short(*d.TaskDefinition))
	}
	require.GreaterOrEqual(t, len(left), keptRevisions+2)
	require.Less(t, len(left), versions+2)
}

// An apply waits for a service that drains because it was deleted, and then creates it again.
func TestServiceInDraining(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.applyStable(requestFor("v1", 1))
	_, err := l.client.DeleteService(l.ctx, &ecs.DeleteServiceInput{Cluster: aws.String("shop"), Service: aws.String("web"), Force: aws.Bool(true)})
	require.NoError(t, err)
	require.Contains(t, summary(l.observe(requestFor("v1", 1))), "PENDING; v1*")
	require.Contains(t, summary(l.observe(requestFor("v1", 1))), "it is being deleted (DRAINING); ")
	ended, cancel := context.WithTimeout(l.ctx, 200*time.Millisecond) // the deadline is what is tested
	defer cancel()
	_, err = l.Runtime.Apply(ended, requestFor("v1", 1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "still DRAINING")
	require.False(t, runtimes.IsPermanent(err))

	done := make(chan error, 1)
	go func() { _, err := l.Runtime.Apply(l.ctx, requestFor("v1", 1)); done <- err }()
	require.Eventually(t, func() bool {
		l.Advance(time.Second)
		select {
		case err := <-done:
			require.NoError(t, err)
			return true
		default:
			return false
		}
	}, time.Minute, time.Millisecond)
	require.Equal(t, "SUCCEEDED; v1* 2/2", summary(l.advanceUntil(requestFor("v1", 1), stable("v1"))))
}

func TestPlan(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	plan := func(in runtimes.Request) (lines []string) {
		changes, err := l.Runtime.Plan(l.ctx, in)
		require.NoError(t, err)
		for _, c := range changes {
			lines = append(lines, fmt.Sprintf("%s %s %s %s", c.Action, c.Type, c.Name, c.Message))
			for _, f := range c.Fields {
				lines = append(lines, fmt.Sprintf("  %s %s -> %s", f.Path, f.Old, f.New))
			}
		}
		return lines
	}
	require.Equal(t, []string{"create TaskDefinition web ", "create Service web "}, plan(requestFor("v1", 1)))
	l.applyStable(requestFor("v1", 1))
	require.Empty(t, plan(requestFor("v1", 1)))
	l.ResetCalls()
	lines := plan(requestFor("v2", 2, withField("desiredCount", 5)))
	require.Len(t, lines, 5, lines)
	require.Equal(t, "create TaskDefinition web ", lines[0])
	require.Contains(t, lines[1], "containerDefinitions [")
	require.Equal(t, []string{"update Service web ", "  desiredCount 2 -> 5", `  taskDefinition "web:1" -> "web:new"`}, lines[2:])
	require.Zero(t, writes(l.Calls()))
	require.Equal(t, []string{
		"refuse Service web schedulingStrategy of the service web cannot be changed (there it is \"REPLICA\"): delete the service, or name another",
	}, plan(requestFor("v1", 1, withField("desiredCount", nil), withField("schedulingStrategy", "DAEMON"))))
}

func TestErrorsHaveAdvice(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	mend := l.Break(ecsfake.Fault{Kind: ecsfake.AccessDenied})
	_, err := l.Runtime.Observe(l.ctx, requestFor("v1", 1))
	var reading *entities.ReadingError
	require.ErrorAs(t, err, &reading)
	require.Equal(t, runtimes.CodeForbidden, reading.Code)
	require.Contains(t, reading.Message, "ecs:DescribeServices")
	require.Contains(t, reading.Message, "grant that role or user the permission")
	_, err = l.Runtime.Apply(l.ctx, requestFor("v1", 1))
	require.False(t, runtimes.IsPermanent(err))
	mend()

	gone := l.worker()
	gone.cluster.name = "nowhere"
	_, err = gone.Observe(l.ctx, requestFor("v1", 1))
	require.True(t, errors.As(err, &reading))
	require.Equal(t, runtimes.CodeUnreachable, reading.Code)
	require.Contains(t, reading.Message, "create the cluster, or correct its name or region")
}
