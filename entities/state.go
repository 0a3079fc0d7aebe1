package entities

import (
	"encoding/json"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// State is everything a Service workflow knows. With all of it lost but releases and pauses, the
// rest is rebuilt from readings (DESIGN section 4). It is carried across continue-as-new.
type State struct {
	Application string               `json:"application"`
	Service     string               `json:"service"`
	Store       string               `json:"store,omitempty"`
	SpecDigest  string               `json:"specDigest,omitempty"`
	Spec        *Spec                `json:"spec,omitempty"`
	Releases    []*Release           `json:"releases,omitempty"` // oldest first
	LastRelease int64                `json:"lastRelease,omitempty"`
	LeaseCount  int64                `json:"leaseCount,omitempty"` // leases ever asked for
	Instances   map[string]*Instance `json:"instances,omitempty"`  // by channel
	Pauses      []Pause              `json:"pauses,omitempty"`
	Inbox       []Message            `json:"inbox,omitempty"`    // signals not yet carried out
	Requests    []Request            `json:"requests,omitempty"` // answered request ids, oldest first
	Refused     []Refusal            `json:"refused,omitempty"`  // bounded tail
	Journal     []JournalLine        `json:"journal,omitempty"`  // bounded tail
	Lines       int64                `json:"lines,omitempty"`    // journal lines ever written
	// Held is the incarnation whose configuration waits for the next release (configChanges: hold).
	Held int64 `json:"held,omitempty"`
	// Problem says why the newest incarnation could not be taken over, until it could.
	Problem string `json:"problem,omitempty"`
	Pins    []Pin  `json:"pins,omitempty"`
	// Audit holds the lines that are not yet in the store, oldest first; AuditLines counts all ever written.
	Audit      []AuditLine `json:"audit,omitempty"`
	AuditLines int64       `json:"auditLines,omitempty"`
	// Announcements are audit lines that somebody is still to be told of.
	Announcements []AuditLine `json:"announcements,omitempty"`
	// Heard is the number of the last line that each notification was told of, while there is more to tell.
	Heard map[string]int64 `json:"heard,omitempty"`
	// ToldAt is when the application began to tell the incarnation that is known: nothing that it told
	// earlier counts any more (D15).
	ToldAt   time.Time `json:"toldAt,omitzero"`
	Deletion *Deletion `json:"deletion,omitempty"`
}

// Bounds of what is kept in state; what is older is dropped, oldest first.
const (
	MaxFinishedReleases = 10
	MaxOpenReleases     = 50
	MaxRequests         = 100
	MaxRefused          = 10
	MaxJournal          = 40
	MaxGoods            = 5
)

// Release is a user's intent that a version goes out, and how far it is in each channel.
type Release struct {
	ID          string    `json:"id"`
	Version     string    `json:"version"`     // as a person or CI named it
	FullVersion string    `json:"fullVersion"` // as runtimes see it; "v7-i42" for a config release
	Incarnation int64     `json:"incarnation"`
	Hash        string    `json:"hash"`
	By          string    `json:"by"`
	At          time.Time `json:"at"`
	// Payloads and Templates: digest by channel, of the rendered payload and of what it was
	// rendered from.
	Payloads  map[string]string `json:"payloads"`
	Templates map[string]string `json:"templates,omitempty"`
	// Present: for a config release, what its configuration renders to under the version that a
	// channel already has; filled when its turn comes there.
	Present map[string]Target      `json:"present,omitempty"`
	Phases  map[string]*PhaseState `json:"phases"`

	Approvals  []Approval                 `json:"approvals,omitempty"`
	Bypasses   []Bypass                   `json:"bypasses,omitempty"`
	Extensions map[string]*ExtensionState `json:"extensions,omitempty"` // by ExtensionKey
}

// Config tells whether only a configuration change made this release (B9).
func (r *Release) Config() bool { return r.Version != r.FullVersion }

// PhaseIn implements maestro.Release.
func (r *Release) PhaseIn(channel string) (maestro.Phase, bool) {
	if p := r.Phases[channel]; p != nil {
		return p.Phase, true
	}
	return "", false
}

// Over tells whether the release is finished in every channel.
func (r *Release) Over() bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, p := range r.Phases {
		if !p.Phase.Over() {
			return false
		}
	}
	return true
}

