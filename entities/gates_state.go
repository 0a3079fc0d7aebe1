package entities

import "time"

// This file holds what a State remembers of gates and of ways back. All of it is bounded: approvals,
// bypasses and extensions live and die with their release, check readings with the release next in
// line.

// Approval is one person's word on a release and a topic: a channel's own ("prod-eu") or a shared
// one ("go-live") (A14).
type Approval struct {
	Topic   string    `json:"topic"`
	Who     Who       `json:"who"`
	At      time.Time `json:"at"`
	Reject  bool      `json:"reject,omitempty"`
	Comment string    `json:"comment,omitempty"`
	// Version is the full version whose apply was approved, where every apply asks for it (C10).
	Version string `json:"version,omitempty"`
}

// Bypass lets one release pass one condition of one channel, whatever it says (A15).
type Bypass struct {
	Channel   string    `json:"channel"`
	Condition string    `json:"condition"` // a Judgement's id
	Who       Who       `json:"who"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// ExtensionState is how far an extension is for one release (A21).
type ExtensionState struct {
	Running  bool      `json:"running,omitempty"`
	Done     bool      `json:"done,omitempty"`   // succeeded
	Failed   bool      `json:"failed,omitempty"` // attempts are spent
	Channel  string    `json:"channel"`          // that it runs for; others share its outcome
	Attempts int       `json:"attempts,omitempty"`
	Since    time.Time `json:"since"`
	Next     time.Time `json:"next,omitzero"`
	Err      string    `json:"err,omitempty"`
	Tail     string    `json:"tail,omitempty"` // end of its output, at most 500 bytes
	Log      string    `json:"log,omitempty"`  // key of the whole output in the store
}

// ExtensionKey names one run of an extension in Release.Extensions.
func (e Extension) ExtensionKey() string { return string(e.Stage) + "/" + e.Name + "@" + e.Key }

// CheckReading is what judging a check gave.
type CheckReading struct {
	Verdict Verdict   `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
	Next    time.Time `json:"next,omitzero"` // when it may next change by itself
	At      time.Time `json:"at"`
}

// CheckState is the newest reading of a check, of the release it was asked about.
type CheckState struct {
	Release string `json:"release"` // id; "" for a repair
	CheckReading
	// Definition that was judged: a reading under another one does not count.
	Definition string    `json:"definition,omitempty"`
	Since      time.Time `json:"since"`            // of this verdict
	Errors     int       `json:"errors,omitempty"` // in a row (D16)
}

// Preflight is the one look at everything external right before a target is set (A10), or at the
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

// Rollback is a way back under way or arrived at (A22).
type Rollback struct {
	Release string    `json:"release"`         // id of the release that is taken back, barred here
	From    string    `json:"from"`            // its full version
	Who     *Who      `json:"who,omitempty"`   // nil: automatic
	Reason  string    `json:"reason"`          // why
	At      time.Time `json:"at"`              // when it began
	Failed  time.Time `json:"failed,omitzero"` // FAILED_ROLLBACK since
}

// Pin holds a channel at a target whatever is released, until it is unpinned (A17).
type Pin struct {
	Channel string    `json:"channel"`
	Target  Target    `json:"target"`
	Who     Who       `json:"who"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at"`
}

// Deletion is a service being taken down (A24).
type Deletion struct {
	Who    Who       `json:"who"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
	// Gone lists the channels whose objects are removed.
	Gone []string `json:"gone,omitempty"`
}

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
	EventRetry     = "retry"
	EventDelete    = "delete"
	EventRules     = "rules" // an incarnation that loosens what a waiting release must pass
)

// EventKinds lists the kinds of AuditLine.
func EventKinds() []string {
	return []string{
		EventRelease, EventTarget, EventSucceeded, EventFailed, EventRollback, EventApproval, EventWaiting, EventBypass,
		EventPause, EventPin, EventCancel, EventRetry, EventDelete, EventRules,
	}
}

// AuditLine is one decision that changed a target, one human act or one bypass: when, who, what, why
// and for which release. N counts up without gaps over a service's life.
type AuditLine struct {
	N       int64     `json:"n"`
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Who     *Who      `json:"who,omitempty"` // nil: Converge itself
	Channel string    `json:"channel,omitempty"`
	Release string    `json:"release,omitempty"` // id
	Version string    `json:"version,omitempty"` // full version
	Text    string    `json:"text"`
	Reason  string    `json:"reason,omitempty"`
}

// MaxAudit bounds what is kept of the audit trail in state: the workflow flushes it to the store long
// before. One turn may write several lines for each of hundreds of channels, and none may be lost.
const MaxAudit = 2000

// FlushAudit is how many audit lines wait in state before they are written to the store.
const FlushAudit = 20

// PreflightOp re-reads checks of a channel now, all at once, before a target is set.
type PreflightOp struct {
	Channel string
	Release string
	Checks  []CheckLook
	Window  bool
}

// ExtensionOp runs an extension once.
type ExtensionOp struct {
	Channel   string
	Release   string
	Extension Extension
	Attempt   int
}

// LeaseOp asks for a lease, or gives one back.
type LeaseOp struct {
	Channel  string
	Runtime  string
	ID       string
	Version  string // full version that is applied
	GiveBack bool
	Again    bool // it was asked for before, and the Runtime workflow may have forgotten
	Rollback bool // goes first
	Limit    int
	Timeout  time.Duration // of the apply: past it the Runtime workflow asks whether it is still held
}

// RemoveOp takes down what a channel's instance is made of.
type RemoveOp struct {
	Channel string
	Target  Target
}

// CheckLook is one check to be judged, and what is known of it.
type CheckLook struct {
	Channel     string        `json:"channel"`
	ID          string        `json:"id"`
	Kind        CheckKind     `json:"kind"`
	Definition  string        `json:"definition"`
	Release     string        `json:"release,omitempty"` // id; "" for a repair
	FullVersion string        `json:"fullVersion"`       // asked about
	Payload     string        `json:"payload,omitempty"` // digest, of the version asked about
	Present     string        `json:"present,omitempty"` // digest of the payload that is there now
	Known       string        `json:"known,omitempty"`   // CheckReading.Digest of what is known; "" tells whatever is seen
	Interval    time.Duration `json:"interval"`
}

// Key tells looks of one service apart. A repair may ask about a check that a release asks about too.
func (l CheckLook) Key() string { return l.Channel + "/" + l.reading() }

// reading is the key of what is known of it, in Instance.Checks.
func (l CheckLook) reading() string {
	if l.Release == "" {
		return "repair:" + l.ID
	}
	return l.ID
}

// Digest tells readings apart that matter: a new reason alone is no news, a new time is.
func (r CheckReading) Digest() string {
	if r.Verdict == "" {
		return ""
	}
	next := ""
	if !r.Next.IsZero() {
		next = r.Next.UTC().Format(time.RFC3339)
	}
	return string(r.Verdict) + " " + next
}
