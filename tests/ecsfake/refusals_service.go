package ecsfake

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

const (
	maxConstraints = 10
	maxStrategies  = 5
	maxExpression  = 2000
	maxToken       = 36
	maxMinutes     = 1440
	zoneAttribute  = "attribute:ecs.availability-zone"
)

// placementRefusals are those of placement constraints and strategies, and of the rebalancing of availability zones.
func placementRefusals() []refusal {
	return []refusal{
		{
			"constraints on Fargate", "seen in GetSimpl/cloudlift#138",
			func(c change) string {
				return when(c.shape.fargate() && len(c.base.PlacementConstraints) > 0, "Placement constraints are not supported with FARGATE launch type.")
			}, false,
		},
		{
			"placement strategies on Fargate", "seen in aws-cloudformation/cloudformation-coverage-roadmap#2369",
			func(c change) string {
				return when(c.shape.fargate() && len(c.base.PlacementStrategy) > 0, "Placement strategies are not supported with FARGATE launch type.")
			}, false,
		},
		{
			"too many constraints", "API CreateService, placementConstraints",
			func(c change) string {
				all := len(c.base.PlacementConstraints)
				if c.shape.definition != nil {
					all += len(c.shape.definition.view.PlacementConstraints)
				}
				return when(all > maxConstraints, "You can specify a maximum of %d constraints for each task.", maxConstraints)
			}, false,
		},
		{
			"too many placement strategies", "API CreateService, placementStrategy",
			func(c change) string {
				return when(len(c.base.PlacementStrategy) > maxStrategies, "You can specify a maximum of %d strategy rules for each service.", maxStrategies)
			}, false,
		},
		{
			"the expression of distinctInstance", "API PlacementConstraint, expression",
			func(c change) string {
				return when(slices.ContainsFunc(c.base.PlacementConstraints, func(p types.PlacementConstraint) bool {
					return p.Type == types.PlacementConstraintTypeDistinctInstance && text(p.Expression) != ""
				}), "You can't specify an expression if the constraint type is distinctInstance.")
			}, false,
		},
		{
			"a long expression", "API PlacementConstraint, expression",
			func(c change) string {
				return when(slices.ContainsFunc(c.base.PlacementConstraints, func(p types.PlacementConstraint) bool { return len(text(p.Expression)) > maxExpression }),
					"The expression can have a maximum length of %d characters.", maxExpression)
			}, false,
		},
		{
			"rebalancing of what cannot be rebalanced", "guide service-rebalancing",
			func(c change) string {
				return when(c.base.AvailabilityZoneRebalancing == types.AvailabilityZoneRebalancingEnabled && !c.rebalances(),
					"Availability Zone rebalancing is not supported for this service: it needs the REPLICA strategy, maximumPercent above 100, spread over Availability Zones as the first placement strategy, or none, and no Classic Load Balancer.")
			}, false,
		},
	}
}

// rebalances reports whether tasks of the service can be moved to other availability zones.
func (c change) rebalances() bool {
	first := c.base.PlacementStrategy
	spread := len(first) == 0 || first[0].Type == types.PlacementStrategyTypeSpread && text(first[0].Field) == zoneAttribute
	return spread && !c.daemon() && c.shape.launchType != types.LaunchTypeExternal && aws.ToInt32(c.base.DeploymentConfiguration.MaximumPercent) > 100 &&
		!slices.ContainsFunc(c.shape.balancers, func(b types.LoadBalancer) bool { return text(b.LoadBalancerName) != "" }) &&
		!slices.ContainsFunc(c.base.PlacementConstraints, func(p types.PlacementConstraint) bool { return strings.Contains(text(p.Expression), zoneAttribute) })
}

// countRefusals are those of the number of tasks, and of what schedules them.
func countRefusals() []refusal {
	external := types.DeploymentControllerTypeExternal
	return []refusal{
		{
			"the count of a daemon", "API CreateService, schedulingStrategy",
			func(c change) string {
				counted := c.create != nil && c.create.DesiredCount != nil || c.update != nil && c.update.DesiredCount != nil
				return when(c.daemon() && counted, "The daemon scheduling strategy does not support a desired count for services. Remove the desired count value and try again.")
			}, false,
		},
		{
			"no count", "API CreateService, desiredCount",
			func(c change) string {
				return when(c.create != nil && c.create.DesiredCount == nil && !c.daemon() && c.controller() != external, "Desired count is required for the replica scheduling strategy.")
			}, false,
		},
		{
			"a negative count", "API CreateService, desiredCount",
			func(c change) string { return when(c.desired < 0, "Desired count must be zero or more.") }, false,
		},
		{
			"a daemon of another controller", "API CreateService, schedulingStrategy",
			func(c change) string {
				return when(c.daemon() && c.controller() != types.DeploymentControllerTypeEcs, "The daemon scheduling strategy is only supported with the ECS deployment controller.")
			}, false,
		},
		{
			"CodeDeploy without a balancer", "API CreateService, loadBalancers",
			func(c change) string {
				return when(c.controller() == types.DeploymentControllerTypeCodeDeploy && len(c.shape.balancers) == 0, "A load balancer is required for the CODE_DEPLOY deployment controller.")
			}, false,
		},
	}
}

