package ecsfake

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// checkService refuses input that API CreateService does not allow, as far as the tests need it.
func (s *Server) checkService(v *service, in *ecs.CreateServiceInput) error {
	if in.ClientToken != nil && len(*in.ClientToken) > 36 {
		return invalid("The client token must be at most 36 characters.")
	}
	if err := modelledConfiguration(in.DeploymentConfiguration); err != nil {
		return err
	}
	switch {
	case v.daemon() && in.DesiredCount != nil:
		return invalid("The daemon scheduling strategy does not support a desired count for services. Remove the desired count value and try again.")
	case !v.daemon() && in.DesiredCount == nil && v.controller() != types.DeploymentControllerTypeExternal:
		return invalid("Desired count is required for the replica scheduling strategy.")
	case v.daemon() && v.controller() != types.DeploymentControllerTypeEcs:
		return invalid("The daemon scheduling strategy is only supported with the ECS deployment controller.")
	case v.controller() == types.DeploymentControllerTypeCodeDeploy && len(in.LoadBalancers) == 0:
		return invalid("A load balancer is required for the CODE_DEPLOY deployment controller.")
	}
	if err := checkTags(nil, in.Tags); err != nil {
		return err
	}
	return s.checkShape(v)
}

// modelledConfiguration refuses fields that the fake would otherwise drop silently.
func modelledConfiguration(c *types.DeploymentConfiguration) error {
	if c != nil && c.EarlySuccessCriteria != nil {
		return refuse("UnsupportedFeatureException", "early success is not modelled by this fake")
	}
	return nil
}

// checkShape refuses a service with inconsistent parts.
func (s *Server) checkShape(v *service) error {
	if v.desired < 0 {
		return invalid("Desired count must be zero or more.")
	}
	if err := v.checkConfiguration(); err != nil {
		return err
	}
	d := v.shape.definition
	if d == nil {
		return nil
	}
	if err := v.shape.fits(d); err != nil {
		return err
	}
	switch {
	case v.shape.fargate() && v.daemon():
		return invalid("The daemon scheduling strategy is not supported on Fargate.")
	case v.base.HealthCheckGracePeriodSeconds != nil && *v.base.HealthCheckGracePeriodSeconds > 0 && !v.shape.checkedHealth():
		return invalid("Health check grace period is only valid for services configured to use load balancers")
	}
	return checkBalancers(d, v.shape.balancers)
}

// fits refuses a definition that cannot run with this shape.
func (a shape) fits(d *definition) error {
	vpc := d.view.NetworkMode == types.NetworkModeAwsvpc
	switch {
	case a.launchType != "" && len(a.strategy) > 0:
		return invalid("Specifying both a launch type and capacity provider strategy is not supported. Remove one and try again.")
	case a.fargate() && !slices.Contains(d.view.Compatibilities, types.CompatibilityFargate):
		return invalid("Task definition does not support launch_type FARGATE.")
	case vpc && a.network == nil:
		return invalid("Network Configuration must be provided when networkMode 'awsvpc' is specified.")
	case !vpc && a.network != nil:
		return invalid("Network Configuration is not valid for the given networkMode of this task definition.")
	}
	return nil
}

// checkConfiguration refuses a deployment configuration that API DeploymentConfiguration does not allow, or that is not modelled.
func (v *service) checkConfiguration() error {
	c := v.base.DeploymentConfiguration
	low, high := aws.ToInt32(c.MinimumHealthyPercent), aws.ToInt32(c.MaximumPercent)
	switch {
	case low < 0 || low > 100 || high < 1 || high > 200:
		return invalid("minimumHealthyPercent must be between 0 and 100, maximumPercent between 1 and 200.")
	case v.daemon() && high > 100 && low > 0:
		return invalid("The daemon scheduling strategy does not support values above 100 for maximumPercent with minimumHealthyPercent above 0.")
	case c.Strategy != types.DeploymentStrategyBlueGreen && v.shifts() && len(v.shape.balancers) == 0 && v.shape.connect == nil:
		return invalid("The %s deployment strategy needs a load balancer or Service Connect.", c.Strategy)
	case c.Strategy == types.DeploymentStrategyBlueGreen && c.BakeTimeInMinutes == nil:
		return invalid("bakeTimeInMinutes is required with the BLUE_GREEN deployment strategy.")
	}
	return checkDetection(c, v.controller())
}

// checkDetection refuses a breaker or alarms that have no effect (guide deployment-failure-detection).
func checkDetection(c *types.DeploymentConfiguration, controller types.DeploymentControllerType) error {
	ours := controller == types.DeploymentControllerTypeEcs
	switch alarmed := c.Alarms != nil && c.Alarms.Enable; {
	case c.DeploymentCircuitBreaker.Enable && !ours:
		return invalid("Deployment circuit breaker feature can only be enabled with ECS deployment controller.")
	case alarmed && !ours:
		return invalid("Deployment alarms can only be enabled with ECS deployment controller.")
	case alarmed && len(c.Alarms.AlarmNames) == 0:
		return invalid("Alarm names are required when deployment alarms are enabled.")
	}
	return nil
}

func checkBalancers(d *definition, balancers []types.LoadBalancer) error {
	for _, b := range balancers {
		i := slices.IndexFunc(d.view.ContainerDefinitions, func(c types.ContainerDefinition) bool { return text(c.Name) == text(b.ContainerName) })
		if i < 0 {
			return invalid("The container %s does not exist in the task definition.", text(b.ContainerName))
		}
		ports := d.view.ContainerDefinitions[i].PortMappings
		if !slices.ContainsFunc(ports, func(p types.PortMapping) bool { return aws.ToInt32(p.ContainerPort) == aws.ToInt32(b.ContainerPort) }) {
			return invalid("The container %s did not have a container port %d defined.", text(b.ContainerName), aws.ToInt32(b.ContainerPort))
		}
	}
	return nil
}

func (a shape) fargate() bool {
	return a.launchType == types.LaunchTypeFargate ||
		slices.ContainsFunc(a.strategy, func(i types.CapacityProviderStrategyItem) bool {
			return text(i.CapacityProvider) == "FARGATE" || text(i.CapacityProvider) == "FARGATE_SPOT"
		})
}

// checkedHealth reports whether a load balancer or a container's own check detects an unhealthy task.
func (a shape) checkedHealth() bool {
	return len(a.balancers) > 0 || a.definition != nil && a.definition.checkedHealth()
}

// checkedHealth reports whether an essential container has a health check (API DeploymentConfiguration, minimumHealthyPercent).
func (d *definition) checkedHealth() bool {
	return slices.ContainsFunc(d.view.ContainerDefinitions, func(c types.ContainerDefinition) bool {
		return c.HealthCheck != nil && aws.ToBool(c.Essential)
	})
}
