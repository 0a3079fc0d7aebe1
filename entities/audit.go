package entities

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Kinds of AuditEntry, and of the events that a Notification may name.
const (
	EventRelease   = "release"
	EventTarget    = "target" // a delivery decision
	EventSucceeded = "succeeded"
	EventFailed    = "failed"
	EventRollback  = "rollback"
	EventApproval  = "approval" // given or withdrawn
	EventRejection = "rejection"
	EventWaiting   = "waiting" // a channel begins to wait for an approval
	EventBypass    = "bypass"
	EventPause     = "pause" // or resume
	EventPin       = "pin"   // or unpin
	EventCancel    = "cancel"
	EventRetry     = "retry" // or a rollout that is promoted or aborted
	EventDelete    = "delete"
	EventRestart   = "restart"  // its workflow was gone or reset, and continues from a checkpoint
	EventManage    = "manage"   // or unmanage
	EventPublish   = "publish"  // an application has a new incarnation, or a new origin
	EventDegraded  = "degraded" // a converged channel is drifted or unhealthy, or does not stay stable
	EventRepaired  = "repaired" // it is stable again
	EventFlapping  = "flapping" // it does not stay stable after several repairs
	EventError     = "error"    // a check could not be evaluated several times in a row
	EventRules     = "rules"    // an incarnation relaxes the gates of a waiting release
)

// EventKinds lists the kinds of AuditEntry.
func EventKinds() []string {
	return []string{
		EventRelease, EventTarget, EventSucceeded, EventFailed, EventRollback, EventApproval, EventRejection, EventWaiting, EventBypass,
		EventPause, EventPin, EventCancel, EventRetry, EventDelete, EventRestart, EventManage, EventPublish, EventRules, EventError,
		EventDegraded, EventRepaired, EventFlapping,
	}
}

// AuditEntry is one decision that changed a target, one user action or one bypass: when, who, what, why and for which release. N has no
// gaps over a service's life. Each entry contains the hash of the entry before. So a changed, removed or inserted entry changes all hashes
// after it, up to the last one, which the workflow knows.
type AuditEntry struct {
	N       int64     `json:"n"`
	Prev    string    `json:"prev,omitempty"` // Hash of the entry before; none: the first
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Who     *Who      `json:"who,omitempty"`     // nil: Converge itself
	Service string    `json:"service,omitempty"` // key, in the trail of an application, if the entry concerns one service only
	Channel string    `json:"channel,omitempty"`
	Release string    `json:"release,omitempty"` // id
	Version string    `json:"version,omitempty"` // full version
	Text    string    `json:"text"`
	Reason  string    `json:"reason,omitempty"`
}

// Hash returns the SHA-256, in hex, of the entry as JSON: the exact bytes in the store.
func (l AuditEntry) Hash() string {
	raw, err := json.Marshal(l)
	if err != nil {
		panic("entities: a line of the audit trail cannot be written: " + err.Error()) // cannot fail: every field can be marshalled
	}
	return HashOfEntry(raw)
}

// HashOfEntry returns the hash of an entry read from the store, including fields of newer versions.
func HashOfEntry(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// RenameText is the text of an entry about a new name: of the entry's channel, or of the service.
func RenameText(old, name string, incarnation int64) string {
	return fmt.Sprintf("%s is called %s from incarnation %d on", old, name, incarnation)
}

// RenamedFrom returns the former name of the entry's channel, if the entry records a new name.
func (l AuditEntry) RenamedFrom() (old string, ok bool) {
	old, _, ok = strings.Cut(l.Text, " is called "+l.Channel+" from incarnation ")
	return old, ok && l.Kind == EventPublish && l.Channel != ""
}

// StoredEntry is an entry with the hash of its stored bytes.
type StoredEntry struct {
	AuditEntry
	Hash string
}

// TrailEnd is the number and the hash of the last recorded entry. The zero value means that none is known.
type TrailEnd struct {
	N    int64  `json:"n"`
	Hash string `json:"hash"`
}

// Loosening is a requirement that a new configuration relaxes: of a channel, or, without one, of the whole service.
type Loosening struct {
	Channel string `json:"channel,omitempty"`
	Text    string `json:"text"`
}
