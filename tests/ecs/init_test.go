package ecs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// A configuration of what runs is written by the program itself, and publishing it changes nothing: it is taken over as it runs,
// and the first release is the first change.
func TestConfigurationFromAClusterDeploysNothing_A11(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	server := newAWS(t, ecsfake.Options{}, "prod")
	client := server.Client()
	create := func(name, image string, controller types.DeploymentControllerType) {
		definition, err := client.RegisterTaskDefinition(t.Context(), &ecs.RegisterTaskDefinitionInput{
			Family: &name, ContainerDefinitions: []types.ContainerDefinition{{Name: aws.String("web"), Image: &image, Memory: aws.Int32(128)}},
		})
		require.NoError(t, err)
		in := &ecs.CreateServiceInput{Cluster: aws.String("prod"), ServiceName: &name, DesiredCount: aws.Int32(2), DeploymentController: &types.DeploymentController{Type: controller}}
		if controller == types.DeploymentControllerTypeEcs {
			in.TaskDefinition = definition.TaskDefinition.TaskDefinitionArn
		}
		_, err = client.CreateService(t.Context(), in)
		require.NoError(t, err)
	}
	create("Shop_Web", "registry.shop.dev:5000/web:1.4.2", types.DeploymentControllerTypeEcs)
	create("api", "registry.shop.dev/api@sha256:"+strings.Repeat("0", 64), types.DeploymentControllerTypeEcs)
	create("blue", "shop/blue:1", types.DeploymentControllerTypeExternal)

	dir := filepath.Join(t.TempDir(), "shop")
	d := dev(t, dir, server)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	out, code := d.Converge("config", "init", dir, "--from", "ecs", "--cluster", "prod", "--region", "us-east-1")
	require.Zero(t, code, out)
	text, err := os.ReadFile(filepath.Join(dir, "converge.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(text), "# Omitted: blue is rolled by the deployment controller EXTERNAL\n")
	require.Contains(t, out, "with 2 of the cluster's 3 services")
	_, code = d.Converge("config", "init", dir, "--from", "ecs", "--cluster", "prod", "--region", "us-east-1")
	require.Equal(t, 1, code, "nothing is overwritten")
	out, code = d.Converge("config", "validate", dir)
	require.Zero(t, code, out)

	server.ResetCalls()
	d.Start()
	d.Await("shop/shop-web", "live CONVERGED 1.4.2")
	d.Await("shop/api", "live CONVERGED adopted")
	require.Zero(t, server.Calls()["RegisterTaskDefinition"])
	require.Zero(t, server.Calls()["UpdateService"])

	out, code = d.Converge("release", "shop/shop-web", "1.4.3", "--wait")
	require.Zero(t, code, out)
	require.Equal(t, [2]int{1, 1}, [2]int{server.Calls()["RegisterTaskDefinition"], server.Calls()["UpdateService"]})
	require.Equal(t, "registry.shop.dev:5000/web:1.4.3", image(t, client, "Shop_Web"))
}

// image is what a service of the cluster runs.
func image(t *testing.T, client *ecs.Client, service string) string {
	t.Helper()
	out, err := client.DescribeServices(t.Context(), &ecs.DescribeServicesInput{Cluster: aws.String("prod"), Services: []string{service}})
	require.NoError(t, err)
	definition, err := client.DescribeTaskDefinition(t.Context(), &ecs.DescribeTaskDefinitionInput{TaskDefinition: out.Services[0].TaskDefinition})
	require.NoError(t, err)
	return *definition.TaskDefinition.ContainerDefinitions[0].Image
}