// percentRefusals are those of the percents of a deployment configuration.
func percentRefusals() []refusal {
	return []refusal{
		{
			"percents", "API DeploymentConfiguration, minimumHealthyPercent and maximumPercent",
			func(c change) string {
				low, high := aws.ToInt32(c.base.DeploymentConfiguration.MinimumHealthyPercent), aws.ToInt32(c.base.DeploymentConfiguration.MaximumPercent)
				return when(low < 0 || low > 100 || high < 1 || high > 200, "minimumHealthyPercent must be between 0 and 100, maximumPercent between 1 and 200.")
			}, false,
		},
		{
			"percents of a daemon", "guide service_definition_parameters, maximumPercent",
			func(c change) string {
				low, high := aws.ToInt32(c.base.DeploymentConfiguration.MinimumHealthyPercent), aws.ToInt32(c.base.DeploymentConfiguration.MaximumPercent)
				return when(c.daemon() && high > 100 && low > 0, "The daemon scheduling strategy does not support values above 100 for maximumPercent with minimumHealthyPercent above 0.")
			}, false,
		},
	}
}

// configurationRefusals are those of other deployment configurations.
func configurationRefusals() []refusal {
	return []refusal{
		{
			"shifted traffic without a balancer", "guides canary-deployment and linear-deployment",
			func(c change) string {
				strategy := c.base.DeploymentConfiguration.Strategy
				return when(strategy != types.DeploymentStrategyBlueGreen && c.shifts() && len(c.shape.balancers) == 0 && c.shape.connect == nil,
					"The %s deployment strategy needs a load balancer or Service Connect.", strategy)
			}, false,
		},
		{
			"blue/green without bake time", "API DeploymentConfiguration, bakeTimeInMinutes",
			func(c change) string {
				d := c.base.DeploymentConfiguration
				return when(d.Strategy == types.DeploymentStrategyBlueGreen && d.BakeTimeInMinutes == nil, "bakeTimeInMinutes is required with the BLUE_GREEN deployment strategy.")
			}, false,
		},
		{
			"a canary of another strategy", "API DeploymentConfiguration, canaryConfiguration",
			func(c change) string {
				return when(c.configuration().CanaryConfiguration != nil && c.base.DeploymentConfiguration.Strategy != types.DeploymentStrategyCanary,
					"canaryConfiguration is only valid with the CANARY deployment strategy.")
			}, false,
		},
		{
			"steps of another strategy", "API DeploymentConfiguration, linearConfiguration",
			func(c change) string {
				return when(c.configuration().LinearConfiguration != nil && c.base.DeploymentConfiguration.Strategy != types.DeploymentStrategyLinear,
					"linearConfiguration is only valid with the LINEAR deployment strategy.")
			}, false,
		},
		{
			"the share of a canary", "API CanaryConfiguration",
			func(c change) string {
				canary := c.configuration().CanaryConfiguration
				return when(canary != nil && (outside(canary.CanaryPercent, 0.1) || tooLong(canary.CanaryBakeTimeInMinutes)),
					"canaryPercent must be between 0.1 and 100.0, canaryBakeTimeInMinutes between 0 and %d.", maxMinutes)
			}, false,
		},
		{
			"the share of a step", "API LinearConfiguration",
			func(c change) string {
				step := c.configuration().LinearConfiguration
				return when(step != nil && (outside(step.StepPercent, 3) || tooLong(step.StepBakeTimeInMinutes)),
					"stepPercent must be between 3.0 and 100.0, stepBakeTimeInMinutes between 0 and %d.", maxMinutes)
			}, false,
		},
	}
}

