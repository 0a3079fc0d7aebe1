package examples

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsecs "github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/runtimes/ecs"
	"github.com/converge-engine/converge/tests/ecsfake"
)

// Both services are planned and applied to the fake of ECS in both channels.
func TestECSApplies(t *testing.T) {
	c := compiled(t, "ecs")
	server, err := ecsfake.New(ecsfake.Options{Region: "eu-west-1", Speed: 1000})
	require.NoError(t, err)
	defer server.Close()
	accounts := &ecs.Accounts{PollInterval: 10 * time.Millisecond, Configure: func(o *awsecs.Options) {
		o.HTTPClient = ecsfake.HTTPClient()
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIAFAKE", SecretAccessKey: "fake"}, nil
		})
	}}
	defer accounts.Close()
	for _, def := range c.Runtimes {
		_, err := server.Client().CreateCluster(t.Context(), &awsecs.CreateClusterInput{ClusterName: &def.Name})
		require.NoError(t, err)
		def.ECS.RoleARN, def.ECS.Endpoint = "", server.URL
		rt, err := ecs.New(def, accounts)
		require.NoError(t, err)
		for service, tasks := range map[string]map[string]int{"web": {"staging": 2, "production": 4}, "worker": {"staging": 1, "production": 1}} {
			payload := render(t, c, service, "v1")[def.Name]
			at := slices.IndexFunc(c.Bundles, func(b bundle.Bundle) bool { return b.Digest() == payload.ECS.Bundle })
			require.GreaterOrEqual(t, at, 0)
			payload.ECS.Objects, err = c.Bundles[at].Objects(payload.ECS.Values)
			require.NoError(t, err)
			in := runtimes.Request{
				Owner: runtimes.Owner{Application: "shop", Service: service, ID: entities.Only(def.Name)}, FullVersion: "v1", Payload: &payload,
			}
			changes, err := rt.Plan(t.Context(), in)
			require.NoError(t, err)
			require.Len(t, changes, 2)
			_, err = rt.Apply(t.Context(), in)
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				objects, err := rt.Observe(t.Context(), in)
				require.NoError(t, err)
				return entities.FetchObjects(objects, &entities.Target{FullVersion: "v1"}).Stable && objects[0].Versions[0].Replicas == tasks[def.Name]
			}, time.Minute, 10*time.Millisecond)
		}
	}
}
