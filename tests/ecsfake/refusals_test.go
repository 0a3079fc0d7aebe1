package ecsfake_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

type (
	creation = ecs.CreateServiceInput
	updating = ecs.UpdateServiceInput
)

// providers is a strategy of equal weights.
func providers(names ...string) (all []types.CapacityProviderStrategyItem) {
	for _, name := range names {
		all = append(all, types.CapacityProviderStrategyItem{CapacityProvider: &name, Weight: 1})
	}
	return all
}

// changed is a creation with a changed strategy of capacity providers.
func changed(change func(*types.CapacityProviderStrategyItem), names ...string) func(*creation) {
	return func(in *creation) {
		in.CapacityProviderStrategy = providers(names...)
		for i := range in.CapacityProviderStrategy {
			change(&in.CapacityProviderStrategy[i])
		}
	}
}

// onFargate is a creation of a service on Fargate.
func onFargate(change func(*creation)) func(*creation) {
	return func(in *creation) {
		in.LaunchType, in.TaskDefinition, in.NetworkConfiguration = types.LaunchTypeFargate, aws.String("far"), subnets()
		change(in)
	}
}

// inNetwork is a creation on EC2 with network mode awsvpc.
func inNetwork(change func(*types.AwsVpcConfiguration)) func(*creation) {
	return func(in *creation) {
		in.LaunchType, in.TaskDefinition, in.NetworkConfiguration = types.LaunchTypeEc2, aws.String("vpc"), subnets()
		change(in.NetworkConfiguration.AwsvpcConfiguration)
	}
}

func asDaemon(change func(*creation)) func(*creation) {
	return func(in *creation) {
		in.SchedulingStrategy, in.DesiredCount = types.SchedulingStrategyDaemon, nil
		change(in)
	}
}

// of creates a service of another deployment controller.
func of(controller types.DeploymentControllerType, change func(*creation)) func(*creation) {
	return func(in *creation) {
		balanced("web", 80)(in)
		change(in)
		in.DeploymentController = &types.DeploymentController{Type: controller}
	}
}

func configured(change func(*types.DeploymentConfiguration)) func(*creation) {
	return func(in *creation) {
		balanced("web", 80)(in)
		configuration(in).Strategy, configuration(in).BakeTimeInMinutes = types.DeploymentStrategyBlueGreen, aws.Int32(1)
		change(configuration(in))
	}
}

func withHook(hook types.DeploymentLifecycleHook) func(*creation) {
	return configured(func(c *types.DeploymentConfiguration) { c.LifecycleHooks = []types.DeploymentLifecycleHook{hook} })
}

func connected(s types.ServiceConnectService) func(*creation) {
	return func(in *creation) {
		in.ServiceConnectConfiguration = &types.ServiceConnectConfiguration{Enabled: true, Services: []types.ServiceConnectService{s}}
	}
}

