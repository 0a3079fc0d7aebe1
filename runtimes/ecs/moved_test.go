package ecs

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// plans are the changes of a plan, by object.
func (l *testCluster) plans(in runtimes.Request) map[string]*runtimes.Replacement {
	l.Helper()
	changes, err := l.Runtime.Plan(l.ctx, in)
	require.NoError(l, err)
	all := map[string]*runtimes.Replacement{}
	for _, c := range changes {
		all[c.Type+" "+c.Name] = c.Replaces
	}
	return all
}

// A service that passes to another owner keeps its tasks: the running task definition is recognised by its content. The plan, too, registers
// nothing. The next change replaces the tasks, and the plan says why.
func TestAMovedServiceKeepsItsTasks(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	v1 := requestFor("v1", 1)
	l.applyStable(v1)

	at := func(version string, n int64) runtimes.Request {
		in := requestFor(version, n)
		in.Owner.Service = "api"
		payload, objects := *in.Payload, *in.Payload.ECS
		objects.Adopt = true
		payload.ECS, in.Payload = &objects, &payload
		return in
	}
	moved := at("v1", 2)
	require.Empty(t, l.plans(moved), "the plan changes no field")
	l.ResetCalls()
	l.apply(moved)
	require.Zero(t, l.Calls()["RegisterTaskDefinition"]+l.Calls()["UpdateService"], "%v", l.Calls())
	l.advanceUntil(moved, stable("v1"))
	l.ResetCalls()
	l.apply(moved)
	require.Zero(t, writes(l.Calls()))

	v2 := at("v2", 3)
	require.Equal(t, map[string]*runtimes.Replacement{"TaskDefinition web": nil, "Service web": {What: "tasks", Why: "taskDefinition changes"}}, l.plans(v2))
	out, err := l.Apply(l.ctx, v2)
	require.NoError(t, err)
	require.Contains(t, out.Stdout, "updated the service web: taskDefinition")
	l.advanceUntil(v2, stable("v2"))
	gone, err := l.worker().cluster.prune(l.ctx, v1.Owner, "web", nil, 0)
	require.NoError(t, err)
	require.Empty(t, gone, "the earlier owner deregisters no revision that passed to another one")
}

// A plan of an adoption registers no task definition if the running one is equal.
func TestAPlanOfAnAdoptionChangesNothing(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.createManually("legacy")
	l.Advance(10 * 60e9)
	all, err := l.Discover(l.ctx)
	require.NoError(t, err)
	in := adoptedRequest(t, all[0], "v1", 1)
	l.ResetCalls()
	require.Empty(t, l.plans(in))
	require.Zero(t, writes(l.Calls()))
}

// A release of Converge that computes other digests recognises the running revision by its content, and replaces no task.
func TestAnotherReleaseOfConvergeReplacesNoTask(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	in := requestFor("v1", 1)
	l.applyStable(in)
	service, err := l.client.DescribeServices(l.ctx, &ecs.DescribeServicesInput{Cluster: aws.String("shop"), Services: []string{"web"}})
	require.NoError(t, err)
	running := service.Services[0].TaskDefinition
	_, err = l.client.TagResource(l.ctx, &ecs.TagResourceInput{ResourceArn: running, Tags: []types.Tag{tag(TagDefinition, "of-another-release")}})
	require.NoError(t, err)

	upgraded := l.worker()
	changes, err := upgraded.Plan(l.ctx, in)
	require.NoError(t, err)
	require.Empty(t, changes)
	l.ResetCalls()
	_, err = upgraded.Apply(l.ctx, in)
	require.NoError(t, err)
	require.Equal(t, 1, writes(l.Calls()), "%v", l.Calls())
	require.Equal(t, 1, l.Calls()["TagResource"])
}

// The digest in the tags is the same in every release of Converge. If this test fails, change the code, not the test.
func TestDigestsAreFrozen(t *testing.T) {
	want, err := declare(payload(serviceSpec{image: "shop/web:v1", change: func(definition, _ map[string]any) { delete(definition, "taskRoleArn") }}))
	require.NoError(t, err)
	require.Equal(t, []string{"50164c2c89ab9141376254dd0c246991574f2cb6c33b2d7431f372997a7b3d00", "6e20736db0642858210f806176f4c36117d5083956294c49623fbe80ac8aaf82"}, []string{want.hash, want.serviceHash})
}
