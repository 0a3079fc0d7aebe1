package entities

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// This file holds actions of users and events, in the one form in which they are stored and shown.

// Approval is the decision of one user on a release and a topic: a channel's own topic ("prod-eu") or a shared one ("go-live") (A14).
type Approval struct {
	Topic   string    `json:"topic"`
	Who     Who       `json:"who"`
	At      time.Time `json:"at"`
	Reject  bool      `json:"reject,omitempty"`
	Comment string    `json:"comment,omitempty"`
	// Version is the full version whose apply was approved, if every apply requires an approval (C10).
	Version string `json:"version,omitempty"`
	// Release is the id of the release of that apply.
	Release string `json:"release,omitempty"`
	// Withdrawn says, by channel, why the approval no longer counts there: the release failed or was rolled back since.
	Withdrawn map[string]string `json:"withdrawn,omitempty"`
}

// Withdraw invalidates the approval in a channel. Copies of the approval do not change.
func (a *Approval) Withdraw(channel, why string) {
	withdrawn := maps.Clone(a.Withdrawn)
	if withdrawn == nil {
		withdrawn = map[string]string{}
	}
	withdrawn[channel] = why
	a.Withdrawn = withdrawn
}

// Rejection says who rejected a release, and why.
func (a *Approval) Rejection() string { return "rejected by " + a.Who.Name + Because(a.Comment) }

// Bypass lets one release pass one condition of one channel with any verdict (A15).
type Bypass struct {
	Channel   string    `json:"channel"`
	Condition string    `json:"condition"` // the id of a gate
	Who       Who       `json:"who"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// Text says who bypassed a condition, and why.
func (b *Bypass) Text() string { return "bypassed by " + b.Who.Name + Because(b.Reason) }

// NoRollbackBelow is the condition of a bypass that permits a rollback below the version that the configuration names.
const NoRollbackBelow = "no-rollback-below"

// Rollback is in progress, or complete (A22).
type Rollback struct {
	Release string    `json:"release"`         // id of the release that is rolled back, barred here
	From    string    `json:"from"`            // its full version
	Who     *Who      `json:"who,omitempty"`   // nil: automatic
	Reason  string    `json:"reason"`          // why
	At      time.Time `json:"at"`              // when it began
	Failed  time.Time `json:"failed,omitzero"` // FAILED_ROLLBACK since
	// WhilePaused: a user requested it although the channel, or the service, is paused.
	WhilePaused bool `json:"whilePaused,omitempty"`
}

// Text says who rolled it back, and why.
func (b *Rollback) Text() string {
	if b.Who != nil {
		return "rolled back by " + b.Who.Name + Because(b.Reason)
	}
	return "rolled back" + Because(b.Reason)
}

// Pause stops applies in a scope: an empty channel is the whole service (A16). Scope names a wider scope that contains the service:
// "application" or "runtime/NAME". Such a pause is announced to the service, and ended at its origin.
type Pause struct {
	Channel string    `json:"channel,omitempty"`
	Scope   string    `json:"scope,omitempty"`
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at"`
	Except  []string  `json:"except,omitempty"` // of everything: excluded applications
	Drain   *Drain    `json:"drain,omitempty"`  // of a runtime: it is drained
}

// Excludes reports whether a pause excludes an application.
func (p *Pause) Excludes(application string) bool { return slices.Contains(p.Except, application) }

// ResumeCommand is the command that ends a pause of a service, of one of its channels, or of a scope that contains the service.
func (p *Pause) ResumeCommand(application, service string) string {
	runtime, ofRuntime := strings.CutPrefix(p.Scope, ScopeRuntime)
	switch {
	case ofRuntime && p.Drain != nil:
		return "converge runtime restore " + runtime
	case ofRuntime:
		return "converge runtime resume " + runtime
	case p.Scope == ScopeApplication:
		return "converge resume " + application
	case p.Scope == ScopeInstallation:
		return "converge resume --all"
	case p.Channel != "":
		return "converge resume " + application + "/" + service + " --channel " + p.Channel
	}
	return "converge resume " + application + "/" + service
}

// Refusal is a signal that failed validation. It changed nothing and is kept for `status`.
type Refusal struct {
	Verb   string    `json:"verb"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// JournalEntry is one event. N grows by one with each entry, so a reader knows which entries are new.
type JournalEntry struct {
	N       int64     `json:"n"`
	At      time.Time `json:"at"`
	Channel string    `json:"channel,omitempty"`
	// Release is the id of the release whose opening the entry records; else empty.
	Release string `json:"release,omitempty"`
	Text    string `json:"text"`
}

// ExtensionProgress is the progress of an extension for one release (A21).
type ExtensionProgress struct {
	Channel  string    `json:"channel"` // the channel that it runs for; others share the result
	Attempts int       `json:"attempts,omitempty"`
	Since    time.Time `json:"since"`
	Next     time.Time `json:"next,omitzero"`
	Err      string    `json:"err,omitempty"`
	Tail     string    `json:"tail,omitempty"` // end of its output, at most 500 bytes
	Log      string    `json:"log,omitempty"`  // key of the whole output in the store
}

// LeaseRequest requests a lease. Its id identifies it. The newest limit in any request takes effect.
type LeaseRequest struct {
	ID          string        `json:"id"`
	Holder      string        `json:"holder"` // workflow id of the service
	Description string        `json:"what"`   // "shop/web prod-eu v9", for people
	Rollback    bool          `json:"rollback,omitempty"`
	Limit       int           `json:"limit"`
	Timeout     time.Duration `json:"timeout"` // of the apply; after it the holder is queried
}

// Lease is held, or waited for.
type Lease struct {
	LeaseRequest
	Since             time.Time `json:"since"`
	QueriedAt         time.Time `json:"asked,omitzero"` // when the holder was last queried
	UnansweredQueries int       `json:"asks,omitempty"` // unanswered queries
	NextQuery         time.Time `json:"due,omitzero"`   // when the holder is queried next
	// Undelivered: the holder could not be notified of the grant yet.
	Undelivered bool `json:"undelivered,omitempty"`
}

// Name returns the name of the lease for people.
func (r LeaseRequest) Name() string { return cmp.Or(r.Description, r.ID) }
