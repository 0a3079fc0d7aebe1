package protocol

import "time"

// Configured answers a Service's configured query: how far it is with the configuration of an incarnation.
type Configured struct {
	Service string `json:"service"`        // workflow id
	Spec    string `json:"spec,omitempty"` // digest of the rules in force
	// Release is the id of the newest release that the incarnation created automatically; "": none.
	Release string `json:"release,omitempty"`
	// Waiting: it has not entered its first channel yet.
	Waiting bool `json:"waits,omitempty"`
	// HoldReason says why it could not enter even at its turn; "": it could.
	HoldReason string `json:"held,omitempty"`
	// Entered: some release of the incarnation has entered a channel. Succeeded, Failed: the newest of these has in one. Since is when.
	Entered   bool      `json:"entered,omitempty"`
	Succeeded bool      `json:"succeeded,omitempty"`
	Failed    bool      `json:"failed,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Opening: the release of the incarnation is being created.
	Opening bool `json:"opening,omitempty"`
	// Behind: it uses another configuration than the one of its application. Err says why it did not answer. Neither is part of an answer.
	Behind bool   `json:"behind,omitempty"`
	Err    string `json:"err,omitempty"`
}
