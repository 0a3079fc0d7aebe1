package entities

import (
	"sort"
	"time"
)

// ObjectStatus is how far a runtime object is (C4).
type ObjectStatus string

// The statuses a runtime reports; an absent status is PENDING (C4).
const (
	ObjectPending   ObjectStatus = "PENDING"
	ObjectSucceeded ObjectStatus = "SUCCEEDED"
	ObjectFailed    ObjectStatus = "FAILED"
)

// Object is one thing that a runtime runs for an instance: a Deployment, an ECS service, a
// process. Its JSON form is the structured fetch document's `objects[]` (C4), which every runtime
// reports, so that all look the same to the decision.
type Object struct {
	Name     string          `json:"name"`
	Type     string          `json:"objectType"`
	Versions []ObjectVersion `json:"versions,omitempty"`
	// Orphaned: it is ours and no longer declared, left in place. It is shown, and counts neither for
	// nor against stability (D10).
	Orphaned bool `json:"orphaned,omitempty"`
	// AsDeclared: it has not succeeded, and an apply would change nothing of it. Whoever looks after it in the runtime is at
	// work, or has failed; nothing is repaired for it (H8).
	AsDeclared bool `json:"asDeclared,omitempty"`
	// Foreign is what somebody else added to it and nobody declares, with who, for a person to read.
	Foreign []string `json:"foreign,omitempty"`

	Status  ObjectStatus `json:"status,omitempty"`
	Links   []Link       `json:"externalLinks,omitempty"`
	Events  []Event      `json:"debugEvents,omitempty"`
	Message string       `json:"message,omitempty"`
	// Suspended says at what it waits for a person, who is told what to do by Message, or, with Until, for a time: no deadline ends
	// meanwhile. It tells one such wait from the next. Empty: it waits at nothing.
	Suspended string    `json:"suspended,omitempty"`
	Until     time.Time `json:"until,omitzero"`
	// Steerable: it rolls out in steps of its own, and Converge can let it go on or take it back there.
	Steerable bool `json:"steerable,omitempty"`
}

// ObjectVersion is one version an object runs. An empty Version is unknown: nothing Converge
// started. TargetReplicas is information only (C5).
type ObjectVersion struct {
	Version           string `json:"version"`
	Active            bool   `json:"active,omitempty"`
	Drifted           bool   `json:"drifted,omitempty"`
	Replicas          int    `json:"replicas,omitempty"`
	AvailableReplicas int    `json:"availableReplicas,omitempty"`
	TargetReplicas    int    `json:"targetReplicas,omitempty"`
}

// Link points a person at an object elsewhere. Type is DETAIL, LOG or UNKNOWN (C4).
type Link struct {
	Type string `json:"type,omitempty"`
	URL  string `json:"url"`
	Name string `json:"name"`
}

// Event is something that happened to an object, for a person to read.
type Event struct {
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
}

// ReadingError says why a look at a runtime failed. Only Code counts for the digest: a message
// that changes at every look would make an idle service write history.
type ReadingError struct {
	Code    string `json:"code"` // fetch-failed, malformed-output, timeout, output-too-large, unreachable …
	Message string `json:"message"`
	// Throttled: the runtime's API allows no more calls at present, which is nobody's failure: no deadline ends meanwhile.
	Throttled bool `json:"throttled,omitempty"`
}

// CodeNoWorker is the code of a reading that nobody took, since no worker polls the queue of a runtime that has its own.
const CodeNoWorker = "no-worker"

// Error makes a ReadingError an error, so that runtimes can return it.
func (e *ReadingError) Error() string { return e.Message }

// Reading is one look at an instance. Either Err is set, or Objects is what the runtime reports
// (empty: nothing there).
type Reading struct {
	Objects []Object      `json:"objects,omitempty"`
	Omitted int           `json:"omitted,omitempty"` // objects left out to bound the size
	Err     *ReadingError `json:"err,omitempty"`
	At      time.Time     `json:"at"`
}

// Digest identifies what a reading says: status, versions, active, drifted, what it waits at, what others added, and the error's code;
// never messages, times, events or links. Objects count in any order.
func (r Reading) Digest() string {
	type version struct {
		Version         string
		Active, Drifted bool
		Replicas        int
		Available       int
	}
	type object struct {
		Name, Type string
		Status     ObjectStatus
		Versions   []version
		Orphaned   bool `json:",omitempty"`
		// Suspended is a state like any other.
		Suspended  string   `json:",omitempty"`
		AsDeclared bool     `json:",omitempty"`
		Foreign    []string `json:",omitempty"`
	}
	code := ""
	if r.Err != nil {
		code = r.Err.Code
	}
	objects := make([]object, 0, len(r.Objects))
	for _, o := range r.Objects {
		d := object{
			Name: o.Name, Type: o.Type, Status: o.Status, Orphaned: o.Orphaned, Suspended: o.Suspended, AsDeclared: o.AsDeclared, Foreign: o.Foreign,
		}
		for _, v := range o.Versions {
			d.Versions = append(d.Versions, version{v.Version, v.Active, v.Drifted, v.Replicas, v.AvailableReplicas})
		}
		sort.Slice(d.Versions, func(i, j int) bool { return d.Versions[i].Version < d.Versions[j].Version })
		objects = append(objects, d)
	}
	sort.Slice(objects, func(i, j int) bool {
		return objects[i].Type+"/"+objects[i].Name < objects[j].Type+"/"+objects[j].Name
	})
	return ShortDigestOf(code, objects, r.Omitted)
}
