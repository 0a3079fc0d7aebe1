package protocol

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// CheckpointSchema names the format of a checkpoint.
const CheckpointSchema = "converge.checkpoint/v1"

// Checkpoint is the state of a long-lived workflow at a point in time. It is kept in the store, so that the workflow is not the only copy
// (F1). The checkpoint with the greater number is newer. With the same number, the one of the longer history is.
type Checkpoint struct {
	Schema string `json:"schema"` // CheckpointSchema
	ID     string `json:"id"`     // of the workflow
	// N grows with each workflow task that submits one, over all runs.
	N int64 `json:"n"`
	// Run is the run that wrote it. Event is the number of the last event of its history that the state includes.
	Run   string    `json:"run"`
	Event int64     `json:"event"`
	At    time.Time `json:"at"`
	// Change identifies the last change that the state includes: the time of its workflow task, in Unix nanoseconds. Earlier are the changes
	// before it, as far as they are known.
	Change  int64   `json:"change,omitempty"`
	Earlier []int64 `json:"-"`
	// Manifest is, for an application, the digest of the manifest that its services were last notified of. Unmanaged are its unmanaged
	// services, by name, and why; "*" is all of them.
	Manifest  string            `json:"manifest,omitempty"`
	Unmanaged map[string]string `json:"unmanaged,omitempty"`
	// Over: the workflow ended because nothing was left to do. It is not started again for this checkpoint.
	Over         bool   `json:"over,omitempty"`
	StateVersion int    `json:"stateVersion"`
	State        Packed `json:"state"`
	// Digest is the SHA-256 in hex of all of the above.
	Digest string `json:"digest"`
}

// WrittenBefore reports whether a checkpoint was written before its installation was moved to the present namespace.
func (c *Checkpoint) WrittenBefore(i Installation) bool {
	return i.Epoch > 1 && c.N > 0 && c.At.Before(i.At)
}

// Newer reports whether a checkpoint is newer than another.
func (c *Checkpoint) Newer(than *Checkpoint) bool {
	return c.N > than.N || c.N == than.N && c.Event > than.Event
}

// Follows reports whether the state of a checkpoint includes a change.
func (c *Checkpoint) Follows(change int64) bool {
	return c.Change == change || slices.Contains(c.Earlier, change)
}

// CheckpointPosition is the answer to QueryCheckpoint.
type CheckpointPosition struct {
	Submitted bool  `json:"submitted"` // the state was submitted to be stored
	Adopted   int64 `json:"adopted"`   // N of the last checkpoint that the workflow took over; 0: none
}

// Restart says that a run was started because the workflow was gone.
type Restart struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"` // "its workflow was terminated"
}

// AdoptRequest requests the newest checkpoint of a workflow, and the messages that were accepted after it (local activity).
type AdoptRequest struct {
	ID string `json:"id"`
	// N is the workflow's own number. An older checkpoint is not returned.
	N int64 `json:"n"`
	// Run is the requesting run. The answer ends with the messages that this run accepted itself, up to the event OwnUpTo; 0: none of them.
	Run     string `json:"run"`
	OwnUpTo int64  `json:"ownUpTo,omitempty"`
	// After is where the last answer ended.
	After Cursor `json:"after,omitzero"`
	// Explain asks how the previous run ended, since the start of this one gave no reason.
	Explain bool `json:"explain,omitempty"`
}

// Cursor is a position in the history of a workflow: an event of a run.
type Cursor struct {
	Run   string `json:"run"`
	Event int64  `json:"event"`
}

// AdoptAnswer is the state to adopt. N is 0 if there is nothing newer.
type AdoptAnswer struct {
	StoredAnswer
	N    int64 `json:"n,omitempty"`
	Over bool  `json:"over,omitempty"`
	// Why is how the previous run ended, if that was asked for and can be read.
	Why string `json:"why,omitempty"`
	// Store is the location of the checkpoint: the installation may have been moved since.
	Store string `json:"store,omitempty"`
	// Pauses are the pauses in force of the installation, of the service's application, and of all runtimes. One may have begun while there
	// was no run to notify. For the Installation itself: the pause of everything with which a restored backup begins.
	Pauses []ScopePause `json:"holds,omitempty"`
	// Ended are the last ended pauses of the same scopes. One may have ended while there was no run to notify.
	Ended []PauseEnded `json:"ended,omitempty"`
	// Notified: the application of this service has sent a notice. Other notices and rules may have followed while there was no run to notify,
	// so the service reads the newest.
	Notified bool `json:"notified,omitempty"`
	// Rules are the rules of the installation, for a Runtime and for the Installation itself.
	Rules *Rules `json:"rules,omitempty"`
	// Trail is the last entry of the workflow's audit trail in the store. The next entry follows it.
	Trail *entities.TrailEnd `json:"trail,omitempty"`
	// MinSequence is the highest sequence that was ever claimed for an instance of a service without any other state.
	MinSequence int64 `json:"floor,omitempty"`
	CarriedState
	// Missed are the messages that closed runs accepted after the checkpoint, in order.
	Missed []MissedMessage `json:"missed,omitempty"`
	// Next: there are more messages after this position.
	Next Cursor `json:"next,omitzero"`
}

// MissedMessages are the messages that a workflow had accepted after its newest checkpoint when its installation was moved to another
// Temporal server, which does not have its history.
type MissedMessages struct {
	ID       string          `json:"id"`    // of the workflow
	After    Cursor          `json:"after"` // the position of the checkpoint
	Messages []MissedMessage `json:"messages"`
}

// MissedMessage is a signal or an update of a closed run.
type MissedMessage struct {
	Verb string `json:"verb"`
	// UpdateID replaces the request id of an update that has none.
	UpdateID string          `json:"updateId,omitempty"`
	Payload  json.RawMessage `json:"payload"`
	At       time.Time       `json:"at"`
}

// Installation links a store and a Temporal namespace. A store has one record per epoch, and the highest counts. A move of an installation
// raises the epoch, so that the former location is fenced off (F4).
type Installation struct {
	ID    string `json:"id"` // random and permanent
	Epoch int64  `json:"epoch"`
	// Namespace is the name of the Temporal namespace. NamespaceID is the server's id for it; another server has another id.
	Namespace   string    `json:"namespace"`
	NamespaceID string    `json:"namespaceId"`
	At          time.Time `json:"at"`
	By          string    `json:"by,omitempty"` // the owner of the store, if it has one
	// Exported says who exported the installation to another location. Nothing is started or applied from this store any more.
	Exported string `json:"exported,omitempty"`
	// BackupOf is the time of the backup that the store was restored from, if any. Its content may be outdated, so everything starts paused.
	BackupOf time.Time `json:"backupOf,omitzero"`
}
