package protocol

import "github.com/converge-engine/converge/entities"

// DrainRequest is the payload of a Runtime's drain and restore (A16). Force: services leave even if nothing, or less than needed, remains of
// them elsewhere, and return all at once.
type DrainRequest struct {
	RequestMeta
	Force bool `json:"force,omitempty"`
}

// Placement answers a Service's placed query: where it runs, and the facts that a drain needs to move it off a runtime and back.
type Placement struct {
	Service   string              `json:"service"` // workflow id
	Instances []InstancePlacement `json:"instances"`
	// Drains are the drained runtimes in its state.
	Drains []entities.Pause `json:"drains,omitempty"`
	// Err says why it did not answer. It is not part of an answer.
	Err string `json:"err,omitempty"`
}

// InstancePlacement is one instance of a service.
type InstancePlacement struct {
	Name             string   `json:"name"` // "production", or "production/eu-3"
	Channel          string   `json:"channel"`
	Runtime          string   `json:"runtime"`
	Running          bool     `json:"there,omitempty"`  // something runs there
	Stable           bool     `json:"stable,omitempty"` // it is stable at its target, or has no release
	KeepReason       string   `json:"stays,omitempty"`  // why it is not removed; "": it is
	RequiredServices []string `json:"needs,omitempty"`  // workflow ids of the services that its channel waits for
	Progress         string   `json:"says,omitempty"`   // its progress in leaving, if its runtime is drained
}

// DrainAnswer is the progress of a drain.
type DrainAnswer struct {
	StoredAnswer
	Drain entities.Drain `json:"drain"`
}

// AloneRequest asks which channels would have nothing left without a runtime.
type AloneRequest struct {
	Runtime string `json:"runtime"`
}

// AloneAnswer names them, as text; "": none. Unasked are services that did not answer.
type AloneAnswer struct {
	Alone string `json:"alone,omitempty"`
}
