package state

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds the stored state of gates and of rollbacks, pins and deletions. All of it is bounded: approvals, bypasses and
// extensions are deleted with their release, readings of checks with the release next in line.

// ExtensionState is the progress of an extension for one release (A21).
type ExtensionState struct {
	Running bool `json:"running,omitempty"`
	Done    bool `json:"done,omitempty"`   // succeeded
	Failed  bool `json:"failed,omitempty"` // all attempts are used
	// Restarts counts how often it was started again after it had ended.
	Restarts int `json:"begun,omitempty"`
	// NoWorkerSince: since then no worker takes it.
	NoWorkerSince time.Time `json:"untaken,omitzero"`
	// Cancelled: nothing waits for it any more, so a run must end; the end was requested at EndRequested. Terminated: at once.
	Cancelled    bool      `json:"cancelled,omitempty"`
	Terminated   bool      `json:"terminated,omitempty"`
	EndRequested time.Time `json:"ending,omitzero"`
	entities.ExtensionProgress
}

// Over reports whether it has succeeded, or has used all attempts.
func (e *ExtensionState) Over() bool { return e.Done || e.Failed }

// CheckState is the newest reading of a check, for one release.
type CheckState struct {
	Release string `json:"release"` // id; "" for a repair
	entities.CheckReading
	// Definition of the check: a reading with another one does not count.
	Definition       string    `json:"definition,omitempty"`
	CandidatesDigest string    `json:"among,omitempty"` // Evaluation.CandidatesDigest; a reading with another one does not count
	Since            time.Time `json:"since"`           // of this verdict
	NotifiedErrors   int       `json:"told,omitempty"`  // number of consecutive errors at the last notification
}

// Preflight is the one evaluation of all external conditions immediately before a target is set (A10), or at the end of a post-deployment
// window.
type Preflight struct {
	Release string    `json:"release"`
	Running bool      `json:"running,omitempty"`
	Done    time.Time `json:"done,omitzero"` // its readings are valid for this moment only
	Next    time.Time `json:"next,omitzero"` // earliest time of the next one, after one that did not pass
	Window  bool      `json:"window,omitempty"`
	Errors  int       `json:"errors,omitempty"` // preflights in a row in which some check was an ERROR
	// Evaluated are the checks that it evaluated, each with its definition.
	Evaluated []string `json:"read,omitempty"`
}

// Lease is a slot among the concurrent applies of a runtime that limits them (C10).
type Lease struct {
	ID          string    `json:"id"` // of the apply
	Runtime     string    `json:"runtime"`
	Version     string    `json:"version"`        // full version that is applied
	Used        bool      `json:"used,omitempty"` // its apply has started
	RequestedAt time.Time `json:"asked"`
	RepeatedAt  time.Time `json:"again,omitzero"` // time of the last repeated request
	GrantedAt   time.Time `json:"granted,omitzero"`
}

// Pin keeps a channel at a version, even if others are released, until it is unpinned (A17).
type Pin struct {
	Channel string `json:"channel"`
	Version string `json:"version"` // full version
	// Targets by the name of the instance. An instance that was never good at the version keeps its target.
	Targets map[string]entities.Target `json:"targets"`
	Who     entities.Who               `json:"who"`
	Reason  string                     `json:"reason,omitempty"`
	At      time.Time                  `json:"at"`
}

// Deletion is a service that is being deleted (A24).
type Deletion struct {
	Who    entities.Who `json:"who"`
	Reason string       `json:"reason,omitempty"`
	At     time.Time    `json:"at"`
	// Removed lists the instances whose objects are removed.
	Removed []entities.InstanceID `json:"gone,omitempty"`
}

// Text states the version of the pin, by whom and why.
func (p Pin) Text() string {
	return "pinned to " + p.Version + " by " + p.Who.Name + entities.Because(p.Reason)
}
