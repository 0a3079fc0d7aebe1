package ecs

import (
	"slices"
	"strings"

	"github.com/converge-engine/converge/runtimes"
)

// deployingFields are the fields of UpdateService whose change starts a deployment, which replaces the tasks (API reference, UpdateService).
var deployingFields = []string{
	"taskDefinition", "forceNewDeployment", "capacityProviderStrategy", "networkConfiguration", "platformVersion", "loadBalancers", "serviceRegistries",
	"serviceConnectConfiguration", "volumeConfigurations", "vpcLatticeConfigurations",
}

// replacedTasks is the replacement of a service's tasks by a change of some fields; nil: they stay.
func replacedTasks(fields []string) *runtimes.Replacement {
	var causes []string
	for _, name := range fields {
		if slices.Contains(deployingFields, name) {
			causes = append(causes, name)
		}
	}
	switch len(causes) {
	case 0:
		return nil
	case 1:
		return &runtimes.Replacement{What: "tasks", Why: causes[0] + " changes"}
	}
	last := len(causes) - 1
	return &runtimes.Replacement{What: "tasks", Why: strings.Join(causes[:last], ", ") + " and " + causes[last] + " change"}
}
