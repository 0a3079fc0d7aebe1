package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds the payloads of the verbs and activities of gates and of ways back.

// ApprovalRequest is the payload of approve and reject (A14). Topic is a channel's name, a shared
// approval's name, or "apply/CHANNEL" where every apply is approved.
type ApprovalRequest struct {
	Act
	Version string `json:"version"`
	Topic   string `json:"topic"`
	Comment string `json:"comment,omitempty"`
}

// BypassRequest is the payload of bypass (A15); a reason is required.
type BypassRequest struct {
	Act
	Version   string `json:"version"`
	Channel   string `json:"channel"`
	Condition string `json:"condition"` // as `explain` shows it
}

// PinRequest is the payload of a Service's pin and unpin (A17). A pin without a version is to the one that is there; unpin
// takes none.
type PinRequest struct {
	Act
	Channel string `json:"channel"`
	Version string `json:"version,omitempty"`
	// Stay, of an unpin: what the channel was pinned to stays until something newer comes.
	Stay bool `json:"stay,omitempty"`
}

// IncarnationPin is the payload of an Application's pin and unpin (A17, D15); unpin takes no number.
type IncarnationPin struct {
	Act
	Incarnation int64 `json:"incarnation,omitempty"`
}

// ScopePause announces to a service that something it is part of was paused, or resumed: then Pause is nil.
type ScopePause struct {
	Scope string          `json:"scope"` // "application", "runtime/NAME" or "installation"
	Pause *entities.Pause `json:"pause,omitempty"`
}

// PauseEnded says of something that is not paused when the last pause of it that has ended had begun.
type PauseEnded struct {
	Scope string    `json:"scope"`
	Began time.Time `json:"began"`
}

// LeaseSignal names a lease, and the runtime that grants it.
type LeaseSignal struct {
	ID      string `json:"id"`
	Runtime string `json:"runtime,omitempty"`
}

// LeaseAct is the payload of a Runtime's release and grant when a person sends it: a lease is taken
// back from its holder, or one that waits goes out of turn. Without By it is the holder that gives back.
type LeaseAct struct {
	Act
	LeaseSignal
}

// GrantedAnswer says whether a runtime has granted a lease.
type GrantedAnswer struct {
	Granted bool `json:"granted,omitempty"`
}

// InForceRequest asks for the pause of something wider that is in force for a service: Scope is as in ScopePause.
type InForceRequest struct {
	Application string `json:"application"`
	Scope       string `json:"scope"`
	Service     string `json:"service,omitempty"` // whose turn of a drain is answered; "": those of all are
}

// LeaseCall asks the lease activity to signal a Runtime workflow: exactly one of the two.
type LeaseCall struct {
	Runtime string                 `json:"runtime"`
	Request *entities.LeaseRequest `json:"request,omitempty"`
	Give    string                 `json:"give,omitempty"` // lease id
	Keep    string                 `json:"keep,omitempty"` // lease id
}

// RuntimeStatus answers a Runtime's status query.
type RuntimeStatus struct {
	Schema  string          `json:"schema"` // converge.runtime/v1
	Runtime string          `json:"runtime"`
	Limit   int             `json:"limit,omitempty"`
	Pause   *entities.Pause `json:"pause,omitempty"`
	// Announcing: it is being announced to services that a pause began or ended.
	Announcing bool               `json:"announcing,omitempty"`
	Held       []entities.Lease   `json:"held,omitempty"`
	Waiting    []entities.Lease   `json:"waiting,omitempty"`
	Refused    []entities.Refusal `json:"refused,omitempty"`
	// Audit is the newest of what people did, and of what was taken back, oldest first.
	Audit   []entities.AuditLine `json:"audit,omitempty"`
	Problem string               `json:"problem,omitempty"`
}

// InstallationStatus answers an Installation's status query.
type InstallationStatus struct {
	Schema string          `json:"schema"` // converge.installation/v1
	ID     string          `json:"id"`
	Pause  *entities.Pause `json:"pause,omitempty"`
	Rules  Rules           `json:"rules,omitzero"`
	// Announcing: it is being announced to services that a pause began or ended.
	Announcing bool                 `json:"announcing,omitempty"`
	Refused    []entities.Refusal   `json:"refused,omitempty"`
	Audit      []entities.AuditLine `json:"audit,omitempty"` // the newest of what people did, oldest first
	Problem    string               `json:"problem,omitempty"`
}

// CheckRequest asks to evaluate checks of one service: until one is not as known (Check), or once
// (Preflight).
type CheckRequest struct {
	Application string                `json:"application"`
	Service     string                `json:"service"`
	ServiceID   string                `json:"serviceId"`
	Checks      []entities.Evaluation `json:"checks"`
	// Keys are the channels that had another name first, with that: commands know them by it.
	Keys map[string]string `json:"keys,omitempty"`
	// Name is what people call the service, and Others what other services of that name were called first, where that differs.
	Name   string            `json:"name,omitempty"`
	Others map[string]string `json:"others,omitempty"`
	// Releases are those that the checks are asked about, where the service waits for the answer and cannot be asked for them.
	Releases []ReleaseStatus `json:"releases,omitempty"`
}

// CheckAnswer holds readings by Evaluation.Key.
type CheckAnswer struct {
	Readings map[string]entities.CheckReading `json:"readings"`
}

