package config

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Rollout is the policy by which a release goes through the instances of a channel.
type Rollout struct {
	// How many instances are updated, and how long is waited, one after the other. What the last one leaves follows it.
	Steps []RolloutStep `json:"steps,omitempty"`
	// How many instances may be unavailable at once, as a number or a percentage, which is rounded down; at least 1. One that
	// is unavailable already may be updated all the same.
	MaxUnavailable *Amount `json:"maxUnavailable,omitempty"`
	// A program and its arguments that say which instances are next, instead of steps. It starts in the directory of this
	// file, without a shell.
	Command []string `json:"command,omitempty"`
	// Environment variables for the command.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// How long the command may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=30s"`
}

// RolloutStep is one of its fields.
type RolloutStep struct {
	// So many instances are updated once the step is done, those of the steps before included: a number, or a percentage,
	// which is rounded up.
	Instances *Amount `json:"instances,omitempty"`
	// How long those that are updated so far must have been stable.
	Pause Duration `json:"pause,omitempty"`
}

// ConfigRollout is the policy by which a change of configuration goes through the services of the application.
type ConfigRollout struct {
	// How many services get it, and how long is waited, one after the other. What the last one leaves follows it.
	Steps []ConfigRolloutStep `json:"steps"`
	// Once so many services have failed with an incarnation, or were rolled back from it, no further one gets it.
	MaxFailures *int `json:"maxFailures,omitempty" jsonschema:"default=1,minimum=1"`
}

// ConfigRolloutStep is one of its fields.
type ConfigRolloutStep struct {
	// So many services have it once the step is done, those of the steps before included: a number, or a percentage, which is
	// rounded up.
	Services *Amount `json:"services,omitempty"`
	// How long ago it must have succeeded in those that have it so far.
	Pause Duration `json:"pause,omitempty"`
}

// Amount is a number of instances or services, or a percentage of them.
type Amount entities.Amount

// AmountPattern is that of a percentage, for the JSON schema.
const AmountPattern = `^([1-9][0-9]?|100)%$`

// Wanted words what may stand in the file.
func (Amount) Wanted() string {
	return `a number, at least 1, or a percentage such as "25%"`
}

// DecodeStrict reads either form.
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