// refusedCreations are creations that are refused, by the name of the refusal, with the beginning of the message.
func refusedCreations() map[string]refusedCreation {
	codeDeploy, nothing := types.DeploymentControllerTypeCodeDeploy, func(*creation) {}
	stages := []types.DeploymentLifecycleHookStage{types.DeploymentLifecycleHookStageTestTrafficShift}
	return map[string]refusedCreation{
		"launch type and strategy": {func(in *creation) {
			in.LaunchType, in.CapacityProviderStrategy = types.LaunchTypeEc2, providers("spot")
		}, "Specifying both a launch type"},
		"too many providers": {changed(func(*types.CapacityProviderStrategyItem) {}, slices.Repeat([]string{"spot"}, 21)...), "A capacity provider strategy can contain"},
		"a provider without a name": {changed(func(i *types.CapacityProviderStrategyItem) {
			i.CapacityProvider = aws.String("")
		}, "spot"), "The capacity provider name"},
		"a provider of another cluster": {changed(func(*types.CapacityProviderStrategyItem) {}, "spot", "x"), "The specified capacity provider strategy cannot contain"},
		"Fargate with other providers":  {changed(func(*types.CapacityProviderStrategyItem) {}, "FARGATE", "spot"), "A capacity provider strategy cannot contain both"},
		"weights":                       {changed(func(i *types.CapacityProviderStrategyItem) { i.Weight = 1001 }, "spot"), "The weight must be"},
		"no weight":                     {changed(func(i *types.CapacityProviderStrategyItem) { i.Weight = 0 }, "spot"), "At least one capacity provider"},
		"bases":                         {changed(func(i *types.CapacityProviderStrategyItem) { i.Base = 100_001 }, "spot"), "The base must be"},
		"two bases":                     {changed(func(i *types.CapacityProviderStrategyItem) { i.Base = 1 }, "FARGATE", "FARGATE_SPOT"), "Only one capacity provider"},
		"a definition not for Fargate":  {func(in *creation) { in.LaunchType = types.LaunchTypeFargate }, "Task definition does not support launch_type FARGATE."},
		"a daemon on Fargate":           {onFargate(asDaemon(nothing)), "The daemon scheduling strategy is not supported on Fargate."},
		"a platform version not on Fargate": {
			func(in *creation) { in.PlatformVersion = aws.String("LATEST") }, "The platform version must be null",
		},
		"constraints on Fargate": {onFargate(func(in *creation) {
			in.PlacementConstraints = []types.PlacementConstraint{{Type: types.PlacementConstraintTypeDistinctInstance}}
		}), "Placement constraints are not supported"},
		"placement strategies on Fargate": {onFargate(func(in *creation) {
			in.PlacementStrategy = []types.PlacementStrategy{{Type: types.PlacementStrategyTypeRandom}}
		}), "Placement strategies are not supported"},
		"too many constraints": {func(in *creation) {
			in.PlacementConstraints = slices.Repeat([]types.PlacementConstraint{{Type: types.PlacementConstraintTypeDistinctInstance}}, 11)
		}, "You can specify a maximum of 10 constraints"},
		"too many placement strategies": {func(in *creation) {
			in.PlacementStrategy = slices.Repeat([]types.PlacementStrategy{{Type: types.PlacementStrategyTypeRandom}}, 6)
		}, "You can specify a maximum of 5 strategy rules"},
		"the expression of distinctInstance": {func(in *creation) {
			in.PlacementConstraints = []types.PlacementConstraint{{Type: types.PlacementConstraintTypeDistinctInstance, Expression: aws.String("a == b")}}
		}, "You can't specify an expression"},
		"a long expression": {func(in *creation) {
			in.PlacementConstraints = []types.PlacementConstraint{{Type: types.PlacementConstraintTypeMemberOf, Expression: aws.String(strings.Repeat("x", 2001))}}
		}, "The expression can have a maximum length"},
		"rebalancing of what cannot be rebalanced": {func(in *creation) {
			percents(0, 100)(in)
			in.AvailabilityZoneRebalancing = types.AvailabilityZoneRebalancingEnabled
		}, "Availability Zone rebalancing is not supported"},
		"the count of a daemon":          {func(in *creation) { in.SchedulingStrategy = types.SchedulingStrategyDaemon }, "The daemon scheduling strategy does not support a desired count"},
		"no count":                       {func(in *creation) { in.DesiredCount = nil }, "Desired count is required"},
		"a negative count":               {func(in *creation) { in.DesiredCount = aws.Int32(-1) }, "Desired count must be zero or more."},
		"a daemon of another controller": {of(codeDeploy, asDaemon(nothing)), "The daemon scheduling strategy is only supported with the ECS"},
		"CodeDeploy without a balancer":  {of(codeDeploy, func(in *creation) { in.LoadBalancers = nil }), "A load balancer is required"},
		"percents":                       {percents(150, 200), "minimumHealthyPercent must be"},
		"percents of a daemon":           {asDaemon(percents(50, 200)), "The daemon scheduling strategy does not support values above 100"},
		"shifted traffic without a balancer": {
			func(in *creation) { configuration(in).Strategy = types.DeploymentStrategyCanary }, "The CANARY deployment strategy needs a load balancer",
		},
		"blue/green without bake time": {func(in *creation) { configuration(in).Strategy = types.DeploymentStrategyBlueGreen }, "bakeTimeInMinutes is required"},
		"a canary of another strategy": {configured(func(c *types.DeploymentConfiguration) { c.CanaryConfiguration = &types.CanaryConfiguration{} }), "canaryConfiguration is only valid"},
		"steps of another strategy":    {configured(func(c *types.DeploymentConfiguration) { c.LinearConfiguration = &types.LinearConfiguration{} }), "linearConfiguration is only valid"},
		"the share of a canary": {configured(func(c *types.DeploymentConfiguration) {
			c.Strategy, c.CanaryConfiguration = types.DeploymentStrategyCanary, &types.CanaryConfiguration{CanaryPercent: aws.Float64(101)}
		}), "canaryPercent must be"},
		"the share of a step": {configured(func(c *types.DeploymentConfiguration) {
			c.Strategy, c.LinearConfiguration = types.DeploymentStrategyLinear, &types.LinearConfiguration{StepPercent: aws.Float64(2.9)}
		}), "stepPercent must be"},
		"a hook without a stage": {withHook(types.DeploymentLifecycleHook{HookTargetArn: aws.String("arn:hook")}), "A deployment lifecycle hook needs"},
		"a function that is not named": {
			withHook(types.DeploymentLifecycleHook{LifecycleStages: stages}), "hookTargetArn is required",
		},
		"a pause while traffic shifts": {
			withHook(types.DeploymentLifecycleHook{TargetType: types.DeploymentLifecycleHookTargetTypePause, LifecycleStages: stages}), "PAUSE hooks cannot be configured",
		},
		"the breaker of another controller": {of(codeDeploy, breaker(true)), "Deployment circuit breaker feature"},
		"the alarms of another controller": {of(codeDeploy, func(in *creation) {
			configuration(in).Alarms = &types.DeploymentAlarms{Enable: true, AlarmNames: []string{"slow"}}
		}), "Deployment alarms can only be enabled"},
		"alarms without names": {func(in *creation) {
			configuration(in).Alarms = &types.DeploymentAlarms{Enable: true, AlarmNames: []string{}}
		}, "Alarm names are required"},
		"no network":               {onFargate(func(in *creation) { in.NetworkConfiguration = nil }), "Network Configuration must be provided"},
		"a network without awsvpc": {func(in *creation) { in.NetworkConfiguration = subnets() }, "Network Configuration is not valid"},
		"no subnets":               {inNetwork(func(n *types.AwsVpcConfiguration) { n.Subnets = []string{} }), "subnets can not be empty."},
		"too many subnets":         {inNetwork(func(n *types.AwsVpcConfiguration) { n.Subnets = slices.Repeat([]string{"subnet-1"}, 17) }), "subnets can have at most 16"},
		"too many security groups": {
			inNetwork(func(n *types.AwsVpcConfiguration) { n.SecurityGroups = slices.Repeat([]string{"sg-1"}, 6) }), "securityGroups can have at most 5",
		},
		"a public address not on Fargate": {inNetwork(func(n *types.AwsVpcConfiguration) { n.AssignPublicIp = types.AssignPublicIpEnabled }), "Assign public IP is not supported"},
		"a grace period without a check":  {func(in *creation) { in.HealthCheckGracePeriodSeconds = aws.Int32(5) }, "Health check grace period is only valid"},
		"a negative grace period":         {func(in *creation) { in.HealthCheckGracePeriodSeconds = aws.Int32(-1) }, "Health check grace period must be"},
		"the container of a balancer":     {balanced("x", 80), "The container x does not exist in the task definition."},
		"the port of a balancer":          {balanced("web", 81), "The container web did not have a container port 81 defined."},
		"a balancer that is not named once": {func(in *creation) {
			balanced("web", 80)(in)
			in.LoadBalancers[0].LoadBalancerName = aws.String("classic")
		}, "A load balancer needs either"},
		"a classic balancer with awsvpc": {inNetworkWith(func(in *creation) {
			balanced("web", 80)(in)
			in.LoadBalancers[0].TargetGroupArn, in.LoadBalancers[0].LoadBalancerName = nil, aws.String("classic")
		}), "Classic Load Balancers"},
		"a balancer outside of AWS": {func(in *creation) {
			balanced("web", 80)(in)
			in.LaunchType = types.LaunchTypeExternal
		}, "Load balancers and service discovery are not supported"},
		"several registries": {func(in *creation) { in.ServiceRegistries = make([]types.ServiceRegistry, 2) }, "Multiple service registries"},
		"two ports of a registry": {func(in *creation) {
			in.ServiceRegistries = []types.ServiceRegistry{{Port: aws.Int32(80), ContainerPort: aws.Int32(80)}}
		}, "You can't specify both a port"},
		"a port without a name": {connected(types.ServiceConnectService{PortName: aws.String("x")}), "The portName of Service Connect"},
		"several aliases": {
			connected(types.ServiceConnectService{PortName: aws.String("http"), ClientAliases: slices.Repeat([]types.ServiceConnectClientAlias{{Port: aws.Int32(80)}}, 2)}), "The maximum number of client aliases",
		},
		"the token":                 {func(in *creation) { in.ClientToken = aws.String("a b") }, "The client token"},
		"a role without a balancer": {func(in *creation) { in.Role = aws.String("role") }, "If you specify the role parameter"},
		"a role with awsvpc": {inNetworkWith(func(in *creation) {
			balanced("web", 80)(in)
			in.Role = aws.String("role")
		}), "You cannot specify an IAM role"},
		"exec without a task role": {func(in *creation) { in.EnableExecuteCommand = true }, "The service couldn't be created because a valid taskRoleArn"},
		"volumes of a daemon": {asDaemon(func(in *creation) {
			in.VolumeConfigurations = []types.ServiceVolumeConfiguration{{Name: aws.String("data")}}
		}), "volumeConfigurations is only supported"},
		"a volume that is not defined": {
			func(in *creation) {
				in.VolumeConfigurations = []types.ServiceVolumeConfiguration{{Name: aws.String("data")}}
			}, "The name of a volume must match",
		},
	}
}

