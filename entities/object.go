package entities

import (
	"sort"
	"time"
)

// ObjectStatus is the status of a runtime object (C4).
type ObjectStatus string

// The statuses a runtime reports; an absent status is PENDING (C4).
const (
	ObjectPending   ObjectStatus = "PENDING"
	ObjectSucceeded ObjectStatus = "SUCCEEDED"
	ObjectFailed    ObjectStatus = "FAILED"
)

// Object is one thing that a runtime runs for an instance: a Deployment, an ECS service, a process. Its JSON form is the structured fetch
// document's `objects[]` (C4). Every runtime reports it, so the decision treats all runtimes the same.
type Object struct {
	Name     string          `json:"name"`
	Type     string          `json:"objectType"`
	Versions []ObjectVersion `json:"versions,omitempty"`
	// Orphaned: it is ours, no longer declared, and left in place. It is shown, and does not count for or against stability (D10).
	Orphaned bool `json:"orphaned,omitempty"`
	// AsDeclared: it has not succeeded, and an apply would not change it. Its controller in the runtime is at work, or has failed; Converge
	// repairs nothing (H8).
	AsDeclared bool `json:"asDeclared,omitempty"`
	// Foreign lists undeclared fields that others added, and who, for people.
	Foreign []string `json:"foreign,omitempty"`

	Status  ObjectStatus `json:"status,omitempty"`
	Links   []Link       `json:"externalLinks,omitempty"`
	Events  []Event      `json:"debugEvents,omitempty"`
	Message string       `json:"message,omitempty"`
	// Suspended says where it waits for a user, who finds instructions in Message, or, with Until, for a time. No deadline expires during the
	// wait. Different waits have different texts. Empty: it does not wait.
	Suspended string    `json:"suspended,omitempty"`
	Until     time.Time `json:"until,omitzero"`
	// Steerable: it rolls out in its own steps, and Converge can promote or abort the rollout.
	Steerable bool `json:"steerable,omitempty"`
}

// ObjectVersion is one version of an object. An empty Version is unknown: Converge did not start it. TargetReplicas is only for information
// (C5).
type ObjectVersion struct {
	Version           string `json:"version"`
	Active            bool   `json:"active,omitempty"`
	Drifted           bool   `json:"drifted,omitempty"`
	Replicas          int    `json:"replicas,omitempty"`
	AvailableReplicas int    `json:"availableReplicas,omitempty"`
	TargetReplicas    int    `json:"targetReplicas,omitempty"`
}

// Link points a user to an object elsewhere. Type is DETAIL, LOG or UNKNOWN (C4).
type Link struct {
	Type string `json:"type,omitempty"`
	URL  string `json:"url"`
	Name string `json:"name"`
}

// Event is something that happened to an object, for people.
type Event struct {
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
}

// ReadingError says why a reading failed. Only Code and Cause count for the digest. A message that changes at every reading would make an
// idle service write history.
type ReadingError struct {
	Code    string `json:"code"`            // fetch-failed, malformed-output, timeout, output-too-large, unreachable …
	Cause   string `json:"cause,omitempty"` // tells errors with the same code apart, and is the same at every reading: what cannot be used, and which
	Message string `json:"message"`
	// Throttled: the runtime's API allows no more calls at present. That is not a failure, and no deadline expires meanwhile.
	Throttled bool `json:"throttled,omitempty"`
	// NoAnswer: the platform did not answer, did not accept the worker's credentials, or no worker could ask it. That says nothing about the
	// instance, and no deadline expires meanwhile. Silent is for how long there had been no answer when the reading failed; 0: unknown.
	NoAnswer bool          `json:"noAnswer,omitempty"`
	Silent   time.Duration `json:"silent,omitempty"`
}

// SaysNothing reports whether a failed reading says nothing about the instance, because nothing could be observed. It is false for nil.
func (e *ReadingError) SaysNothing() bool { return e != nil && (e.NoAnswer || e.Throttled) }

// CodeNoWorker is the code of a reading without a worker: no worker polls the runtime's own task queue.
const CodeNoWorker = "no-worker"

// Error makes a ReadingError an error, so that runtimes can return it.
func (e *ReadingError) Error() string { return e.Message }

// Reading is one observation of an instance. Either Err is set, or Objects contains the runtime's report. An empty list means that nothing
// exists.
type Reading struct {
	Objects []Object      `json:"objects,omitempty"`
	Omitted int           `json:"omitted,omitempty"` // objects left out to limit the size
	Err     *ReadingError `json:"err,omitempty"`
	At      time.Time     `json:"at"`
}

// Digest identifies the content of a reading: status, versions, active, drifted, suspensions, foreign fields, and the error's code and
// cause. It never includes messages, times, events or links. The order of objects does not matter.
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
		// Suspended counts like any other state.
		Suspended  string   `json:",omitempty"`
		AsDeclared bool     `json:",omitempty"`
		Foreign    []string `json:",omitempty"`
	}
	code := ""
	if r.Err != nil {
		code = r.Err.Code + r.Err.Cause
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
