package ecsfake_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

func subnets() *types.NetworkConfiguration {
	return &types.NetworkConfiguration{AwsvpcConfiguration: &types.AwsVpcConfiguration{Subnets: []string{"subnet-1"}}}
}

func TestCreatingAServiceIsRefused(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(*ecs.CreateServiceInput)
		message string
	}{
		"no such cluster":    {func(in *ecs.CreateServiceInput) { in.Cluster = aws.String("x") }, "ClusterNotFoundException: Cluster not found."},
		"name":               {func(in *ecs.CreateServiceInput) { in.ServiceName = aws.String("a/b") }, "InvalidParameterException: Service name"},
		"no definition":      {func(in *ecs.CreateServiceInput) { in.TaskDefinition = nil }, "InvalidParameterException: TaskDefinition can not be blank."},
		"no such definition": {func(in *ecs.CreateServiceInput) { in.TaskDefinition = aws.String("web:9") }, "ClientException: Unable to find task definition"},
		"early success": {func(in *ecs.CreateServiceInput) {
			configuration(in).EarlySuccessCriteria = &types.DeploymentEarlySuccessCriteria{}
		}, "UnsupportedFeatureException"},
		"tags": {func(in *ecs.CreateServiceInput) {
			for i := range 51 {
				in.Tags = append(in.Tags, types.Tag{Key: aws.String(fmt.Sprint(i)), Value: aws.String("")})
			}
		}, "InvalidParameterException: Too many tags"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			l.register("web", "web:1")
			_, err := l.client.CreateService(l.ctx, service("web", 1, row.change))
			require.ErrorContains(t, err, row.message)
			require.Nil(t, l.web())
		})
	}
}

func balanced(container string, port int32) func(*ecs.CreateServiceInput) {
	return func(in *ecs.CreateServiceInput) {
		in.LoadBalancers = []types.LoadBalancer{{ContainerName: &container, ContainerPort: &port, TargetGroupArn: aws.String("arn:group")}}
	}
}

func TestCreatingAServiceTwice(t *testing.T) {
	token := func(token string) func(*ecs.CreateServiceInput) {
		return func(in *ecs.CreateServiceInput) { in.ClientToken = &token }
	}
	l := newLab(t, ecsfake.Options{})
	arn := l.register("web", "web:1")
	first := l.create(arn, 2, token("one"))
	again := l.create(arn, 2, token("one"))
	require.Equal(t, *first.Deployments[0].Id, *again.Deployments[0].Id)
	for _, other := range []*ecs.CreateServiceInput{service(arn, 2), service(arn, 3, token("one")), service(arn, 2, token("two"))} {
		_, err := l.client.CreateService(l.ctx, other)
		require.ErrorContains(t, err, "InvalidParameterException: Creation of service was not idempotent.")
	}
}

