package ecs

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
	"github.com/converge-engine/converge/tests/ecsfake"
	"github.com/converge-engine/converge/tests/mototest"
)

// What of the runtime an implementation can show that others wrote: credentials of the default chain that assume a role,
// definitions found by their tags and registered once, tags and fence of a service, and its removal. Moto rolls nothing, so
// that deployments are left to the fake.
func TestAgainstMoto(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": mototest.Start(t), "AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	testEndpoint(t, entities.ECSRuntime{RoleARN: "arn:aws:iam::123456789012:role/deploy"}, fastTiming())
}

// The same of any endpoint, with the credentials and the region of the environment. Without instances its services start nothing,
// so that nothing has to roll; a cluster is made and deleted, and revisions stay in the account's lists as INACTIVE.
func TestAgainstAnEndpoint(t *testing.T) {
	endpoint := os.Getenv("CONVERGE_ECS_ENDPOINT")
	if endpoint == "" {
		t.Skip("CONVERGE_ECS_ENDPOINT is not set: it is the endpoint of an ECS API for this test; credentials and region come from the environment")
	}
	testEndpoint(t, entities.ECSRuntime{Endpoint: endpoint}, nil)
}

// The fake is such an endpoint, too.
func TestAgainstTheFakeAsAnEndpoint(t *testing.T) {
	server, err := ecsfake.New(ecsfake.Options{Speed: speed})
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	testEndpoint(t, entities.ECSRuntime{Endpoint: server.URL}, fastTiming())
}

// testEndpoint asks of an endpoint what needs no rollout. Where timing is nil, reads may lag there: one worker, which knows what it
// wrote, asks for all, and else another one each time.
func testEndpoint(t *testing.T, endpoint entities.ECSRuntime, timing *timing) {
	t.Helper()
	endpoint.Cluster = fmt.Sprintf("converge-test-%d", time.Now().UnixNano())
	settings, err := config.LoadDefaultConfig(t.Context())
	require.NoError(t, err)
	client := ecs.NewFromConfig(settings, func(o *ecs.Options) {
		o.HTTPClient = ecsfake.HTTPClient()
		if endpoint.Endpoint != "" {
			o.BaseEndpoint = &endpoint.Endpoint
		}
	})
	_, err = client.CreateCluster(t.Context(), &ecs.CreateClusterInput{ClusterName: &endpoint.Cluster})
	require.NoError(t, err)
	defer func() {
		_, err := client.DeleteCluster(t.Context(), &ecs.DeleteClusterInput{Cluster: &endpoint.Cluster})
		assert.NoError(t, err)
	}()

	connect := func() *Runtime {
		accounts := &Accounts{Configure: func(o *ecs.Options) { o.HTTPClient = ecsfake.HTTPClient() }, timing: timing}
		t.Cleanup(accounts.Close)
		rt, err := New(entities.RuntimeDefinition{Name: "prod", Kind: entities.RuntimeECS, ECS: &endpoint}, accounts)
		require.NoError(t, err)
		return rt
	}
	one := connect()
	worker := func() *Runtime {
		if timing == nil {
			return one
		}
		return connect()
	}
	name := endpoint.Cluster // so that no other revisions are of that family
	version := func(version string, sequence int64) runtimes.Request {
		return requestFor(version, sequence, renamed(name), withField("deploymentConfiguration", nil)) // which moto does not keep
	}
	apply := func(in runtimes.Request) string {
		out, err := worker().Apply(t.Context(), in)
		require.NoError(t, err)
		return strings.ReplaceAll(out.Stdout, name, "web")
	}
	require.Equal(t, "registered the task definition web:1\ncreated the service web with web:1\n", apply(version("v1", 1)))
	objects, err := worker().Observe(t.Context(), version("v1", 1))
	require.NoError(t, err)
	require.Equal(t, "v1", objects[0].Versions[0].Version)
	require.Equal(t, "registered the task definition web:2\nupdated the service web: taskDefinition\n", apply(version("v2", 2)))
	require.Empty(t, apply(version("v2", 2)))
	var fenced *runtimes.FencedError
	_, err = worker().Apply(t.Context(), version("v1", 1))
	require.ErrorAs(t, err, &fenced)
	require.Equal(t, "updated the service web: taskDefinition\n", apply(version("v1", 3)), "found by its tags")

	require.NoError(t, worker().Remove(t.Context(), version("v1", 4)))
	left, err := worker().cluster.revisions(t.Context(), name)
	require.NoError(t, err)
	require.Empty(t, left)
}
