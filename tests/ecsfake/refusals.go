package ecsfake

import (
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"
)

// refusal is a condition under which CreateService, UpdateService or RunTask is refused, with AWS's code InvalidParameterException.
type refusal struct {
	name string
	// source is where AWS says so: "API X" and "guide X" are pages as in the comment of the package; "seen in X" is an answer of AWS that
	// public threads quote.
	source string
	// message is the text of the refusal; "": the request is fine. Only that of a row that was seen has AWS's wording.
	message func(change) string
	tasks   bool // RunTask is refused too
}

// change is a service as a request would make it. Of a RunTask it has only the cluster and the shape.
type change struct {
	*service
	before *service // nil: it does not exist yet
	// create or update is the request; neither is set for a RunTask.
	create *ecs.CreateServiceInput
	update *ecs.UpdateServiceInput
}

// refused returns the first refusal of a change, in the order of the table.
func (c change) refused() error {
	for _, r := range refusals() {
		if c.create == nil && c.update == nil && !r.tasks {
			continue
		}
		if message := r.message(c); message != "" {
			return invalid("%s", message)
		}
	}
	return nil
}

// Refusals returns the source of each condition under which the fake refuses a service or a task, by its name.
func Refusals() map[string]string {
	out := map[string]string{}
	for _, r := range refusals() {
		out[r.name] = r.source
	}
	return out
}

func refusals() []refusal {
	return slices.Concat(capacityRefusals(), fargateRefusals(), placementRefusals(), countRefusals(), percentRefusals(), configurationRefusals(), hookRefusals(), networkRefusals(), connectionRefusals(), otherRefusals())
}

// when returns the message if the condition holds.
func when(condition bool, message string, args ...any) string {
	if !condition {
		return ""
	}
	return fmt.Sprintf(message, args...)
}

// configuration is the deployment configuration in the request, or an empty one.
func (c change) configuration() types.DeploymentConfiguration {
	var given *types.DeploymentConfiguration
	switch {
	case c.create != nil:
		given = c.create.DeploymentConfiguration
	case c.update != nil:
		given = c.update.DeploymentConfiguration
	}
	if given == nil {
		return types.DeploymentConfiguration{}
	}
	return *given
}

// vpc is the network configuration, or an empty one.
func (c change) vpc() types.AwsVpcConfiguration {
	if n := c.shape.network; n != nil && n.AwsvpcConfiguration != nil {
		return *n.AwsvpcConfiguration
	}
	return types.AwsVpcConfiguration{}
}

// defines reports whether the task definition has a property; without a task definition, as of the controller EXTERNAL, nothing is known.
func (c change) defines(has func(*types.TaskDefinition) bool) bool {
	return c.shape.definition != nil && has(&c.shape.definition.view)
}

// lacks is the opposite of defines.
func (c change) lacks(has func(*types.TaskDefinition) bool) bool {
	return c.shape.definition != nil && !has(&c.shape.definition.view)
}

func awsvpc(d *types.TaskDefinition) bool { return d.NetworkMode == types.NetworkModeAwsvpc }

func supports(what types.Compatibility) func(*types.TaskDefinition) bool {
	return func(d *types.TaskDefinition) bool { return slices.Contains(d.Compatibilities, what) }
}