func inNetworkWith(change func(*creation)) func(*creation) {
	return func(in *creation) {
		inNetwork(func(*types.AwsVpcConfiguration) {})(in)
		change(in)
	}
}

type refusedCreation struct {
	change  func(*creation)
	message string
}

// registerAll registers definitions for EC2, EC2 with awsvpc, and Fargate.
func (l *lab) registerAll() {
	l.Helper()
	ported := func(in *ecs.RegisterTaskDefinitionInput) {
		in.ContainerDefinitions[0].PortMappings = []types.PortMapping{{ContainerPort: aws.Int32(80), Name: aws.String("http")}}
	}
	l.register("web", "web:1", ported)
	l.register("vpc", "web:1", ported, func(in *ecs.RegisterTaskDefinitionInput) { in.NetworkMode = types.NetworkModeAwsvpc })
	l.register("far", "web:1", ported, fargate)
}

// Each condition of the table refuses, says where AWS documents it or where it was seen, and is one that a test knows.
func TestEveryRefusalOfTheTable(t *testing.T) {
	creations := refusedCreations()
	known := append(slices.Collect(maps.Keys(creations)), "another strategy without a forced deployment")
	require.ElementsMatch(t, known, slices.Collect(maps.Keys(ecsfake.Refusals())))
	for name, source := range ecsfake.Refusals() {
		require.Regexp(t, `^(API [A-Z]|guides? [a-z]|seen in [\w.-]+/[\w.-]+#\d+)`, source, name)
	}
	l := newLab(t, ecsfake.Options{})
	l.registerAll()
	for name, row := range creations {
		_, err := l.client.CreateService(l.ctx, service("web", 1, row.change))
		require.ErrorContains(t, err, "InvalidParameterException: "+row.message, name)
		require.Nil(t, l.web(), name)
	}
}

