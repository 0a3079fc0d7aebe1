package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds joint releases (B8): one release of versions of several services of an application. It uses a two-phase commit with the
// Application as the coordinator: every service promises its part, then one record in the store decides for all.

// Verbs of a Service that its Application sends. Like every signal between workflows, they only trigger a read of the store.
const (
	Reserve  = "reserve"  // promise your part of a joint release (JointHint)
	Conclude = "conclude" // carry out the decision about it (JointHint)
)

const (
	// JointPromise is how long a service keeps its promise. Then it requests the decision, and aborts the joint release if there is none.
	JointPromise = 2 * time.Minute
	// JointPromiseTimeout is how long the application waits for promises. It is shorter than JointPromise.
	JointPromiseTimeout = time.Minute
)

// ServiceVersion is the part of one service in a joint release.
type ServiceVersion struct {
	Version string `json:"version"`
	// Parameters apply to all channels, ChannelParameters to one each; later wins.
	Parameters        map[string]any            `json:"parameters,omitempty"`
	ChannelParameters map[string]map[string]any `json:"channelParameters,omitempty"`
}

// JointRequest is the payload of an Application's release. A missing id is derived from the request id.
type JointRequest struct {
	RequestMeta
	ID       string                    `json:"id,omitempty"`
	Services map[string]ServiceVersion `json:"services"` // by current name
}

// JointAnswer identifies a joint release, once all of its services have promised their parts.
type JointAnswer struct {
	ID       string            `json:"id"`
	Services map[string]string `json:"services"` // version by current name of the service
	// Repeated: this request id, or this release, was accepted before.
	Repeated bool `json:"repeated,omitempty"`
}

// JointHint names a joint release to a service.
type JointHint struct {
	ID string `json:"id"`
}

// Joint is a proposed joint release. The store keeps it permanently by its id. Services have their first names.
type Joint struct {
	Application string                    `json:"application"`
	ID          string                    `json:"id"`
	Services    map[string]ServiceVersion `json:"services"`
	Who         entities.Who              `json:"who"`
	At          time.Time                 `json:"at"`
}

// JointDecision is the decision about a joint release. The first one written to the store is permanent.
type JointDecision struct {
	ID        string `json:"id"`
	Committed bool   `json:"committed"`
	Why       string `json:"why,omitempty"` // why it was aborted
}

// JointStatus is one of the last joint releases, for an Application's status.
type JointStatus struct {
	ID       string            `json:"id"`
	Services map[string]string `json:"services"` // version by current name of the service
	By       string            `json:"by"`
	At       time.Time         `json:"at"`
	Phase    string            `json:"phase"`             // deciding, committed, aborted
	Why      string            `json:"why,omitempty"`     // why it was aborted
	Waiting  []string          `json:"waiting,omitempty"` // services that have not carried it out yet
	// Failed: it was committed, but these services failed to carry out their part, and why.
	Failed map[string]string `json:"failed,omitempty"`
}

// The phases of a joint release.
const (
	JointDeciding  = "deciding"
	JointCommitted = "committed"
	JointAborted   = "aborted"
)

// ProposeRequest records a joint release, unless its id is taken (local activity).
type ProposeRequest struct {
	Joint
	Manifest string `json:"manifest"` // digest of the manifest that declares the services
}

// ProposeAnswer is the joint release with the id, and its decision, if there is one.
type ProposeAnswer struct {
	StoredAnswer
	Joint    Joint          `json:"joint"`
	Decision *JointDecision `json:"decision,omitempty"`
}

// DecideRequest requests promises from all services, decides, and makes them carry out the decision.
type DecideRequest struct {
	Application string   `json:"application"`
	ID          string   `json:"id"`
	Services    []string `json:"services"` // those that have not carried it out yet, sorted
}

// DecideAnswer is the decision, and the services that have not carried it out.
type DecideAnswer struct {
	Decision JointDecision `json:"decision"`
	Unreached
	Failed map[string]string `json:"failed,omitempty"`
}

// ReserveRequest tests a service's part of a joint release, and writes nothing (local activity).
type ReserveRequest struct {
	ID string `json:"id"`
	PrepareRequest
}

// ReserveAnswer is the part, and the record of the version, existing or future, without the digests of payloads.
type ReserveAnswer struct {
	StoredAnswer
	Joint    Joint          `json:"joint"`
	Decision *JointDecision `json:"decision,omitempty"`
	Prepared PrepareAnswer  `json:"prepared"`
}

// OutcomeRequest requests the decision about a joint release (local activity). Abort: if there is none, abort it.
type OutcomeRequest struct {
	Application string `json:"application"`
	ID          string `json:"id"`
	Abort       bool   `json:"abort,omitempty"`
}

// OutcomeAnswer is the decision. Without a decision it is still open.
type OutcomeAnswer struct {
	StoredAnswer
	Joint    Joint          `json:"joint"`
	Decision *JointDecision `json:"decision,omitempty"`
}
