package ecs

import (
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

const (
	fieldStrategy   = "capacityProviderStrategy"
	fieldLaunchType = "launchType"
	fieldForce      = "forceNewDeployment"
)

// replacesTasks is what a plan says about a change of capacity providers.
const replacesTasks = "ECS changes " + fieldStrategy + " only with a new deployment: all tasks are replaced"

// leavesStrategy reports whether a service goes back from capacity providers to its launch type, for example in a rollback: UpdateService has
// no launchType, but an empty strategy means that of the service.
func (d *declared) leavesStrategy(s *types.Service) bool {
	wanted, _ := d.serviceFields[fieldLaunchType].(string)
	return wanted != "" && d.serviceFields[fieldStrategy] == nil && s.LaunchType == "" && len(s.CapacityProviderStrategy) > 0
}

// throughStrategy replaces launchType, which UpdateService does not have, by the strategy among the names of the fields that differ.
func (d *declared) throughStrategy(names []string, s *types.Service) []string {
	if !d.leavesStrategy(s) {
		return names
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == fieldLaunchType })
	return append(names, fieldStrategy)
}

// forceIfNeeded forces a new deployment for another strategy, since ECS refuses the update otherwise.
func forceIfNeeded(document map[string]any) {
	strategy, changes := document[fieldStrategy]
	if !changes {
		return
	}
	if strategy == nil {
		document[fieldStrategy] = []any{}
	}
	document[fieldForce] = true
}
