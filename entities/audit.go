package entities

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Kinds of AuditLine, and of the events that a Notification may name.
const (
	EventRelease   = "release"
	EventTarget    = "target" // a delivery decision
	EventSucceeded = "succeeded"
	EventFailed    = "failed"
	EventRollback  = "rollback"
	EventApproval  = "approval" // given or rejected
	EventWaiting   = "waiting"  // a channel begins to wait for an approval
	EventBypass    = "bypass"
	EventPause     = "pause" // resume too
	EventPin       = "pin"   // unpin too
	EventCancel    = "cancel"
	EventRetry     = "retry" // also of a rollout that is promoted, or aborted
	EventDelete    = "delete"
	EventRestart   = "restart" // its workflow was gone or reset, and goes on from a checkpoint
	EventManage    = "manage"  // unmanage too
	EventPublish   = "publish" // an application has a new incarnation, or comes from elsewhere
	EventError     = "error"   // a check cannot be evaluated, several times in a row
	EventRules     = "rules"   // an incarnation that loosens what a waiting release must pass
)

// EventKinds lists the kinds of AuditLine.
func EventKinds() []string {
	return []string{
		EventRelease, EventTarget, EventSucceeded, EventFailed, EventRollback, EventApproval, EventWaiting, EventBypass,
		EventPause, EventPin, EventCancel, EventRetry, EventDelete, EventRestart, EventManage, EventPublish, EventRules, EventError,
	}
}

// AuditLine is one decision that changed a target, one human act or one bypass: when, who, what, why
// and for which release. N counts up without gaps over a service's life, and each line names the one before by its hash: who
// changes, removes or inserts one changes all hashes after it, up to that of the last, which the workflow knows.
type AuditLine struct {
	N       int64     `json:"n"`
	Prev    string    `json:"prev,omitempty"` // Hash of the line before; none: the first
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Who     *Who      `json:"who,omitempty"` // nil: Converge itself
	Channel string    `json:"channel,omitempty"`
	Release string    `json:"release,omitempty"` // id
	Version string    `json:"version,omitempty"` // full version
	Text    string    `json:"text"`
	Reason  string    `json:"reason,omitempty"`
}

// Hash is the SHA-256, in hex, of the line as JSON: just the bytes that the store has of it.
func (l AuditLine) Hash() string {
	raw, err := json.Marshal(l)
	if err != nil {
		panic("entities: a line of the audit trail cannot be written: " + err.Error()) // it has no field that could not be
	}
	return HashOfLine(raw)
}

// HashOfLine is the hash of a line that was read from the store, with fields of newer versions too.
func HashOfLine(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// NameTaken is the text of the line that tells of another name: of a channel, to which the line belongs, or of the service.
func NameTaken(old, name string, incarnation int64) string {
	return fmt.Sprintf("%s is called %s from incarnation %d on", old, name, incarnation)
}

// Renamed is the former name of the line's channel, where the line tells of that.
func (l AuditLine) Renamed() (old string, ok bool) {
	old, _, ok = strings.Cut(l.Text, " is called "+l.Channel+" from incarnation ")
	return old, ok && l.Kind == EventPublish && l.Channel != ""
}

// KeptLine is a line with the hash of what is kept of it.
type KeptLine struct {
	AuditLine
	Hash string
}

// TrailEnd is the last line that was ever noted, by its number and its hash; the zero value: none is known.
type TrailEnd struct {
	N    int64  `json:"n"`
	Hash string `json:"hash"`
}

// Loosening is something that a configuration asks for less than the one before: of a channel, or, without one, of the whole
// service.
type Loosening struct {
	Channel string `json:"channel,omitempty"`
	Text    string `json:"text"`
}
