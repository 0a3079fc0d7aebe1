package ecsfake

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

const (
	maxProviders = 20
	maxBase      = 100_000
	maxWeight    = 1000
)

// capacityRefusals are those of launch types and capacity providers.
func capacityRefusals() []refusal {
	return []refusal{
		{
			"launch type and strategy", "API CreateService, launchType",
			func(c change) string {
				return when(c.shape.launchType != "" && len(c.shape.strategy) > 0, "Specifying both a launch type and capacity provider strategy is not supported. Remove one and try again.")
			}, true,
		},
		{
			"another strategy without a forced deployment", "seen in pipe-cd/pipecd#6385, kayac/ecspresso#977, aws/aws-cdk#34631",
			func(c change) string {
				return when(c.update != nil && !c.update.ForceNewDeployment && !sameStrategy(c.before.shape.strategy, c.shape.strategy),
					"When switching from launch type to capacity provider strategy on an existing service, or making a change to a capacity provider strategy on a service that is already using one, you must force a new deployment.")
			}, false,
		},
		{
			"too many providers", "API CreateService, capacityProviderStrategy",
			func(c change) string {
				return when(len(c.shape.strategy) > maxProviders, "A capacity provider strategy can contain a maximum of %d capacity providers.", maxProviders)
			}, true,
		},
		{
			"a provider without a name", "API CapacityProviderStrategyItem, capacityProvider",
			func(c change) string {
				return when(c.hasProvider(func(i types.CapacityProviderStrategyItem) bool { return text(i.CapacityProvider) == "" }), "The capacity provider name cannot be empty.")
			}, true,
		},
		{
			"a provider of another cluster", "seen in dask/dask-cloudprovider#328",
			func(c change) string {
				return when(c.hasProvider(func(i types.CapacityProviderStrategyItem) bool {
					return !slices.Contains(c.cluster.view.CapacityProviders, text(i.CapacityProvider))
				}), "The specified capacity provider strategy cannot contain a capacity provider that is not associated with the cluster. Associate the capacity provider with the cluster or specify a valid capacity provider and try again.")
			}, true,
		},
		{
			"weights", "API CapacityProviderStrategyItem, weight",
			func(c change) string {
				return when(c.hasProvider(func(i types.CapacityProviderStrategyItem) bool { return i.Weight < 0 || i.Weight > maxWeight }), "The weight must be between 0 and %d.", maxWeight)
			}, true,
		},
		{
			"no weight", "API CapacityProviderStrategyItem, weight",
			func(c change) string {
				return when(len(c.shape.strategy) > 0 && !c.hasProvider(func(i types.CapacityProviderStrategyItem) bool { return i.Weight > 0 }),
					"At least one capacity provider must have a weight greater than zero.")
			}, true,
		},
		{
			"bases", "API CapacityProviderStrategyItem, base",
			func(c change) string {
				return when(c.hasProvider(func(i types.CapacityProviderStrategyItem) bool { return i.Base < 0 || i.Base > maxBase }), "The base must be between 0 and %d.", maxBase)
			}, true,
		},
		{
			"two bases", "API CapacityProviderStrategyItem, base",
			func(c change) string {
				based := 0
				for _, i := range c.shape.strategy {
					based += min(int(i.Base), 1)
				}
				return when(based > 1, "Only one capacity provider in a capacity provider strategy can have a base defined.")
			}, true,
		},
	}
}

// fargateRefusals are those of Fargate.
func fargateRefusals() []refusal {
	return []refusal{
		{
			"Fargate with other providers", "guide cluster-capacity-providers",
			func(c change) string {
				return when(c.hasProvider(onFargate) && c.hasProvider(func(i types.CapacityProviderStrategyItem) bool { return !onFargate(i) }),
					"A capacity provider strategy cannot contain both Fargate and Auto Scaling group capacity providers.")
			}, true,
		},
		{
			"a definition not for Fargate", "seen in buildkite-plugins/ecs-deploy-buildkite-plugin#34",
			func(c change) string {
				return when(c.shape.fargate() && c.lacks(supports(types.CompatibilityFargate)), "Task definition does not support launch_type FARGATE.")
			}, true,
		},
		{
			"a daemon on Fargate", "API CreateService, schedulingStrategy",
			func(c change) string {
				return when(c.shape.fargate() && c.daemon(), "The daemon scheduling strategy is not supported on Fargate.")
			}, false,
		},
		{
			"a platform version not on Fargate", "API CreateService, platformVersion",
			func(c change) string {
				return when(c.shape.platform != nil && !c.shape.fargate(), "The platform version must be null when specifying a launch type other than FARGATE.")
			}, true,
		},
	}
}

// hasProvider reports whether the strategy has an item with a property.
func (c change) hasProvider(property func(types.CapacityProviderStrategyItem) bool) bool {
	return slices.ContainsFunc(c.shape.strategy, property)
}

func onFargate(i types.CapacityProviderStrategyItem) bool {
	return text(i.CapacityProvider) == "FARGATE" || text(i.CapacityProvider) == "FARGATE_SPOT"
}

// sameStrategy compares strategies; the order of their providers has no meaning.
func sameStrategy(a, b []types.CapacityProviderStrategyItem) bool {
	sorted := func(all []types.CapacityProviderStrategyItem) []types.CapacityProviderStrategyItem {
		return slices.SortedFunc(slices.Values(all), func(a, b types.CapacityProviderStrategyItem) int {
			return strings.Compare(text(a.CapacityProvider), text(b.CapacityProvider))
		})
	}
	return slices.EqualFunc(sorted(a), sorted(b), func(a, b types.CapacityProviderStrategyItem) bool {
		return text(a.CapacityProvider) == text(b.CapacityProvider) && a.Base == b.Base && a.Weight == b.Weight
	})
}