// ExtensionRequest runs an extension once (A21).
type ExtensionRequest struct {
	Application string        `json:"application"`
	Service     string        `json:"service"`
	ServiceID   string        `json:"serviceId"`
	Channel     string        `json:"channel"`
	Release     string        `json:"release"`
	Version     string        `json:"version"`
	FullVersion string        `json:"fullVersion"`
	Name        string        `json:"name"`
	Key         string        `json:"key"` // Extension.RunKey
	Definition  string        `json:"definition"`
	Attempt     int           `json:"attempt"`
	Begun       int           `json:"begun,omitempty"` // how often it was begun anew after it had ended
	Timeout     time.Duration `json:"timeout"`
	ReportOnly  bool          `json:"reportOnly,omitempty"` // it is refused (A25)
	// BackTo is, of a release that was taken back, the full version that is there instead.
	BackTo string `json:"backTo,omitempty"`
}

// ExtensionAnswer is how it went; an empty Err is success.
type ExtensionAnswer struct {
	Err  string `json:"err,omitempty"`
	Tail string `json:"tail,omitempty"` // end of the output, at most 500 bytes
	Log  string `json:"log,omitempty"`  // key of the whole output in the store
}

// RemoveRequest takes down an instance.
type RemoveRequest struct {
	Application   string        `json:"application"`
	Service       string        `json:"service"`
	ServiceID     string        `json:"serviceId"`
	Runtime       string        `json:"runtime"`
	RuntimeDigest string        `json:"runtimeDigest"`
	Instance      InstanceRef   `json:"instance"`
	Timeout       time.Duration `json:"timeout"`
	Sequence      int64         `json:"sequence,omitempty"` // as of an apply
	// Successor: what is removed was left on a runtime that the instance is not on any more.
	Successor *Successor `json:"successor,omitempty"`
	// ReportOnly: the channel only reports, and the removal is refused (A25).
	ReportOnly bool `json:"reportOnly,omitempty"`
}

// Successor is where an instance is that has left something on another runtime, and its present target there. Nothing is
// removed once something later was claimed for the instance, nor where both runtimes reach the same place.
type Successor struct {
	Runtime       string      `json:"runtime"`
	RuntimeDigest string      `json:"runtimeDigest"`
	Instance      InstanceRef `json:"instance"`
	Sequence      int64       `json:"sequence"`
}

// RemoveAnswer says whether all is gone; an empty Err is yes.
type RemoveAnswer struct {
	Err string `json:"err,omitempty"`
	// Renamed: nothing was removed, since the runtime is that of the successor by another name.
	Renamed bool `json:"renamed,omitempty"`
}

// VerifyRequest asks who a token proves, and whether it is still to serve this request.
type VerifyRequest struct {
	Identity entities.Identity `json:"identity"`
	Token    string            `json:"token"`
	// RequestID and Of (a digest of what is asked, and where) are the one request that the token is to serve.
	RequestID string `json:"requestId,omitempty"`
	Of        string `json:"of,omitempty"`
	// At is when the request came, if that is a while ago: the token had to be valid then. Zero: now.
	At time.Time `json:"at,omitzero"`
	// Urgent: it is not held while the store does not answer, which then does not know that the token was used.
	Urgent bool `json:"urgent,omitempty"`
}

// NoIdentity is part of what a token is refused with where nothing says who issues tokens.
const NoIdentity = "no identity: nothing says who issues its tokens"

// VerifyAnswer is who it is. A token that does not hold is an ErrRefused.
type VerifyAnswer struct {
	Who entities.Who `json:"who"`
}

// HistoryRequest appends audit lines to the store; lines that are there already are left as they are.
type HistoryRequest struct {
	Application string               `json:"application"`
	Service     string               `json:"service"` // "" for the application's own
	Lines       []entities.AuditLine `json:"lines"`
}

// AnnounceRequest announces one audit line to webhooks, at least once.
type AnnounceRequest struct {
	Application   string                  `json:"application"`
	Service       string                  `json:"service"`
	Line          entities.AuditLine      `json:"line"`
	Notifications []entities.Notification `json:"notifications"` // those that asked for its kind
	// Incarnation of the release that the line is about, and that of what it takes the place of in the channel; 0: of nothing.
	Incarnation int64 `json:"incarnation,omitempty"`
	Since       int64 `json:"since,omitempty"`
}

// AnnouncePause announces a pause to services, and keeps it where services that come later find it.
type AnnouncePause struct {
	ScopePause
	Application string `json:"application,omitempty"` // whose services; of a runtime, empty
	Runtime     string `json:"runtime,omitempty"`
	Manifest    string `json:"manifest,omitempty"` // of the application
	// Ended is when the last pause that has ended had begun, where Pause is nil.
	Ended time.Time `json:"ended,omitzero"`
	// Only are the workflow ids of services that could not be told before: nobody else is.
	Only []string `json:"only,omitempty"`
	// Turns is the digest of the turns of the drain in the store, packed, where they are too many for a payload.
	Turns string `json:"turns,omitempty"`
}

// AnnounceAnswer names services, by their workflow ids, to which a pause could not be announced.
type AnnounceAnswer struct {
	Unreached
}