// What CreateService refuses, UpdateService refuses too, where it has the field; and the service stays as it was.
func TestAnUpdateIsRefusedLikeACreation(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(*updating)
		message string
	}{
		"to providers": {func(in *updating) { in.CapacityProviderStrategy = providers("spot") }, "When switching from launch type to capacity provider strategy"},
		"to providers of another cluster": {func(in *updating) {
			in.CapacityProviderStrategy, in.ForceNewDeployment = providers("x"), true
		}, "The specified capacity provider strategy cannot contain"},
		"to Fargate": {func(in *updating) {
			in.CapacityProviderStrategy, in.ForceNewDeployment = providers("FARGATE"), true
		}, "Task definition does not support launch_type FARGATE."},
		"exec":     {func(in *updating) { in.EnableExecuteCommand = aws.Bool(true) }, "The service couldn't be updated because a valid taskRoleArn"},
		"platform": {func(in *updating) { in.PlatformVersion = aws.String("LATEST") }, "The platform version must be null"},
		"network":  {func(in *updating) { in.NetworkConfiguration = subnets() }, "Network Configuration is not valid"},
		"percents": {func(in *updating) {
			in.DeploymentConfiguration = &types.DeploymentConfiguration{MaximumPercent: aws.Int32(300)}
		}, "minimumHealthyPercent must be"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, ecsfake.Options{})
			l.registerAll()
			l.create("web", 1)
			before := l.settled()
			in := &updating{Cluster: aws.String("shop"), Service: aws.String("web")}
			row.change(in)
			_, err := l.client.UpdateService(l.ctx, in)
			require.ErrorContains(t, err, "InvalidParameterException: "+row.message)
			require.Equal(t, before.Deployments[0].Id, l.web().Deployments[0].Id)
			require.Equal(t, before.LaunchType, l.web().LaunchType)
		})
	}
}

