package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// ServiceInput starts a Service workflow, or carries its state into the next run: as it is when it
// is small, packed (gzip) when it is not, and by digest in the store beyond that, so that no
// payload passes 64 KiB (DESIGN section 3).
type ServiceInput struct {
	Application string          `json:"application"`
	Service     string          `json:"service"`
	State       *entities.State `json:"state,omitempty"`
	Packed      Packed          `json:"packed,omitempty"`
	Spilled     string          `json:"spilled,omitempty"` // digest of packed bytes in the store
	Runs        int64           `json:"runs,omitempty"`    // continue-as-new so far
}

// ApplicationInput starts an Application workflow, or carries its state into the next run.
type ApplicationInput struct {
	Application string            `json:"application"`
	State       *ApplicationState `json:"state,omitempty"`
}

// ApplicationState is everything an Application workflow knows; the incarnations are a bounded
// tail, the store has all of them by number.
type ApplicationState struct {
	Store        string             `json:"store,omitempty"`
	Origin       Origin             `json:"origin,omitzero"`
	Manifest     string             `json:"manifest,omitempty"` // of what is newest
	Told         string             `json:"told,omitempty"`     // manifest that all services know
	ToldNumber   int64              `json:"toldNumber,omitempty"`
	Incarnations []Incarnation      `json:"incarnations,omitempty"`
	Requests     []entities.Request `json:"requests,omitempty"`
	Refused      []entities.Refusal `json:"refused,omitempty"`
	Problem      string             `json:"problem,omitempty"`
	// Recorded is the highest incarnation that the store has by its number.
	Recorded int64           `json:"recorded,omitempty"`
	Pause    *entities.Pause `json:"pause,omitempty"`
	// Untold: services are still to be told that a pause began or ended.
	Untold bool            `json:"untold,omitempty"`
	Pin    *ApplicationPin `json:"pin,omitempty"`
	// ToldPinned: what all services know is what was pinned.
	ToldPinned bool `json:"toldPinned,omitempty"`
	// Audit holds the lines that are not yet in the store; AuditLines counts all ever written.
	Audit      []entities.AuditLine `json:"audit,omitempty"`
	AuditLines int64                `json:"auditLines,omitempty"`
	// Identity and Grants of what is newest: who may do what with the whole application.
	Identity *entities.Identity `json:"identity,omitempty"`
	Grants   []entities.Grant   `json:"grants,omitempty"`
}

// ApplicationPin holds an application's services at an incarnation (D15).
type ApplicationPin struct {
	Incarnation Incarnation  `json:"incarnation"`
	Who         entities.Who `json:"who"`
	Reason      string       `json:"reason,omitempty"`
	At          time.Time    `json:"at"`
}

// SpillRequest writes packed state to the store (local activity); the answer is its digest.
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
