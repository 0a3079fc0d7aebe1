package entities

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// This file holds what people did and what happened, in the one form in which it is remembered and shown.

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
	// Release is the id of the one with which that apply was to come.
	Release string `json:"release,omitempty"`
	// Withdrawn says, by channel, why it no longer counts there: the release failed or was rolled back since.
	Withdrawn map[string]string `json:"withdrawn,omitempty"`
}

// Withdraw has it count no longer in a channel. Copies of it are left as they are.
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

// Bypass lets one release pass one condition of one channel, whatever it says (A15).
type Bypass struct {
	Channel   string    `json:"channel"`
	Condition string    `json:"condition"` // the id of a gate
	Who       Who       `json:"who"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// Text says who bypassed a condition, and why.
func (b *Bypass) Text() string { return "bypassed by " + b.Who.Name + Because(b.Reason) }

// NoRollbackBelow is what a bypass names that lets a release be taken back below the version that the configuration names.
const NoRollbackBelow = "no-rollback-below"

// Rollback is under way, or has arrived (A22).
type Rollback struct {
	Release string    `json:"release"`         // id of the release that is taken back, barred here
	From    string    `json:"from"`            // its full version
	Who     *Who      `json:"who,omitempty"`   // nil: automatic
	Reason  string    `json:"reason"`          // why
	At      time.Time `json:"at"`              // when it began
	Failed  time.Time `json:"failed,omitzero"` // FAILED_ROLLBACK since
	// WhilePaused: a person asked for it though the channel, or the service, is paused.
	WhilePaused bool `json:"whilePaused,omitempty"`
}

// Text says that something was rolled back, by whom and why.
func (b *Rollback) Text() string {
	if b.Who != nil {
		return "rolled back by " + b.Who.Name + Because(b.Reason)
	}
	return "rolled back" + Because(b.Reason)
}

// Pause stops applies in a scope: an empty channel is the whole service (A16). Scope names a wider one that
// a service is part of: "application" or "runtime/NAME"; such a pause is announced to the service, and ended
// there.
type Pause struct {
	Channel string    `json:"channel,omitempty"`
	Scope   string    `json:"scope,omitempty"`
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at"`
	Except  []string  `json:"except,omitempty"` // of everything: the applications that it leaves alone
	Drain   *Drain    `json:"drain,omitempty"`  // of a runtime: it is taken out of service
}

// Spares tells whether a pause leaves an application alone.
func (p *Pause) Spares(application string) bool { return slices.Contains(p.Except, application) }

// Refusal is a signal that did not validate: it changed nothing and is kept for `status`.
type Refusal struct {
	Verb   string    `json:"verb"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// JournalLine is something that happened. N grows by one with each line, so that a reader knows what it has
// seen.
type JournalLine struct {
	N       int64     `json:"n"`
	At      time.Time `json:"at"`
	Channel string    `json:"channel,omitempty"`
	// Release is the id of the release that the line says was opened; else empty.
	Release string `json:"release,omitempty"`
	Text    string `json:"text"`
}

// ExtensionProgress is how far an extension is for one release (A21).
type ExtensionProgress struct {
	Channel  string    `json:"channel"` // that it runs for; others share its outcome
	Attempts int       `json:"attempts,omitempty"`
	Since    time.Time `json:"since"`
	Next     time.Time `json:"next,omitzero"`
	Err      string    `json:"err,omitempty"`
	Tail     string    `json:"tail,omitempty"` // end of its output, at most 500 bytes
	Log      string    `json:"log,omitempty"`  // key of the whole output in the store
}

// LeaseRequest asks for a lease. It is told apart by its id; the newest limit that anybody names counts.
type LeaseRequest struct {
	ID       string        `json:"id"`
	Holder   string        `json:"holder"` // workflow id of the service
	What     string        `json:"what"`   // "shop/web prod-eu v9", for people
	Rollback bool          `json:"rollback,omitempty"`
	Limit    int           `json:"limit"`
	Timeout  time.Duration `json:"timeout"` // of the apply: past it the holder is asked
}

// Lease is held, or waited for.
type Lease struct {
	LeaseRequest
	Since time.Time `json:"since"`
	Asked time.Time `json:"asked,omitzero"` // the holder was asked whether it still holds it
	Asks  int       `json:"asks,omitempty"` // how often, without an answer
	Due   time.Time `json:"due,omitzero"`   // when the holder is asked next
	// Undelivered: the holder could not be notified of the grant yet.
	Undelivered bool `json:"undelivered,omitempty"`
}

// Name is the lease as people know it.
func (r LeaseRequest) Name() string { return cmp.Or(r.What, r.ID) }
