package ecsfake

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// checkService refuses input that API CreateService does not allow.
func (s *Server) checkService(v *service, in *ecs.CreateServiceInput) error {
	if err := modelledConfiguration(in.DeploymentConfiguration); err != nil {
		return err
	}
	if err := checkTags(nil, in.Tags); err != nil {
		return err
	}
	return change{service: v, create: in}.refused()
}

// modelledConfiguration refuses fields that the fake would otherwise drop silently.
func modelledConfiguration(c *types.DeploymentConfiguration) error {
	if c != nil && c.EarlySuccessCriteria != nil {
		return refuse("UnsupportedFeatureException", "early success is not modelled by this fake")
	}
	return nil
}

func (a shape) fargate() bool {
	return a.launchType == types.LaunchTypeFargate || slices.ContainsFunc(a.strategy, onFargate)
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