func TestDescribingServices(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	arn := l.register("web", "web:1")
	created := l.create(arn, 0, func(in *ecs.CreateServiceInput) {
		in.Tags = []types.Tag{{Key: aws.String("owner"), Value: aws.String("converge")}}
	})
	describe := func(include []types.ServiceField, refs ...string) (*ecs.DescribeServicesOutput, error) {
		return l.client.DescribeServices(l.ctx, &ecs.DescribeServicesInput{Cluster: aws.String("shop"), Services: refs, Include: include})
	}
	out, err := describe(nil, *created.ServiceArn, "x", "arn:aws:ecs:us-east-1:123456789012:service/other/web")
	require.NoError(t, err)
	require.Len(t, out.Services, 1)
	require.Empty(t, out.Services[0].Tags)
	require.Equal(t, []types.Failure{
		{Arn: aws.String("arn:aws:ecs:us-east-1:123456789012:service/shop/x"), Reason: aws.String("MISSING")},
		{Arn: aws.String("arn:aws:ecs:us-east-1:123456789012:service/other/web"), Reason: aws.String("MISSING")},
	}, out.Failures)
	out, err = describe([]types.ServiceField{types.ServiceFieldTags}, "web")
	require.NoError(t, err)
	require.Equal(t, "converge", *out.Services[0].Tags[0].Value)
	_, err = describe(nil, "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
	require.NoError(t, err)
	_, err = describe(nil, "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11")
	require.Equal(t, "InvalidParameterException", code(err))
	_, err = l.client.DescribeServices(l.ctx, &ecs.DescribeServicesInput{Cluster: aws.String("x"), Services: []string{"web"}})
	require.Equal(t, "ClusterNotFoundException", code(err))
}

func TestListingServicesByPages(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	arn := l.register("web", "web:1")
	for i := range 120 {
		l.create(arn, 0, func(in *ecs.CreateServiceInput) { in.ServiceName = aws.String(fmt.Sprintf("web-%03d", i)) })
	}
	for _, row := range []struct {
		size  *int32
		pages []int
	}{
		{nil, []int{10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10}},
		{aws.Int32(100), []int{100, 20}},
	} {
		in, pages, seen := &ecs.ListServicesInput{Cluster: aws.String("shop"), MaxResults: row.size}, []int{}, map[string]bool{}
		for more := true; more; more = in.NextToken != nil {
			out, err := l.client.ListServices(l.ctx, in)
			require.NoError(t, err)
			pages = append(pages, len(out.ServiceArns))
			for _, arn := range out.ServiceArns {
				seen[arn] = true
			}
			in.NextToken = out.NextToken
		}
		require.Equal(t, row.pages, pages)
		require.Len(t, seen, 120)
	}
	_, err := l.client.ListServices(l.ctx, &ecs.ListServicesInput{Cluster: aws.String("shop"), MaxResults: aws.Int32(101)})
	require.Equal(t, "InvalidParameterException", code(err))
}

func TestDeletingAService(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	arn := l.register("web", "web:1")
	l.create(arn, 1)
	l.settled()
	remove := func(force bool) error {
		_, err := l.client.DeleteService(l.ctx, &ecs.DeleteServiceInput{Cluster: aws.String("shop"), Service: aws.String("web"), Force: &force})
		return err
	}
	require.ErrorContains(t, remove(false), "InvalidParameterException: The service cannot be stopped while it is scaled above 0.")
	require.NoError(t, remove(true))
	require.Equal(t, "DRAINING", *l.web().Status)
	listed, err := l.client.ListServices(l.ctx, &ecs.ListServicesInput{Cluster: aws.String("shop")})
	require.NoError(t, err)
	require.Empty(t, listed.ServiceArns, "what drains is not listed")
	_, err = l.client.CreateService(l.ctx, service(arn, 1))
	require.ErrorContains(t, err, "Unable to Start a service that is still Draining.")
	_, err = l.client.UpdateService(l.ctx, &ecs.UpdateServiceInput{Cluster: aws.String("shop"), Service: aws.String("web")})
	require.Equal(t, "ServiceNotActiveException", code(err))

	l.Advance(30 * time.Second)
	require.Equal(t, "INACTIVE", *l.web().Status)
	_, err = l.client.UpdateService(l.ctx, &ecs.UpdateServiceInput{Cluster: aws.String("shop"), Service: aws.String("web")})
	require.Equal(t, "ServiceNotActiveException", code(err))
	l.Advance(2 * time.Hour)
	require.Nil(t, l.web(), "gone after a while")
	require.Equal(t, "ServiceNotFoundException", code(remove(true)))
	_, err = l.client.UpdateService(l.ctx, &ecs.UpdateServiceInput{Cluster: aws.String("shop"), Service: aws.String("web")})
	require.Equal(t, "ServiceNotFoundException", code(err))
}

func TestInactiveServiceIsRecreated(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	arn := l.register("web", "web:1")
	l.create(arn, 0)
	_, err := l.client.DeleteService(l.ctx, &ecs.DeleteServiceInput{Cluster: aws.String("shop"), Service: aws.String("web")})
	require.NoError(t, err)
	require.Equal(t, "DRAINING", *l.web().Status)
	l.Advance(2 * time.Second)
	require.Equal(t, "INACTIVE", *l.web().Status)
	l.create(arn, 1)
	l.Advance(2 * time.Hour)
	require.Equal(t, "ACTIVE", *l.web().Status, "purging the old one spares the new one")
}

func TestWhichUpdatesStartADeployment(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*ecs.UpdateServiceInput)
		starts bool
	}{
		"nothing":         {func(*ecs.UpdateServiceInput) {}, false},
		"same definition": {to("far:1"), false},
		"same network":    {func(in *ecs.UpdateServiceInput) { in.NetworkConfiguration = subnets() }, false},
		"count":           {func(in *ecs.UpdateServiceInput) { in.DesiredCount = aws.Int32(3) }, false},
		"configuration": {func(in *ecs.UpdateServiceInput) {
			in.DeploymentConfiguration = &types.DeploymentConfiguration{MaximumPercent: aws.Int32(150)}
		}, false},
		"propagated tags": {func(in *ecs.UpdateServiceInput) { in.PropagateTags = types.PropagateTagsService }, false},
		"exec":            {func(in *ecs.UpdateServiceInput) { in.EnableExecuteCommand = aws.Bool(true) }, false},
		"providers": {func(in *ecs.UpdateServiceInput) {
			in.CapacityProviderStrategy, in.ForceNewDeployment = providers("FARGATE_SPOT"), true
		}, true},
		"the same providers": {func(in *ecs.UpdateServiceInput) { in.CapacityProviderStrategy = []types.CapacityProviderStrategyItem{} }, false},
		"force":              {func(in *ecs.UpdateServiceInput) { in.ForceNewDeployment = true }, true},
		"definition":         {to("far:2"), true},
		"network": {func(in *ecs.UpdateServiceInput) {
			in.NetworkConfiguration = subnets()
			in.NetworkConfiguration.AwsvpcConfiguration.Subnets = []string{"subnet-2"}
		}, true},
		"platform": {func(in *ecs.UpdateServiceInput) { in.PlatformVersion = aws.String("1.4.0") }, true},
		"balancers": {func(in *ecs.UpdateServiceInput) {
			in.LoadBalancers = []types.LoadBalancer{{ContainerName: aws.String("web"), ContainerPort: aws.Int32(80), TargetGroupArn: aws.String("arn:group")}}
		}, true},
		"Service Connect": {func(in *ecs.UpdateServiceInput) {
			in.ServiceConnectConfiguration = &types.ServiceConnectConfiguration{Enabled: true}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			ported := func(in *ecs.RegisterTaskDefinitionInput) {
				in.TaskRoleArn = aws.String("arn:aws:iam::123456789012:role/web")
				in.ContainerDefinitions[0].PortMappings = []types.PortMapping{{ContainerPort: aws.Int32(80)}}
			}
			l.register("far", "web:1", fargate, ported)
			l.register("far", "web:2", fargate, ported)
			l.create("far:1", 1, func(in *ecs.CreateServiceInput) {
				in.LaunchType, in.NetworkConfiguration = types.LaunchTypeFargate, subnets()
			})
			before := *l.settled().Deployments[0].Id
			after := l.update(row.change)
			require.Equal(t, row.starts, *after.Deployments[0].Id != before)
			require.Len(t, after.Deployments, map[bool]int{true: 2, false: 1}[row.starts])
			require.Equal(t, types.DeploymentRolloutStateCompleted, l.settled().Deployments[0].RolloutState)
		})
	}
}

