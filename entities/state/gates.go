package state

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds what is remembered of gates and of ways to take things back. All of it is bounded:
// approvals, bypasses and extensions live and die with their release, readings of checks with the release
// next in line.

// ExtensionState is how far an extension is for one release (A21).
type ExtensionState struct {
	Running bool `json:"running,omitempty"`
	Done    bool `json:"done,omitempty"`   // succeeded
	Failed  bool `json:"failed,omitempty"` // attempts are spent
	// Begun counts how often it was begun anew after it had ended.
	Begun int `json:"begun,omitempty"`
	// Untaken: since then no worker takes it.
	Untaken time.Time `json:"untaken,omitzero"`
	// Cancelled: nothing waits for it any more, so that a run is to end; since Ending it is asked to. Terminated: at once.
	Cancelled  bool      `json:"cancelled,omitempty"`
	Terminated bool      `json:"terminated,omitempty"`
	Ending     time.Time `json:"ending,omitzero"`
	entities.ExtensionProgress
}

// Over tells whether it has succeeded, or its attempts are spent.
func (e *ExtensionState) Over() bool { return e.Done || e.Failed }

// CheckState is the newest reading of a check, of the release it was asked about.
type CheckState struct {
	Release string `json:"release"` // id; "" for a repair
	entities.CheckReading
	// Definition that was judged: a reading under another one does not count.
	Definition string    `json:"definition,omitempty"`
	Among      string    `json:"among,omitempty"` // Evaluation.Among, likewise
	Since      time.Time `json:"since"`           // of this verdict
	Told       int       `json:"told,omitempty"`  // how many errors in a row people were told of last
}

// Preflight is the one evaluation of everything external right before a target is set (A10), or at the
// end of a post-deployment window.
type Preflight struct {
	Release string    `json:"release"`
	Running bool      `json:"running,omitempty"`
	Done    time.Time `json:"done,omitzero"` // its readings hold for this moment only
	Next    time.Time `json:"next,omitzero"` // after one that did not pass, not again before
	Window  bool      `json:"window,omitempty"`
	// Read are the checks that it read, each with its definition.
	Read []string `json:"read,omitempty"`
}

// Lease is a place among the applies of a runtime that bounds them (C10).
type Lease struct {
	ID      string    `json:"id"` // of the apply
	Runtime string    `json:"runtime"`
	Version string    `json:"version"`        // full version that is applied
	Used    bool      `json:"used,omitempty"` // its apply has begun
	Asked   time.Time `json:"asked"`
	Again   time.Time `json:"again,omitzero"` // asked for again, the last time
	Granted time.Time `json:"granted,omitzero"`
}

// Pin keeps a channel at a version whatever is released, until it is unpinned (A17).
type Pin struct {
	Channel string `json:"channel"`
	Version string `json:"version"` // full version
	// Targets by the name of the instance. One that was never good at the version stays where it is.
	Targets map[string]entities.Target `json:"targets"`
	Who     entities.Who               `json:"who"`
	Reason  string                     `json:"reason,omitempty"`
	At      time.Time                  `json:"at"`
}

// Deletion is a service being taken down (A24).
type Deletion struct {
	Who    entities.Who `json:"who"`
	Reason string       `json:"reason,omitempty"`
	At     time.Time    `json:"at"`
	// Gone lists the instances whose objects are removed.
	Gone []entities.InstanceID `json:"gone,omitempty"`
}

// Text says what a channel is pinned to, by whom and why.
func (p Pin) Text() string {
	return "pinned to " + p.Version + " by " + p.Who.Name + entities.Because(p.Reason)
}
