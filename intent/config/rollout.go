package config

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Rollout is the policy by which a release progresses through the instances of a channel.
type Rollout struct {
	// The numbers of updated instances and the pauses, in sequence. The remaining instances follow the last step.
	Steps []RolloutStep `json:"steps,omitempty"`
	// The maximum number of unavailable instances, as a number or a percentage, which is rounded down; at least 1. An instance that is
	// already unavailable may always be updated.
	MaxUnavailable *Amount `json:"maxUnavailable,omitempty"`
	// A program and its arguments that select the next instances, instead of steps. It starts in the directory of this file, without a
	// shell.
	Command []string `json:"command,omitempty"`
	// Environment variables for the command.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// The timeout of the command.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=30s"`
}

// RolloutStep has exactly one of its fields.
type RolloutStep struct {
	// The number of updated instances after this step, including those of earlier steps: a number, or a percentage, which is rounded up.
	Instances *Amount `json:"instances,omitempty"`
	// How long the updated instances must have been stable.
	Pause Duration `json:"pause,omitempty"`
}

// ConfigRollout is the policy by which a change of configuration progresses through the services of the application.
type ConfigRollout struct {
	// The numbers of updated services and the pauses, in sequence. The remaining services follow the last step.
	Steps []ConfigRolloutStep `json:"steps"`
	// After this number of services have failed with an incarnation, or were rolled back from it, no more services get it.
	MaxFailures *int `json:"maxFailures,omitempty" jsonschema:"default=1,minimum=1"`
}

// ConfigRolloutStep has exactly one of its fields.
type ConfigRolloutStep struct {
	// The number of updated services after this step, including those of earlier steps: a number, or a percentage, which is rounded up.
	Services *Amount `json:"services,omitempty"`
	// The minimum time since the change succeeded in the updated services.
	Pause Duration `json:"pause,omitempty"`
}

// Amount is a number of instances or services, or a percentage of them.
type Amount entities.Amount

// AmountPattern is the pattern of a percentage, for the JSON schema.
const AmountPattern = `^([1-9][0-9]?|100)%$`

// Wanted describes the allowed values.
func (Amount) Wanted() string {
	return `a number, at least 1, or a percentage such as "25%"`
}

// DecodeStrict decodes either form.
func (a *Amount) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	value, _ := strict.Scalar(node)
	switch v := value.(type) {
	case int64:
		if v >= 1 && v <= 1_000_000 {
			a.Number = int(v)
			return
		}
		d.Fail(path, node, Fault{Code: "bad-value", Message: "this is " + strconv.FormatInt(v, 10), Expected: a.Wanted()})
		return
	case string:
		number, percent := strings.CutSuffix(v, "%")
		if n, err := strconv.ParseUint(number, 10, 8); percent && err == nil && n >= 1 && n <= 100 && number[0] != '0' {
			a.Percent = int(n)
			return
		}
	}
	d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: a.Wanted()})
}
