package protocol

import (
	"encoding/json"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Version is the number of the state that workflows carry, and of the logic by which they go on with it. A worker leaves alone what
// carries a newer one. CONTRIBUTING.md says when it is raised.
const Version = 1

// Carried is a workflow's state on its way into the next run: as it is when it is small, packed (gzip) when it
// is not, and by digest in the store beyond that, so that no payload passes 64 KiB. What the state consists of is
// the workflow's own business; its form has a number, and a worker that knows only older ones leaves it alone.
type Carried struct {
	StateVersion int             `json:"stateVersion,omitempty"`
	State        json.RawMessage `json:"state,omitempty"`
	Packed       Packed          `json:"packed,omitempty"`
	Spilled      string          `json:"spilled,omitempty"` // digest of packed bytes in the store
}

// Empty tells that nothing is carried.
func (c Carried) Empty() bool {
	return c.StateVersion == 0 && len(c.State) == 0 && len(c.Packed) == 0 && c.Spilled == ""
}

// Input is what each workflow of Converge is started with.
type Input interface {
	// Begins is the id that its workflow has, what the run before carried over, and how a first run begins.
	Begins() (id string, carried Carried, first Beginning)
}

// Begins implements Input.
func (in ServiceInput) Begins() (string, Carried, Beginning) {
	return ServiceID(in.Application, in.Service), in.Carried, in.Beginning
}

// Begins implements Input.
func (in ApplicationInput) Begins() (string, Carried, Beginning) {
	return ApplicationID(in.Application), in.Carried, in.Beginning
}

// Begins implements Input.
func (in RuntimeInput) Begins() (string, Carried, Beginning) {
	return RuntimeID(in.Runtime), in.Carried, in.Beginning
}

// Begins implements Input.
func (in InstallationInput) Begins() (string, Carried, Beginning) {
	return InstallationID(), in.Carried, in.Beginning
}

// Beginning says how a first run begins, which carries no state.
type Beginning struct {
	// Adopt: with the newest checkpoint that the store has of the workflow.
	Adopt bool `json:"adopt,omitempty"`
	// Restart: nobody asked for it; the workflow was gone.
	Restart *Restart `json:"restart,omitempty"`
}

// ServiceInput starts a Service workflow, or carries its state into the next run.
type ServiceInput struct {
	Application string `json:"application"`
	Service     string `json:"service"`
	Runs        int64  `json:"runs,omitempty"` // continue-as-new so far
	Carried
	Beginning
}

// ApplicationInput starts an Application workflow, or carries its state into the next run.
type ApplicationInput struct {
	Application string `json:"application"`
	Carried
	Beginning
}

// RuntimeInput starts a Runtime workflow, or carries its state into the next run.
type RuntimeInput struct {
	Runtime string `json:"runtime"`
	Carried
	Beginning
}

// InstallationInput starts an Installation workflow, or carries its state into the next run.
type InstallationInput struct {
	ID string `json:"id"` // of its record in the store
	// Pause: everything begins paused, whatever is known of it.
	Pause *entities.Pause `json:"pause,omitempty"`
	Carried
	Beginning
}

// ApplicationPin keeps an application's services at an incarnation (D15).
type ApplicationPin struct {
	Incarnation Incarnation  `json:"incarnation"`
	Who         entities.Who `json:"who"`
	Reason      string       `json:"reason,omitempty"`
	At          time.Time    `json:"at"`
}

// SpillRequest writes packed state to the store (local activity); the answer is its digest. One without state asks whether
// the store would take it.
type SpillRequest struct {
	Packed Packed `json:"packed"`
}

// RestoreRequest reads one part of spilled state back (local activity).
type RestoreRequest struct {
	Digest string `json:"digest"`
	Offset int    `json:"offset"`
}

// RestoreAnswer is at most 48 KiB of packed state. Total is the length of all of it.
type RestoreAnswer struct {
	Part  []byte `json:"part"`
	Total int    `json:"total"`
}

// Wake says nothing that changes anything: a workflow that gets it looks whether its run should end, since another
// version of workers is current, and whether it may go on.
type Wake struct {
	Version string `json:"version,omitempty"` // for people: who asks
	// Plan: a plan lets the service enter, it says, so that it asks now and not a little later (E1).
	Plan bool `json:"plan,omitempty"`
}
