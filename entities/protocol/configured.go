package protocol

import "time"

// Configured answers a Service's configured query: how far it is with the configuration of an incarnation.
type Configured struct {
	Service string `json:"service"`        // workflow id
	Spec    string `json:"spec,omitempty"` // digest of the rules in force
	// Release is the id of the newest release that the incarnation made by itself; "": none.
	Release string `json:"release,omitempty"`
	// Waits: it is still to enter its first channel.
	Waits bool `json:"waits,omitempty"`
	// Held says why it cannot, where that is nothing that it can wait for its turn with; "": it can.
	Held string `json:"held,omitempty"`
	// Entered: some release of the incarnation has entered a channel; the newest such has Succeeded in one, or Failed. Since when.
	Entered   bool      `json:"entered,omitempty"`
	Succeeded bool      `json:"succeeded,omitempty"`
	Failed    bool      `json:"failed,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	// Opening: the release of the incarnation is just being made.
	Opening bool `json:"opening,omitempty"`
	// Behind: it goes by another configuration than its application tells it to. Err says why it could not be asked. Neither is
	// answered.
	Behind bool   `json:"behind,omitempty"`
	Err    string `json:"err,omitempty"`
}