// Target is what the release would put into a channel.
func (r *Release) Target(channel string) Target {
	return Target{FullVersion: r.FullVersion, Incarnation: r.Incarnation, Payload: r.Payloads[channel]}
}

// PhaseState is a release's phase in one channel, since when and why.
type PhaseState struct {
	Phase  maestro.Phase `json:"phase"`
	Since  time.Time     `json:"since"`
	Reason string        `json:"reason,omitempty"`
	// CalledOff: a person took the release back here. A change of configuration does not bring its
	// version again.
	CalledOff bool `json:"calledOff,omitempty"`
	// Blocked are the checks that said FAIL before the release entered: a newer one may pass it (B10).
	Blocked []string `json:"blocked,omitempty"`
}

// Target is the snapshot of desired state that an instance is moved to: one identity (DESIGN
// section 1).
type Target struct {
	FullVersion string `json:"fullVersion"`
	Incarnation int64  `json:"incarnation"`
	Payload     string `json:"payload"` // digest
}

// Same tells whether two targets put the same thing there; the incarnation that said so may
// differ (A9).
func (t Target) Same(o Target) bool { return t.FullVersion == o.FullVersion && t.Payload == o.Payload }

// Instance is a service in a channel: what it should be at, what is there, and what is being done.
type Instance struct {
	Channel     string    `json:"channel"`
	Runtime     string    `json:"runtime,omitempty"` // where all that follows was seen and done
	Target      *Target   `json:"target,omitempty"`
	TargetSince time.Time `json:"targetSince,omitzero"`
	// Converged: the present target has been stable once; any later difference is drift.
	Converged bool    `json:"converged,omitempty"`
	LastGood  *Target `json:"lastGood,omitempty"`
	// Failure says why the present target failed here for good, until it is retried or replaced.
	Failure string `json:"failure,omitempty"`

	// Reading holds the last good objects; its Err is set while looks fail.
	Reading Reading `json:"reading"`
	Known   string  `json:"known,omitempty"` // digest of the last look, errors included; "" before the first
	// Fresh: the reading was taken after the last apply ended.
	Fresh    bool      `json:"fresh,omitempty"`
	LookedAt time.Time `json:"lookedAt,omitzero"` // by the engine's clock, failed looks included
	ErrSince time.Time `json:"errSince,omitzero"`
	Asked    *Asked    `json:"asked,omitempty"`
	// Look: someone asked for a look now, whatever is known.
	Look bool `json:"look,omitempty"`

	Progress ApplyState `json:"progress"`
	PausedAt time.Time  `json:"pausedAt,omitzero"` // the progress deadline stands still since then

	// StableSince: the target's objects are stable since then, and its post-deployment window runs.
	StableSince time.Time `json:"stableSince,omitzero"`
	// Soaked are the checks whose window has ended with a fresh PASS.
	Soaked []string `json:"soaked,omitempty"`
	// Before are the good targets before LastGood, oldest first, at most MaxGoods.
	Before   []Target  `json:"before,omitempty"`
	Rollback *Rollback `json:"rollback,omitempty"`
	// Return: the target was there before, and is applied even when what is there looks like it.
	Return bool `json:"return,omitempty"`
	// Away: what the channel comes back to when it is pinned no longer.
	Away *PinnedAway `json:"away,omitempty"`
	// Place of the channel in the spec, and, once it is no longer declared, its runtime as it was.
	Place int          `json:"place,omitempty"`
	Left  *RuntimeSpec `json:"left,omitempty"`
	// Removed: what ran here was begun to be taken down.
	Removed bool `json:"removed,omitempty"`
	// Told: what people were told waits for their approval here: a release (id), or an apply.
	Told string `json:"told,omitempty"`
	// Checks are readings by check id, of the release next in line, in progress, or of a repair.
	Checks    map[string]*CheckState `json:"checks,omitempty"`
	Preflight *Preflight             `json:"preflight,omitempty"`
	Lease     *Lease                 `json:"lease,omitempty"`
	// ApplyApproved: the next apply was approved, where every apply asks for it (C10).
	ApplyApproved *Approval `json:"applyApproved,omitempty"`
	// ApplyAsked: an apply of the present target waits for that since then.
	ApplyAsked time.Time `json:"applyAsked,omitzero"`
	// wants is what the last decision said that the gates want; it is not carried.
	wants *wants

	Status Status    `json:"status,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of the status
}

// ApplyState is what is known of the applies of the present target.
type ApplyState struct {
	Running  bool      `json:"running,omitempty"`
	First    time.Time `json:"first,omitzero"`   // start of the first one: the progress deadline counts from here
	Started  time.Time `json:"started,omitzero"` // start of the last one
	Ended    time.Time `json:"ended,omitzero"`
	Attempts int       `json:"attempts,omitempty"` // failed in a row, or repairs without effect
	OK       bool      `json:"ok,omitempty"`       // the last one succeeded
	Err      string    `json:"err,omitempty"`
	Next     time.Time `json:"next,omitzero"`    // not before
	Overdue  time.Time `json:"overdue,omitzero"` // the progress deadline has passed, and a last look was asked for
}

// Asked is what an exit-code runtime answered about a version that is not yet the target (C7).
type Asked struct {
	Target  Target  `json:"target"`
	Running bool    `json:"running,omitempty"`
	Reading Reading `json:"reading"`
}

// Pause holds a scope: an empty channel is the whole service (A16). Scope names a wider one that this
// is part of: "application" or "runtime/NAME"; such a pause is told to the service and ends there.
type Pause struct {
	Channel string    `json:"channel,omitempty"`
	Scope   string    `json:"scope,omitempty"`
	By      string    `json:"by"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at"`
}

