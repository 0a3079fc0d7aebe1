package ecsfake

import (
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// checkDefinition refuses input that API RegisterTaskDefinition does not allow, as far as the tests need it.
func checkDefinition(in *ecs.RegisterTaskDefinitionInput) error {
	if in.Family == nil || !nameForm.MatchString(*in.Family) {
		return client("Family should be between 1 and 255 letters, numbers, hyphens and underscores.")
	}
	if len(in.ContainerDefinitions) == 0 {
		return client("Container list cannot be empty.")
	}
	names := map[string]bool{}
	for _, c := range in.ContainerDefinitions {
		if names[text(c.Name)] {
			return client("Container names must be unique: %s", text(c.Name))
		}
		names[text(c.Name)] = true
		if err := checkContainer(in, c); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(in.ContainerDefinitions, func(c types.ContainerDefinition) bool { return c.Essential == nil || *c.Essential }) {
		return client("A task definition must have at least one essential container.")
	}
	if slices.Contains(in.RequiresCompatibilities, types.CompatibilityFargate) {
		if err := checkFargate(in); err != nil {
			return err
		}
	}
	return checkTags(nil, in.Tags)
}

func checkContainer(in *ecs.RegisterTaskDefinitionInput, c types.ContainerDefinition) error {
	name := text(c.Name)
	switch {
	case !nameForm.MatchString(name):
		return client("Container.name contains invalid characters.")
	case text(c.Image) == "":
		return client("Container.image should not be null or empty.")
	case c.Memory == nil && c.MemoryReservation == nil && in.Memory == nil:
		return client("Invalid setting for container '%s'. At least one of 'memory' or 'memoryReservation' must be specified.", name)
	case c.Memory != nil && c.MemoryReservation != nil && *c.Memory < *c.MemoryReservation:
		return client("Invalid setting for container '%s'. 'memory' must be at least 'memoryReservation'.", name)
	}
	for _, p := range c.PortMappings {
		if in.NetworkMode == types.NetworkModeAwsvpc && p.HostPort != nil && *p.HostPort != aws.ToInt32(p.ContainerPort) {
			return client("When networkMode=awsvpc, the host ports and container ports in port mappings must match.")
		}
	}
	for _, dependency := range c.DependsOn {
		if !slices.ContainsFunc(in.ContainerDefinitions, func(o types.ContainerDefinition) bool { return text(o.Name) == text(dependency.ContainerName) }) {
			return client("Invalid dependsOn for container '%s': there is no container '%s'.", name, text(dependency.ContainerName))
		}
	}
	return nil
}

// checkFargate refuses a definition that cannot run on Fargate (API RegisterTaskDefinition, cpu and memory; guide
// fargate-tasks-services).
func checkFargate(in *ecs.RegisterTaskDefinitionInput) error {
	if in.NetworkMode != types.NetworkModeAwsvpc {
		return client("Fargate only supports network mode ‘awsvpc’.")
	}
	if in.Cpu == nil || in.Memory == nil {
		return client("Fargate requires that 'cpu' and 'memory' be defined at the task level.")
	}
	cpu, _ := strconv.Atoi(*units(in.Cpu, "vcpu"))
	memory, _ := strconv.Atoi(*units(in.Memory, "gb"))
	if !sized(cpu, memory) {
		return client("No Fargate configuration exists for given values: %d CPU, %d memory. See the Amazon ECS documentation for the valid values.", cpu, memory)
	}
	return nil
}

// sized implements Fargate's table: for each number of CPU units, the minimum, maximum and step of the memory in GB.
func sized(cpu, memory int) bool {
	table := map[int][3]int{512: {1, 4, 1}, 1024: {2, 8, 1}, 2048: {4, 16, 1}, 4096: {8, 30, 1}, 8192: {16, 60, 4}, 16384: {32, 120, 8}}
	if cpu == 256 {
		return memory == 512 || memory == 1024 || memory == 2048
	}
	row, ok := table[cpu]
	return ok && memory%1024 == 0 && memory/1024 >= row[0] && memory/1024 <= row[1] && (memory/1024-row[0])%row[2] == 0
}