func TestOtherControllersKeepTheirDeployments(t *testing.T) {
	for controller, message := range map[types.DeploymentControllerType]string{
		types.DeploymentControllerTypeCodeDeploy: "Unable to update task definition on services with a CODE_DEPLOY deployment controller.",
		types.DeploymentControllerTypeExternal:   "Unable to update task definition on services with a EXTERNAL deployment controller.",
	} {
		t.Run(string(controller), func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			arn := l.register("web", "web:1", func(in *ecs.RegisterTaskDefinitionInput) {
				in.ContainerDefinitions[0].PortMappings = []types.PortMapping{{ContainerPort: aws.Int32(80)}}
			})
			l.create(arn, 2, balanced("web", 80), func(in *ecs.CreateServiceInput) {
				in.DeploymentController = &types.DeploymentController{Type: controller}
				if controller == types.DeploymentControllerTypeExternal {
					in.TaskDefinition, in.LoadBalancers = nil, nil
				}
			})
			l.Advance(time.Minute)
			web := l.web()
			require.Equal(t, controller, web.DeploymentController.Type)
			require.Empty(t, web.Deployments, "no deployment, and so no rolloutState")
			_, err := l.client.UpdateService(l.ctx, &ecs.UpdateServiceInput{Cluster: aws.String("shop"), Service: aws.String("web"), TaskDefinition: &arn})
			require.ErrorContains(t, err, "InvalidParameterException: "+message)
			if controller == types.DeploymentControllerTypeCodeDeploy {
				require.Len(t, web.TaskSets, 1)
				require.EqualValues(t, 2, web.RunningCount)
			}
		})
	}
}