// Message is a signal as it came, waiting to be carried out.
type Message struct {
	Verb    string          `json:"verb"`
	Payload json.RawMessage `json:"payload"`
	At      time.Time       `json:"at"`
	Who     *Who            `json:"who,omitempty"` // proven by a token, which the payload no longer has
}

// Request is a request id that was answered, with the answer (idempotence across continue-as-new).
type Request struct {
	ID     string          `json:"id"`
	Verb   string          `json:"verb"`
	Answer json.RawMessage `json:"answer"`
}

// Refusal is a signal that did not validate: it changed nothing and is kept for `status`.
type Refusal struct {
	Verb   string    `json:"verb"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// JournalLine is something that happened. N grows by one with each line, so that a reader knows
// what it has seen.
type JournalLine struct {
	N       int64     `json:"n"`
	At      time.Time `json:"at"`
	Channel string    `json:"channel,omitempty"`
	Text    string    `json:"text"`
}

// NewState is the state of a service of which nothing is known yet.
func NewState(application, service string) *State {
	return &State{Application: application, Service: service, Instances: map[string]*Instance{}}
}

// Record appends a journal line.
func (s *State) Record(now time.Time, channel, text string) {
	s.Lines++
	s.Journal = keepLast(append(s.Journal, JournalLine{N: s.Lines, At: now, Channel: channel, Text: text}), MaxJournal)
}

// Refuse keeps a signal that changed nothing.
func (s *State) Refuse(verb, by, reason string, now time.Time) {
	s.Refused = keepLast(append(s.Refused, Refusal{Verb: verb, By: by, Reason: reason, At: now}), MaxRefused)
}

// Answered returns the answer once given to a request id.
func (s *State) Answered(verb, id string) (json.RawMessage, bool) {
	if id == "" {
		return nil, false
	}
	for _, r := range s.Requests {
		if r.ID == id && r.Verb == verb {
			return r.Answer, true
		}
	}
	return nil, false
}

// Answer remembers what a request id was answered.
func (s *State) Answer(verb, id string, answer json.RawMessage) {
	if id != "" {
		s.Requests = keepLast(append(s.Requests, Request{ID: id, Verb: verb, Answer: answer}), MaxRequests)
	}
}

// Newest is the newest release, or nil.
func (s *State) Newest() *Release {
	if len(s.Releases) == 0 {
		return nil
	}
	return s.Releases[len(s.Releases)-1]
}

func keepLast[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	return append([]T(nil), list[len(list)-n:]...)
}
