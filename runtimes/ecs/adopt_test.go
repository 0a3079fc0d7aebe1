package ecs

import (
	"encoding/json"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// createManually creates a service as a person does with the AWS CLI.
func (l *testCluster) createManually(name string) {
	l.Helper()
	definition, err := l.client.RegisterTaskDefinition(l.ctx, &ecs.RegisterTaskDefinitionInput{
		Family: aws.String(name), NetworkMode: types.NetworkModeBridge,
		ContainerDefinitions: []types.ContainerDefinition{{
			Name: aws.String("web"), Image: aws.String("shop/web:v1"), Memory: aws.Int32(128), Essential: aws.Bool(true),
			PortMappings: []types.PortMapping{{ContainerPort: aws.Int32(8080), HostPort: aws.Int32(8080), Protocol: types.TransportProtocolTcp}},
			Environment:  []types.KeyValuePair{{Name: aws.String("A"), Value: aws.String("1")}},
		}},
	})
	require.NoError(l, err)
	_, err = l.client.CreateService(l.ctx, &ecs.CreateServiceInput{
		Cluster: aws.String("shop"), ServiceName: &name, TaskDefinition: definition.TaskDefinition.TaskDefinitionArn, DesiredCount: aws.Int32(3),
		DeploymentConfiguration: &types.DeploymentConfiguration{MinimumHealthyPercent: aws.Int32(50), MaximumPercent: aws.Int32(200)},
	})
	require.NoError(l, err)
}

// adoptedRequest is an instance of a discovered service.
func adoptedRequest(t *testing.T, found DiscoveredService, version string, n int64) runtimes.Request {
	t.Helper()
	in := requestFor(version, n)
	in.Owner.Service = found.Name
	in.Payload.ECS = &entities.ECSPayload{Adopt: true}
	for _, document := range []map[string]any{found.Definition, found.Service} {
		data, err := json.Marshal(document)
		require.NoError(t, err)
		in.Payload.ECS.Objects = append(in.Payload.ECS.Objects, data)
	}
	return in
}

// A manually created service is discovered in the form of a configuration, and adopted as it runs: no registration and no rollout,
// until something changes.
func TestAdoptionRegistersAndRollsOutNothing(t *testing.T) {
	l := newTestCluster(t, ecsfake.Options{})
	l.createManually("legacy")
	l.createManually("other")
	l.Advance(10 * 60e9)
	all, err := l.Discover(l.ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"legacy", "other"}, []string{all[0].Name, all[1].Name})
	require.NotContains(t, all[0].Service, "desiredCount", "the scale may change")
	require.NotContains(t, all[0].Definition, "revision")

	in := adoptedRequest(t, all[0], "v1", 1)
	l.ResetCalls()
	l.apply(in)
	require.Equal(t, 2, writes(l.Calls()), "%v", l.Calls())
	require.Equal(t, 2, l.Calls()["TagResource"], "of the service, and of its task definition")
	l.advanceUntil(in, stable("v1"))
	l.ResetCalls()
	l.apply(in)
	require.Zero(t, writes(l.Calls()))

	found, err := l.Discover(l.ctx)
	require.NoError(t, err)
	require.Equal(t, [2]string{in.Owner.Key(), ""}, [2]string{found[0].Owner, found[1].Owner})

	changed := adoptedRequest(t, all[0], "v2", 2)
	changed.Payload.ECS.Objects[0] = json.RawMessage(`{"family": "legacy", "containerDefinitions": [{"name": "web", "image": "shop/web:v2", "memory": 128}]}`)
	l.ResetCalls()
	l.apply(changed)
	require.Equal(t, 1, l.Calls()["RegisterTaskDefinition"])
	require.Equal(t, 1, l.Calls()["UpdateService"])
	l.advanceUntil(changed, stable("v2"))

	gone, err := l.worker().cluster.prune(l.ctx, in.Owner, "legacy", nil, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"legacy:2"}, gone, "revisions of other owners stay")
}

// A revision that differs from the declaration, if only in one field, is not adopted.
func TestOnlyEqualRevisionsAreAdopted(t *testing.T) {
	there := &types.TaskDefinition{
		Family: aws.String("web"), Revision: 3, Status: types.TaskDefinitionStatusActive,
		ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("web"), Image: aws.String("i"), Memory: aws.Int32(128), Essential: aws.Bool(true), Environment: []types.KeyValuePair{}}},
	}
	says := func(document string) bool {
		d := &declared{definition: &ecs.RegisterTaskDefinitionInput{}}
		var err error
		d.definitionFields, err = decode([]byte(document), d.definition)
		require.NoError(t, err)
		return d.matches(there)
	}
	require.True(t, says(`{"family": "web", "containerDefinitions": [{"name": "web", "image": "i", "memory": 128}]}`))
	require.True(t, says(`{"family": "web", "containerDefinitions": [{"name": "web", "image": "i", "memory": 128, "cpu": 0, "essential": true, "mountPoints": []}], "tags": [{"key": "a", "value": "b"}]}`))
	require.False(t, says(`{"family": "web", "containerDefinitions": [{"name": "web", "image": "j", "memory": 128}]}`))
	require.False(t, says(`{"family": "web", "containerDefinitions": [{"name": "web", "image": "i", "memory": 128, "essential": false}]}`))
	require.False(t, says(`{"family": "web", "containerDefinitions": [{"name": "web", "image": "i", "memory": 128, "user": "root"}]}`))
	there.ContainerDefinitions[0].Command = []string{"a", "b"}
	require.True(t, says(`{"family": "web", "containerDefinitions": [{"name": "web", "image": "i", "memory": 128, "command": ["a", "b"]}]}`))
	require.False(t, says(`{"family": "web", "containerDefinitions": [{"name": "web", "image": "i", "memory": 128, "command": ["b", "a"]}]}`), "the order of words means something")
	there.ContainerDefinitions[0].Command = nil
	there.ContainerDefinitions[0].User = aws.String("root")
	require.False(t, says(`{"family": "web", "containerDefinitions": [{"name": "web", "image": "i", "memory": 128}]}`))
}
