package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds what is said of joint releases (B8): one release that names versions of several services of an
// application. It is committed by two phases, with the Application as the coordinator: every service promises its part,
// then one record in the store decides for all.

// Verbs of a Service that its Application sends; a reason to look into the store, like every signal between workflows.
const (
	Reserve  = "reserve"  // promise your part of a joint release (JointHint)
	Conclude = "conclude" // carry out what was decided of it (JointHint)
)

const (
	// JointPromise is how long a service keeps its promise before it asks what was decided, and decides that nothing is.
	JointPromise = 2 * time.Minute
	// JointPatience is how long services are asked for their promises, which is shorter.
	JointPatience = time.Minute
)

// ServiceVersion is the part that one service has in a joint release.
type ServiceVersion struct {
	Version string `json:"version"`
	// Parameters apply to all channels, ChannelParameters to one each; later wins.
	Parameters        map[string]any            `json:"parameters,omitempty"`
	ChannelParameters map[string]map[string]any `json:"channelParameters,omitempty"`
}

// JointRequest is the payload of an Application's release. An id that is not given is made from the request id.
type JointRequest struct {
	Act
	ID       string                    `json:"id,omitempty"`
	Services map[string]ServiceVersion `json:"services"` // by what people call them
}

// JointAnswer is what a joint release is known by, once all of its services have promised their parts.
type JointAnswer struct {
	ID       string            `json:"id"`
	Services map[string]string `json:"services"` // version by what people call the service
	// Repeated: this request id, or this release, was accepted before.
	Repeated bool `json:"repeated,omitempty"`
}

// JointHint names a joint release to a service.
type JointHint struct {
	ID string `json:"id"`
}

// Joint is a joint release as it was proposed: the store has it for good by its id. Services are named by the names that they
// had first.
type Joint struct {
	Application string                    `json:"application"`
	ID          string                    `json:"id"`
	Services    map[string]ServiceVersion `json:"services"`
	Who         entities.Who              `json:"who"`
	At          time.Time                 `json:"at"`
}

// JointDecision is what became of a joint release: the store has the first one that was written, for good.
type JointDecision struct {
	ID        string `json:"id"`
	Committed bool   `json:"committed"`
	Why       string `json:"why,omitempty"` // it was aborted
}

// JointStatus is one of the last joint releases, for an Application's status.
type JointStatus struct {
	ID       string            `json:"id"`
	Services map[string]string `json:"services"` // version by what people call the service
	By       string            `json:"by"`
	At       time.Time         `json:"at"`
	Phase    string            `json:"phase"`             // deciding, committed, aborted
	Why      string            `json:"why,omitempty"`     // it was aborted
	Waiting  []string          `json:"waiting,omitempty"` // services that have not carried it out yet
	// Failed: it was committed, and these services could not carry out their part after all, and why.
	Failed map[string]string `json:"failed,omitempty"`
}

// The phases of a joint release.
const (
	JointDeciding  = "deciding"
	JointCommitted = "committed"
	JointAborted   = "aborted"
)

// ProposeRequest writes down a joint release, unless its id is taken (local activity).
type ProposeRequest struct {
	Joint
	Manifest string `json:"manifest"` // digest of the one that declares the services
}

// ProposeAnswer is the joint release that stands under the id, and what was decided of it, if anything was.
type ProposeAnswer struct {
	InStore
	Joint    Joint          `json:"joint"`
	Decision *JointDecision `json:"decision,omitempty"`
}

// DecideRequest asks all services for their promises, decides, and has them carry that out.
type DecideRequest struct {
	Application string   `json:"application"`
	ID          string   `json:"id"`
	Services    []string `json:"services"` // those that have not carried it out yet, sorted
}

// DecideAnswer is what was decided, and which services have not carried it out.
type DecideAnswer struct {
	Decision JointDecision `json:"decision"`
	Unreached
	Failed map[string]string `json:"failed,omitempty"`
}

// ReserveRequest tries a service's part of a joint release, and writes nothing (local activity).
type ReserveRequest struct {
	ID string `json:"id"`
	PrepareRequest
}

// ReserveAnswer is the part, and what the version means, or would mean, but for the digests of payloads.
type ReserveAnswer struct {
	InStore
	Joint    Joint          `json:"joint"`
	Decision *JointDecision `json:"decision,omitempty"`
	Prepared PrepareAnswer  `json:"prepared"`
}

// OutcomeRequest asks what was decided of a joint release (local activity). Abort: if nothing is, that it is aborted.
type OutcomeRequest struct {
	Application string `json:"application"`
	ID          string `json:"id"`
	Abort       bool   `json:"abort,omitempty"`
}

// OutcomeAnswer is that. Nothing is decided yet where the decision is missing.
type OutcomeAnswer struct {
	InStore
	Joint    Joint          `json:"joint"`
	Decision *JointDecision `json:"decision,omitempty"`
}
