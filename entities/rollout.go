package entities

import (
	"fmt"
	"strings"
	"time"
)

// Rollout is the policy by which a release reaches the instances of a channel (D24). Without one it goes to all at once.
type Rollout struct {
	Steps []RolloutStep `json:"steps,omitempty"`
	// MaxUnavailable limits how many instances may be unstable at once; nil: no limit.
	MaxUnavailable *Amount `json:"maxUnavailable,omitempty"`
	// Command selects instances instead of steps. It is stored as declared, and runs by the definition of the channel's check of kind
	// selection.
	Command []string `json:"command,omitempty"`
}

// ByCommand reports whether a user's command selects the next instances.
func (r *Rollout) ByCommand() bool { return r != nil && len(r.Command) > 0 }

// ConfigRollout is the policy by which a change of configuration reaches the services of an application. The instances of its steps are
// services.
type ConfigRollout struct {
	Steps []RolloutStep `json:"steps"`
	// MaxFailures: once this many services have failed with an incarnation, no further service gets it. At least 1.
	MaxFailures int `json:"maxFailures"`
}

// RolloutStep is either a number of instances to update, or a pause after the updated instances are stable.
type RolloutStep struct {
	Instances *Amount       `json:"instances,omitempty"`
	Pause     time.Duration `json:"pause,omitempty"`
}

// Amount is a number of instances or services, or a percentage of them.
type Amount struct {
	Number  int `json:"number,omitempty"`
	Percent int `json:"percent,omitempty"` // 1 to 100
}

// String returns the policy in one line: "1, pause 10m, 25%; at most 2 unavailable", or "the selection of ./select.sh".
func (r *Rollout) String() string {
	if r == nil {
		return "all at once"
	}
	var steps []string
	for _, s := range r.Steps {
		if s.Instances == nil {
			steps = append(steps, "pause "+Length(s.Pause))
			continue
		}
		steps = append(steps, s.Instances.String())
	}
	text := strings.Join(steps, ", ")
	if r.ByCommand() {
		text = "the selection of " + Clip(strings.Join(r.Command, " "), 80)
	}
	if r.MaxUnavailable == nil {
		return text
	}
	if text != "" {
		text += "; "
	}
	return text + "at most " + r.MaxUnavailable.String() + " unavailable"
}

// Of returns the amount of n instances, at least 1 and at most n. A percentage to update is rounded up, a percentage that may be
// unavailable is rounded down, as in Kubernetes.
func (a Amount) Of(n int, up bool) int {
	of := a.Number
	if a.Percent > 0 {
		of = n * a.Percent
		if up {
			of += 99
		}
		of /= 100
	}
	return min(n, max(1, of))
}

// String returns the amount as declared.
func (a Amount) String() string {
	if a.Percent > 0 {
		return fmt.Sprintf("%d%%", a.Percent)
	}
	return fmt.Sprint(a.Number)
}