// hookRefusals are those of lifecycle hooks, and of what watches a deployment.
func hookRefusals() []refusal {
	return []refusal{
		{
			"a hook without a stage", "API DeploymentLifecycleHook, lifecycleStages",
			func(c change) string {
				return when(c.hasHook(func(h types.DeploymentLifecycleHook) bool { return len(h.LifecycleStages) == 0 }), "A deployment lifecycle hook needs lifecycleStages.")
			}, false,
		},
		{
			"a function that is not named", "API DeploymentLifecycleHook, hookTargetArn",
			func(c change) string {
				return when(c.hasHook(func(h types.DeploymentLifecycleHook) bool {
					return h.TargetType != types.DeploymentLifecycleHookTargetTypePause && text(h.HookTargetArn) == ""
				}), "hookTargetArn is required for an AWS_LAMBDA lifecycle hook.")
			}, false,
		},
		{
			"a pause while traffic shifts", "API DeploymentLifecycleHook, lifecycleStages",
			func(c change) string {
				return when(c.hasHook(func(h types.DeploymentLifecycleHook) bool {
					return h.TargetType == types.DeploymentLifecycleHookTargetTypePause && slices.ContainsFunc(h.LifecycleStages, func(s types.DeploymentLifecycleHookStage) bool {
						return s == types.DeploymentLifecycleHookStageTestTrafficShift || s == types.DeploymentLifecycleHookStageProductionTrafficShift
					})
				}), "PAUSE hooks cannot be configured at TEST_TRAFFIC_SHIFT or PRODUCTION_TRAFFIC_SHIFT stages.")
			}, false,
		},
		{
			"the breaker of another controller", "guide deployment-failure-detection",
			func(c change) string {
				return when(c.base.DeploymentConfiguration.DeploymentCircuitBreaker.Enable && c.controller() != types.DeploymentControllerTypeEcs,
					"Deployment circuit breaker feature can only be enabled with ECS deployment controller.")
			}, false,
		},
		{
			"the alarms of another controller", "guide deployment-failure-detection",
			func(c change) string {
				return when(c.alarmed() && c.controller() != types.DeploymentControllerTypeEcs, "Deployment alarms can only be enabled with ECS deployment controller.")
			}, false,
		},
		{
			"alarms without names", "API DeploymentAlarms, alarmNames",
			func(c change) string {
				return when(c.alarmed() && len(c.base.DeploymentConfiguration.Alarms.AlarmNames) == 0, "Alarm names are required when deployment alarms are enabled.")
			}, false,
		},
	}
}

func (c change) alarmed() bool {
	alarms := c.base.DeploymentConfiguration.Alarms
	return alarms != nil && alarms.Enable
}

func (c change) hasHook(property func(types.DeploymentLifecycleHook) bool) bool {
	return slices.ContainsFunc(c.configuration().LifecycleHooks, property)
}

// outside reports whether a percentage is not between the least one and 100.
func outside(percent *float64, least float64) bool {
	return percent != nil && (*percent < least || *percent > 100)
}

func tooLong(minutes *int32) bool { return minutes != nil && (*minutes < 0 || *minutes > maxMinutes) }

// otherRefusals are the rest.
func otherRefusals() []refusal {
	return []refusal{
		{
			"the token", "API CreateService, clientToken",
			func(c change) string {
				return when(c.create != nil && (len(text(c.create.ClientToken)) > maxToken || strings.ContainsFunc(text(c.create.ClientToken), func(r rune) bool { return r < '!' || r > '~' })),
					"The client token must be at most %d ASCII characters, without spaces.", maxToken)
			}, false,
		},
		{
			"a role without a balancer", "API CreateService, role",
			func(c change) string {
				return when(c.create != nil && c.create.Role != nil && len(c.shape.balancers) == 0, "If you specify the role parameter, you must also specify a load balancer.")
			}, false,
		},
		{
			"a role with awsvpc", "API CreateService, role",
			func(c change) string {
				return when(c.create != nil && c.create.Role != nil && c.defines(awsvpc), "You cannot specify an IAM role for services that require a service linked role.")
			}, false,
		},
		{
			"exec without a task role", "seen in aws/aws-toolkit-jetbrains#3649, docker-archive/compose-cli#2120",
			func(c change) string {
				done := "created"
				if c.update != nil {
					done = "updated"
				}
				return when(c.base.EnableExecuteCommand && c.lacks(func(d *types.TaskDefinition) bool { return text(d.TaskRoleArn) != "" }),
					"The service couldn't be %s because a valid taskRoleArn is not being used. Specify a valid task role in your task definition and try again.", done)
			}, false,
		},
		{
			"volumes of a daemon", "API UpdateService, volumeConfigurations",
			func(c change) string {
				return when(c.daemon() && len(c.shape.volumes) > 0, "volumeConfigurations is only supported for REPLICA service and not DAEMON service.")
			}, false,
		},
		{
			"a volume that is not defined", "API ServiceVolumeConfiguration, name",
			func(c change) string {
				return when(slices.ContainsFunc(c.shape.volumes, func(v types.ServiceVolumeConfiguration) bool {
					return c.lacks(func(d *types.TaskDefinition) bool {
						return slices.ContainsFunc(d.Volumes, func(o types.Volume) bool { return text(o.Name) == text(v.Name) && aws.ToBool(o.ConfiguredAtLaunch) })
					})
				}), "The name of a volume must match that of a volume of the task definition with configuredAtLaunch.")
			}, false,
		},
	}
}
