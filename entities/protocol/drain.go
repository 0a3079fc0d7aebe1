package protocol

import "github.com/converge-engine/converge/entities"

// DrainRequest is the payload of a Runtime's drain and turnup (A16). Force: services leave though nothing remains of them elsewhere, or
// less than is needed, and come back all at once.
type DrainRequest struct {
	Act
	Force bool `json:"force,omitempty"`
}

// Placed answers a Service's placed query: where it is, and what there is to know to have it leave a runtime and come back.
type Placed struct {
	Service   string           `json:"service"` // workflow id
	Instances []PlacedInstance `json:"instances"`
	// Drains are the drained runtimes that it has heard of.
	Drains []entities.Pause `json:"drains,omitempty"`
	// Err says why it could not be asked. It is not answered.
	Err string `json:"err,omitempty"`
}

// PlacedInstance is one instance of a service.
type PlacedInstance struct {
	Name    string   `json:"name"` // "production", or "production/eu-3"
	Channel string   `json:"channel"`
	Runtime string   `json:"runtime"`
	There   bool     `json:"there,omitempty"`  // something runs there
	Stable  bool     `json:"stable,omitempty"` // it is well at its target, or nothing was released to it
	Stays   string   `json:"stays,omitempty"`  // why it is not removed; "": it is
	Needs   []string `json:"needs,omitempty"`  // workflow ids of the services that its channel waits for
	Says    string   `json:"says,omitempty"`   // how far it is with leaving, where its runtime is drained
}

// DrainAnswer is how far a drain is.
type DrainAnswer struct {
	InStore
	Drain entities.Drain `json:"drain"`
}

// AloneRequest asks of which channels nothing would be left without a runtime.
type AloneRequest struct {
	Runtime string `json:"runtime"`
}

// AloneAnswer says so in words; "": of none. Unasked are services that could not be asked.
type AloneAnswer struct {
	Alone string `json:"alone,omitempty"`
}
