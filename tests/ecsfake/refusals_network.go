package ecsfake

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

const (
	maxSubnets        = 16
	maxSecurityGroups = 5
)

// networkRefusals are those of the network configuration.
func networkRefusals() []refusal {
	return []refusal{
		{
			"no network", "API CreateService, networkConfiguration",
			func(c change) string {
				return when(c.shape.network == nil && c.defines(awsvpc), "Network Configuration must be provided when networkMode 'awsvpc' is specified.")
			}, true,
		},
		{
			"a network without awsvpc", "API CreateService, networkConfiguration",
			func(c change) string {
				return when(c.shape.network != nil && c.lacks(awsvpc), "Network Configuration is not valid for the given networkMode of this task definition.")
			}, true,
		},
		{
			"no subnets", "API AwsVpcConfiguration, subnets",
			func(c change) string {
				return when(c.shape.network != nil && len(c.vpc().Subnets) == 0, "subnets can not be empty.")
			}, true,
		},
		{
			"too many subnets", "API AwsVpcConfiguration, subnets",
			func(c change) string {
				return when(len(c.vpc().Subnets) > maxSubnets, "subnets can have at most %d items.", maxSubnets)
			}, true,
		},
		{
			"too many security groups", "API AwsVpcConfiguration, securityGroups",
			func(c change) string {
				return when(len(c.vpc().SecurityGroups) > maxSecurityGroups, "securityGroups can have at most %d items.", maxSecurityGroups)
			}, true,
		},
		{
			"a public address not on Fargate", "seen in aws/amazon-ecs-cli#627, nathanpeck/socket.io-chat-fargate#3",
			func(c change) string {
				return when(c.vpc().AssignPublicIp == types.AssignPublicIpEnabled && !c.shape.fargate(), "Assign public IP is not supported for this launch type.")
			}, true,
		},
	}
}

// connectionRefusals are those of load balancers, service discovery and Service Connect.
func connectionRefusals() []refusal {
	return []refusal{
		{
			"a grace period without a check", "API CreateService, healthCheckGracePeriodSeconds",
			func(c change) string {
				return when(aws.ToInt32(c.base.HealthCheckGracePeriodSeconds) > 0 && c.shape.definition != nil && !c.shape.checkedHealth(),
					"Health check grace period is only valid for services configured to use load balancers")
			}, false,
		},
		{
			"a negative grace period", "API CreateService, healthCheckGracePeriodSeconds",
			func(c change) string {
				return when(aws.ToInt32(c.base.HealthCheckGracePeriodSeconds) < 0, "Health check grace period must be zero or more.")
			}, false,
		},
		{"the container of a balancer", "API LoadBalancer, containerName", change.unknownContainer, false},
		{"the port of a balancer", "API LoadBalancer, containerPort", change.unknownPort, false},
		{
			"a balancer that is not named once", "API CreateService, loadBalancers",
			func(c change) string {
				return when(c.hasBalancer(func(b types.LoadBalancer) bool {
					return (text(b.TargetGroupArn) == "") == (text(b.LoadBalancerName) == "")
				}),
					"A load balancer needs either a targetGroupArn or a loadBalancerName.")
			}, false,
		},
		{
			"a classic balancer with awsvpc", "API CreateService, loadBalancers",
			func(c change) string {
				return when(c.defines(awsvpc) && c.hasBalancer(func(b types.LoadBalancer) bool { return text(b.LoadBalancerName) != "" }),
					"Classic Load Balancers aren't supported with network mode awsvpc.")
			}, false,
		},
		{
			"a balancer outside of AWS", "guide ecs-anywhere",
			func(c change) string {
				return when(c.shape.launchType == types.LaunchTypeExternal && len(c.shape.balancers)+len(c.shape.registries) > 0,
					"Load balancers and service discovery are not supported with launch type EXTERNAL.")
			}, false,
		},
		{
			"several registries", "API CreateService, serviceRegistries",
			func(c change) string {
				return when(len(c.shape.registries) > 1, "Multiple service registries for each service isn't supported.")
			}, false,
		},
		{
			"two ports of a registry", "API ServiceRegistry, containerPort",
			func(c change) string {
				return when(slices.ContainsFunc(c.shape.registries, func(r types.ServiceRegistry) bool {
					return r.Port != nil && (r.ContainerName != nil || r.ContainerPort != nil)
				}),
					"You can't specify both a port and a containerName and containerPort combination.")
			}, false,
		},
		{
			"a port without a name", "API ServiceConnectService, portName",
			func(c change) string {
				return when(c.hasEndpoint(func(s types.ServiceConnectService) bool {
					return c.lacks(func(d *types.TaskDefinition) bool { return hasPort(d, text(s.PortName)) })
				}), "The portName of Service Connect must match the name of a port mapping in the task definition.")
			}, false,
		},
		{
			"several aliases", "API ServiceConnectService, clientAliases",
			func(c change) string {
				return when(c.hasEndpoint(func(s types.ServiceConnectService) bool { return len(s.ClientAliases) > 1 }), "The maximum number of client aliases is 1.")
			}, false,
		},
	}
}

func (c change) hasBalancer(property func(types.LoadBalancer) bool) bool {
	return slices.ContainsFunc(c.shape.balancers, property)
}

func (c change) hasEndpoint(property func(types.ServiceConnectService) bool) bool {
	return c.shape.connect != nil && c.shape.connect.Enabled && slices.ContainsFunc(c.shape.connect.Services, property)
}

func hasPort(d *types.TaskDefinition, name string) bool {
	return slices.ContainsFunc(d.ContainerDefinitions, func(c types.ContainerDefinition) bool {
		return slices.ContainsFunc(c.PortMappings, func(p types.PortMapping) bool { return text(p.Name) == name })
	})
}

func (c change) unknownContainer() string {
	for _, b := range c.shape.balancers {
		if c.lacks(func(d *types.TaskDefinition) bool { return containerOf(d, b) != nil }) {
			return when(true, "The container %s does not exist in the task definition.", text(b.ContainerName))
		}
	}
	return ""
}

func (c change) unknownPort() string {
	for _, b := range c.shape.balancers {
		if c.lacks(func(d *types.TaskDefinition) bool {
			container := containerOf(d, b)
			return container == nil || slices.ContainsFunc(container.PortMappings, func(p types.PortMapping) bool { return aws.ToInt32(p.ContainerPort) == aws.ToInt32(b.ContainerPort) })
		}) {
			return when(true, "The container %s did not have a container port %d defined.", text(b.ContainerName), aws.ToInt32(b.ContainerPort))
		}
	}
	return ""
}

// containerOf is the container behind a load balancer, or nil.
func containerOf(d *types.TaskDefinition, b types.LoadBalancer) *types.ContainerDefinition {
	i := slices.IndexFunc(d.ContainerDefinitions, func(c types.ContainerDefinition) bool { return text(c.Name) == text(b.ContainerName) })
	if i < 0 {
		return nil
	}
	return &d.ContainerDefinitions[i]
}
