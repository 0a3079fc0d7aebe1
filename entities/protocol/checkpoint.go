package protocol

import (
	"encoding/json"
	"time"

	"github.com/converge-engine/converge/entities"
)

// CheckpointSchema names the form of a checkpoint.
const CheckpointSchema = "converge.checkpoint/v1"

// Checkpoint is the state that a workflow which lives for ever had at a moment, kept in the store, so that the
// workflow is not the only place that knows of it (F1). Of two, the one with the greater number is newer, or, of the
// same number, that of the longer history.
type Checkpoint struct {
	Schema string `json:"schema"` // CheckpointSchema
	ID     string `json:"id"`     // of the workflow
	// N grows with each workflow task that hands one over, over all runs.
	N int64 `json:"n"`
	// Run is the run that wrote it, Event the number of the last event of its history that it had taken in.
	Run   string    `json:"run"`
	Event int64     `json:"event"`
	At    time.Time `json:"at"`
	// Manifest of an application: the digest of what its services were last notified of. Unmanaged are the services of it
	// that nobody is to look after, by name, and why; "*" is all of them.
	Manifest  string            `json:"manifest,omitempty"`
	Unmanaged map[string]string `json:"unmanaged,omitempty"`
	// Over: the workflow ended because nothing was left to do. It is not started again for this.
	Over         bool   `json:"over,omitempty"`
	StateVersion int    `json:"stateVersion"`
	State        Packed `json:"state"`
	// Digest is the SHA-256 in hex of all of the above.
	Digest string `json:"digest"`
}

// Newer tells whether a checkpoint is newer than another.
func (c *Checkpoint) Newer(than *Checkpoint) bool {
	return c.N > than.N || c.N == than.N && c.Event > than.Event
}

// Restart says that a run was started because the workflow was gone.
type Restart struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"` // "its workflow was terminated"
	// Hold: it is the third within an hour, so that the service comes back paused.
	Hold bool `json:"hold,omitempty"`
}

// AdoptRequest asks for the newest checkpoint of a workflow, and for what was accepted after it (local activity).
type AdoptRequest struct {
	ID string `json:"id"`
	// N is the number that the workflow is at itself; an older checkpoint is not answered.
	N int64 `json:"n"`
	// Run is the one that asks. What it has accepted itself up to the event OwnUpTo is answered too, last; 0: nothing of it is.
	Run     string `json:"run"`
	OwnUpTo int64  `json:"ownUpTo,omitempty"`
	// After is where the last answer ended.
	After Cursor `json:"after,omitzero"`
}

// Cursor is a place in the history of a workflow: an event of a run.
type Cursor struct {
	Run   string `json:"run"`
	Event int64  `json:"event"`
}

// AdoptAnswer is what there is to adopt; N is 0 when there is nothing newer.
type AdoptAnswer struct {
	InStore
	N    int64 `json:"n,omitempty"`
	Over bool  `json:"over,omitempty"`
	// Store is where the checkpoint is: the installation may have been moved since.
	Store string `json:"store,omitempty"`
	// Holds are the pauses in force of everything, of the application of a service, and of all runtimes: one may have begun
	// while there was no run to be told. For the Installation: the pause of everything with which it begins, of a backup.
	Holds []ScopePause `json:"holds,omitempty"`
	// Ended are the last pauses of the same that have ended: one may have while there was no run to be told.
	Ended []PauseEnded `json:"ended,omitempty"`
	// Rules are those of the installation, for a Runtime and for the Installation itself.
	Rules *Rules `json:"rules,omitempty"`
	// Trail is the last line that the store has of the workflow's audit trail: the next one follows it.
	Trail *entities.TrailEnd `json:"trail,omitempty"`
	// Floor is the highest sequence that was ever claimed for an instance of a service of which nothing else is known.
	Floor int64 `json:"floor,omitempty"`
	Carried
	// Missed are the messages that closed runs accepted after the checkpoint, in order.
	Missed []Missed `json:"missed,omitempty"`
	// Next: there are more after that.
	Next Cursor `json:"next,omitzero"`
}

// MissedMessages are what a workflow had accepted after its newest checkpoint when its installation was moved away from the
// Temporal server that has its history.
type MissedMessages struct {
	ID       string   `json:"id"`    // of the workflow
	After    Cursor   `json:"after"` // the place of the checkpoint
	Messages []Missed `json:"messages"`
}

// Missed is a signal or an update of a closed run.
type Missed struct {
	Verb string `json:"verb"`
	// UpdateID stands for the request id of an update that has none.
	UpdateID string          `json:"updateId,omitempty"`
	Payload  json.RawMessage `json:"payload"`
	At       time.Time       `json:"at"`
}

// Installation is what a store and a Temporal namespace belong to together. A store has one record for each epoch, and the
// highest counts: whoever moves an installation raises it, so that what went on before is fenced off (F4).
type Installation struct {
	ID    string `json:"id"` // random, for ever
	Epoch int64  `json:"epoch"`
	// Namespace is that of Temporal by its name, NamespaceID what the server calls it: another server's is another.
	Namespace   string    `json:"namespace"`
	NamespaceID string    `json:"namespaceId"`
	At          time.Time `json:"at"`
	By          string    `json:"by,omitempty"` // whose own the store is, where it is anybody's
	// Exported says who had it taken along to another place. Nothing is started or applied from this store any more.
	Exported string `json:"exported,omitempty"`
	// BackupOf is when the backup was made that the store was filled with, if it was: what it says may be outdated, so that
	// everything comes back paused.
	BackupOf time.Time `json:"backupOf,omitzero"`
}
