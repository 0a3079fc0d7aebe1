package protocol

import "time"

// SteerRequest has the rollouts of an instance go on, or go back (H3). A rollout that is of another version by now, or does not wait
// at what it waited at, is left alone.
type SteerRequest struct {
	Application   string        `json:"application"`
	Service       string        `json:"service"`
	ServiceID     string        `json:"serviceId"`
	Runtime       string        `json:"runtime"`
	RuntimeDigest string        `json:"runtimeDigest"`
	Instance      InstanceRef   `json:"instance"`
	Timeout       time.Duration `json:"timeout"`
	Way           string        `json:"way"` // promote, abort
	Full          bool          `json:"full,omitempty"`
	At            string        `json:"at,omitempty"` // at what it waits
}

// SteerAnswer says what was done, a line for each rollout, or why nothing could be.
type SteerAnswer struct {
	Did []string `json:"did,omitempty"`
	Err string   `json:"err,omitempty"`
}