// Another strategy needs a forced deployment, in each direction. The order of its providers and a repetition are no change.
func TestChangesOfCapacityProviders(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.registerAll()
	l.create("web", 1, onFargate(func(*creation) {}))
	l.settled()
	for n, names := range [][]string{{"FARGATE", "FARGATE_SPOT"}, {"FARGATE_SPOT"}, {}} {
		in := &updating{Cluster: aws.String("shop"), Service: aws.String("web"), CapacityProviderStrategy: append([]types.CapacityProviderStrategyItem{}, providers(names...)...)}
		_, err := l.client.UpdateService(l.ctx, in)
		require.ErrorContains(t, err, "you must force a new deployment", n)
		before := *l.web().Deployments[0].Id
		in.ForceNewDeployment = true
		_, err = l.client.UpdateService(l.ctx, in)
		require.NoError(t, err, n)
		after := l.settled()
		require.NotEqual(t, before, *after.Deployments[0].Id, n)
		require.Len(t, after.CapacityProviderStrategy, len(names))
		require.Equal(t, len(names) == 0, after.LaunchType == types.LaunchTypeFargate)
		slices.Reverse(in.CapacityProviderStrategy)
		in.ForceNewDeployment = false
		_, err = l.client.UpdateService(l.ctx, in)
		require.NoError(t, err, n)
		require.Equal(t, *after.Deployments[0].Id, *l.web().Deployments[0].Id, n)
	}
}

// RunTask refuses a strategy and a network as CreateService does.
func TestATaskIsRefusedLikeAService(t *testing.T) {
	l := newLab(t, ecsfake.Options{})
	l.registerAll()
	for message, change := range map[string]func(*ecs.RunTaskInput){
		"Specifying both a launch type": func(in *ecs.RunTaskInput) {
			in.LaunchType, in.CapacityProviderStrategy = types.LaunchTypeEc2, providers("spot")
		},
		"The specified capacity provider strategy": func(in *ecs.RunTaskInput) { in.CapacityProviderStrategy = providers("x") },
		"At least one capacity provider": func(in *ecs.RunTaskInput) {
			in.CapacityProviderStrategy = []types.CapacityProviderStrategyItem{{CapacityProvider: aws.String("spot")}}
		},
		"Network Configuration must be provided": func(in *ecs.RunTaskInput) { in.TaskDefinition = aws.String("far") },
		"Assign public IP": func(in *ecs.RunTaskInput) {
			in.TaskDefinition, in.NetworkConfiguration = aws.String("vpc"), subnets()
			in.NetworkConfiguration.AwsvpcConfiguration.AssignPublicIp = types.AssignPublicIpEnabled
		},
	} {
		in := &ecs.RunTaskInput{Cluster: aws.String("shop"), TaskDefinition: aws.String("web")}
		change(in)
		_, err := l.client.RunTask(l.ctx, in)
		require.ErrorContains(t, err, "InvalidParameterException: "+message)
	}
}
