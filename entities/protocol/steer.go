package protocol

import "time"

// SteerRequest promotes or aborts the rollouts of an instance (H3). A rollout is skipped if it now has another version, or no longer
// waits at the same step.
type SteerRequest struct {
	Application   string        `json:"application"`
	Service       string        `json:"service"`
	ServiceID     string        `json:"serviceId"`
	Runtime       string        `json:"runtime"`
	RuntimeDigest string        `json:"runtimeDigest"`
	Instance      InstanceRef   `json:"instance"`
	Timeout       time.Duration `json:"timeout"`
	Action        string        `json:"way"` // promote, abort, return
	Full          bool          `json:"full,omitempty"`
	At            string        `json:"at,omitempty"` // where it waits
}

// SteerAnswer lists the results, a line for each rollout, or the reason why nothing was possible.
type SteerAnswer struct {
	Actions []string `json:"did,omitempty"`
	Err     string   `json:"err,omitempty"`
}
