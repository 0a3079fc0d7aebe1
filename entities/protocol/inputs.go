package protocol

import (
	"encoding/json"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Version is the number of the state that workflows carry, and of the logic that continues with it. A worker does not process a state with
// a newer number. CONTRIBUTING.md says when it is raised.
const Version = 1

// OldestVersion is the oldest state that a worker continues with.
const OldestVersion = 1

// CarriedState is a workflow's state for the next run: plain if small, packed (gzip) if larger, and by digest in the store beyond that, so
// that no payload exceeds 64 KiB. Each workflow defines its own state. Its format has a number; a worker that only knows others does
// not process it.
type CarriedState struct {
	StateVersion int             `json:"stateVersion,omitempty"`
	State        json.RawMessage `json:"state,omitempty"`
	Packed       Packed          `json:"packed,omitempty"`
	Spilled      string          `json:"spilled,omitempty"` // digest of packed bytes in the store
}

// Empty reports whether nothing is carried.
func (c CarriedState) Empty() bool {
	return c.StateVersion == 0 && len(c.State) == 0 && len(c.Packed) == 0 && c.Spilled == ""
}

// Input is the start input of each workflow of Converge.
type Input interface {
	// StartState returns the workflow id, the state that the previous run carried over, and how a first run begins.
	StartState() (id string, carried CarriedState, first StartMode)
}

// StartState implements Input.
func (in ServiceInput) StartState() (string, CarriedState, StartMode) {
	return ServiceID(in.Application, in.Service), in.CarriedState, in.StartMode
}

// StartState implements Input.
func (in ApplicationInput) StartState() (string, CarriedState, StartMode) {
	return ApplicationID(in.Application), in.CarriedState, in.StartMode
}

// StartState implements Input.
func (in RuntimeInput) StartState() (string, CarriedState, StartMode) {
	return RuntimeID(in.Runtime), in.CarriedState, in.StartMode
}

// StartState implements Input.
func (in InstallationInput) StartState() (string, CarriedState, StartMode) {
	return InstallationID(), in.CarriedState, in.StartMode
}

// StartMode says how a first run begins, which carries no state.
type StartMode struct {
	// Adopt: from the newest checkpoint of the workflow in the store.
	Adopt bool `json:"adopt,omitempty"`
	// Restart: no user requested it; the workflow was gone.
	Restart *Restart `json:"restart,omitempty"`
}

// ServiceInput starts a Service workflow, or carries its state into the next run.
type ServiceInput struct {
	Application string `json:"application"`
	Service     string `json:"service"`
	Runs        int64  `json:"runs,omitempty"` // continue-as-new so far
	CarriedState
	StartMode
}

// ApplicationInput starts an Application workflow, or carries its state into the next run.
type ApplicationInput struct {
	Application string `json:"application"`
	CarriedState
	StartMode
}

// RuntimeInput starts a Runtime workflow, or carries its state into the next run.
type RuntimeInput struct {
	Runtime string `json:"runtime"`
	CarriedState
	StartMode
}

// InstallationInput starts an Installation workflow, or carries its state into the next run.
type InstallationInput struct {
	ID string `json:"id"` // of its record in the store
	// Pause: everything begins paused, in spite of any known state.
	Pause *entities.Pause `json:"pause,omitempty"`
	CarriedState
	StartMode
}

// ApplicationPin keeps an application's services at an incarnation (D15).
type ApplicationPin struct {
	Incarnation Incarnation  `json:"incarnation"`
	Who         entities.Who `json:"who"`
	Reason      string       `json:"reason,omitempty"`
	At          time.Time    `json:"at"`
}

// SpillRequest writes packed state to the store (local activity). The answer is its digest. Without state it only tests whether the store
// is writable.
type SpillRequest struct {
	Packed Packed `json:"packed"`
}

// RestoreRequest reads one part of spilled state (local activity).
type RestoreRequest struct {
	Digest string `json:"digest"`
	Offset int    `json:"offset"`
}

// RestoreAnswer is at most 48 KiB of packed state. Total is the length of all of it.
type RestoreAnswer struct {
	Part  []byte `json:"part"`
	Total int    `json:"total"`
}

// Wake changes no state. A workflow that receives it checks whether its run should end, since another version of workers is current, and
// whether it may continue.
type Wake struct {
	Version string `json:"version,omitempty"` // for people: the caller
	// Plan: a plan reports that the service may enter, so the service evaluates its check now and not a little later (E1).
	Plan bool `json:"plan,omitempty"`
}