func TestTagsOfResources(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	arn := l.register("web", "web:1")
	web := l.create(arn, 0)
	for _, resource := range []string{arn, *web.ServiceArn, *web.ClusterArn} {
		_, err := l.client.TagResource(l.ctx, &ecs.TagResourceInput{ResourceArn: &resource, Tags: []types.Tag{
			{Key: aws.String("a"), Value: aws.String("1")}, {Key: aws.String("b"), Value: aws.String("2")},
		}})
		require.NoError(t, err)
		_, err = l.client.TagResource(l.ctx, &ecs.TagResourceInput{ResourceArn: &resource, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("3")}}})
		require.NoError(t, err)
		_, err = l.client.UntagResource(l.ctx, &ecs.UntagResourceInput{ResourceArn: &resource, TagKeys: []string{"b", "c"}})
		require.NoError(t, err)
		out, err := l.client.ListTagsForResource(l.ctx, &ecs.ListTagsForResourceInput{ResourceArn: &resource})
		require.NoError(t, err)
		require.Equal(t, []types.Tag{{Key: aws.String("a"), Value: aws.String("3")}}, out.Tags)
	}
	for _, gone := range []string{"arn:aws:ecs:us-east-1:123456789012:service/shop/x", "arn:aws:ecs:us-east-1:123456789012:task-definition/x:1", "arn:aws:s3:::x"} {
		_, err := l.client.TagResource(l.ctx, &ecs.TagResourceInput{ResourceArn: &gone, Tags: []types.Tag{{Key: aws.String("a"), Value: aws.String("1")}}})
		require.Equal(t, "InvalidParameterException", code(err))
	}
}

func TestClusters(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.create(l.register("web", "web:1"), 1)
	out, err := l.client.DescribeClusters(l.ctx, &ecs.DescribeClustersInput{Clusters: []string{"shop", "x"}})
	require.NoError(t, err)
	shop := out.Clusters[0]
	require.Equal(t, []any{"ACTIVE", int32(1), int32(1), int32(2)},
		[]any{*shop.Status, shop.ActiveServicesCount, shop.PendingTasksCount, shop.RegisteredContainerInstancesCount})
	require.Equal(t, "MISSING", *out.Failures[0].Reason)
	remove := func() error {
		_, err := l.client.DeleteCluster(l.ctx, &ecs.DeleteClusterInput{Cluster: aws.String("shop")})
		return err
	}
	require.Equal(t, "ClusterContainsServicesException", code(remove()))
	_, err = l.client.DeleteService(l.ctx, &ecs.DeleteServiceInput{Cluster: aws.String("shop"), Service: aws.String("web"), Force: aws.Bool(true)})
	require.NoError(t, err)
	l.Advance(time.Minute)
	require.NoError(t, remove())
	require.Equal(t, "ClusterNotFoundException", code(remove()))
	listed, err := l.client.ListClusters(l.ctx, &ecs.ListClustersInput{})
	require.NoError(t, err)
	require.Empty(t, listed.ClusterArns)
}
