package ecs

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/ecs/ecsfake"
	"github.com/converge-engine/converge/tests/mototest"
)

// What of the runtime an implementation can show that others wrote: credentials of the default chain that assume a role,
// definitions found by their tags and registered once, tags and fence of a service, and its removal. Moto rolls nothing, so
// that deployments are left to the fake.
func TestAgainstMoto(t *testing.T) {
	endpoint := mototest.Start(t)
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	settings, err := config.LoadDefaultConfig(t.Context())
	require.NoError(t, err)
	client := ecs.NewFromConfig(settings, func(o *ecs.Options) { o.HTTPClient = ecsfake.HTTPClient() })
	_, err = client.CreateCluster(t.Context(), &ecs.CreateClusterInput{ClusterName: aws.String("shop")})
	require.NoError(t, err)

	worker := func() *Runtime {
		accounts := &Accounts{Configure: func(o *ecs.Options) { o.HTTPClient = ecsfake.HTTPClient() }, timing: quick()}
		t.Cleanup(accounts.Close)
		rt, err := New(entities.RuntimeDefinition{
			Name: "prod", Kind: entities.RuntimeECS, ECS: &entities.ECSRuntime{Cluster: "shop", RoleARN: "arn:aws:iam::123456789012:role/deploy"},
		}, accounts)
		require.NoError(t, err)
		return rt
	}
	apply := func(in runtimes.Instance) string {
		out, err := worker().Apply(t.Context(), in)
		require.NoError(t, err)
		return out.Stdout
	}
	plain := with("deploymentConfiguration", nil) // which moto does not keep
	require.Equal(t, "registered the task definition web:1\ncreated the service web with web:1\n", apply(at("v1", 1, plain)))
	objects, err := worker().Observe(t.Context(), at("v1", 1, plain))
	require.NoError(t, err)
	require.Equal(t, "v1", objects[0].Versions[0].Version)
	require.Equal(t, "registered the task definition web:2\nupdated the service web: taskDefinition\n", apply(at("v2", 2, plain)))
	require.Empty(t, apply(at("v2", 2, plain)))
	var fenced *runtimes.FencedError
	_, err = worker().Apply(t.Context(), at("v1", 1, plain))
	require.ErrorAs(t, err, &fenced)
	require.Equal(t, "updated the service web: taskDefinition\n", apply(at("v1", 3, plain)), "found by its tags")

	require.NoError(t, worker().Remove(t.Context(), at("v1", 4, plain)))
	left, err := worker().cluster.revisions(t.Context(), "web")
	require.NoError(t, err)
	require.Empty(t, left)
}
