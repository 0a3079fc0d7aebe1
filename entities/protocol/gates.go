package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds the payloads of the verbs and activities for gates and rollbacks.

// ApprovalRequest is the payload of approve and reject (A14). Topic is a channel's name, a shared approval's name, or "apply/CHANNEL" if
// every apply requires an approval.
type ApprovalRequest struct {
	RequestMeta
	Version string `json:"version"`
	Topic   string `json:"topic"`
	Comment string `json:"comment,omitempty"`
}

// BypassRequest is the payload of bypass (A15). A reason is required.
type BypassRequest struct {
	RequestMeta
	Version   string `json:"version"`
	Channel   string `json:"channel"`
	Condition string `json:"condition"` // as `explain` shows it
}

// PinRequest is the payload of a Service's pin and unpin (A17). A pin without a version pins the current one. Unpin has no version.
type PinRequest struct {
	RequestMeta
	Channel string `json:"channel"`
	Version string `json:"version,omitempty"`
	// Stay, for an unpin: the pinned version stays until a newer release.
	Stay bool `json:"stay,omitempty"`
}

// IncarnationPin is the payload of an Application's pin and unpin (A17, D15). Unpin has no number.
type IncarnationPin struct {
	RequestMeta
	Incarnation int64 `json:"incarnation,omitempty"`
}

// ScopePause announces to a service that a scope that contains it was paused, or resumed: then Pause is nil.
type ScopePause struct {
	Scope string          `json:"scope"` // "application", "runtime/NAME" or "installation"
	Pause *entities.Pause `json:"pause,omitempty"`
}

// PauseEnded says, for a scope that is not paused, when its last ended pause had begun.
type PauseEnded struct {
	Scope string    `json:"scope"`
	Began time.Time `json:"began"`
}

// LeaseSignal names a lease, and the runtime that grants it.
type LeaseSignal struct {
	ID      string `json:"id"`
	Runtime string `json:"runtime,omitempty"`
}

// LeaseActionRequest is the payload of a Runtime's release and grant from a user: the lease is taken from its holder, or a waiting one is
// granted out of order. Without By, the holder returns it.
type LeaseActionRequest struct {
	RequestMeta
	LeaseSignal
}

// GrantedAnswer says whether a runtime has granted a lease.
type GrantedAnswer struct {
	Granted bool `json:"granted,omitempty"`
}

// InForceRequest requests the pause of a wider scope that is in force for a service. Scope is as in ScopePause.
type InForceRequest struct {
	Application string `json:"application"`
	Scope       string `json:"scope"`
	Service     string `json:"service,omitempty"` // whose permit of a drain is returned; "": the permits of all
}

// LeaseCall requests the lease activity to signal a Runtime workflow: exactly one of the fields.
type LeaseCall struct {
	Runtime string                 `json:"runtime"`
	Request *entities.LeaseRequest `json:"request,omitempty"`
	Return  string                 `json:"give,omitempty"` // lease id
	Confirm string                 `json:"keep,omitempty"` // lease id
}

// RuntimeStatus answers a Runtime's status query.
type RuntimeStatus struct {
	Schema  string          `json:"schema"` // converge.runtime/v1
	Runtime string          `json:"runtime"`
	Limit   int             `json:"limit,omitempty"`
	Pause   *entities.Pause `json:"pause,omitempty"`
	// Announcing: services are being notified that a pause began or ended.
	Announcing bool               `json:"announcing,omitempty"`
	Held       []entities.Lease   `json:"held,omitempty"`
	Waiting    []entities.Lease   `json:"waiting,omitempty"`
	Refused    []entities.Refusal `json:"refused,omitempty"`
	// Audit is the newest user actions, and leases that users revoked, oldest first.
	Audit   []entities.AuditEntry `json:"audit,omitempty"`
	Problem string                `json:"problem,omitempty"`
}

// InstallationStatus answers an Installation's status query.
type InstallationStatus struct {
	Schema string          `json:"schema"` // converge.installation/v1
	ID     string          `json:"id"`
	Pause  *entities.Pause `json:"pause,omitempty"`
	Rules  Rules           `json:"rules,omitzero"`
	// Announcing: services are being notified that a pause began or ended.
	Announcing bool                  `json:"announcing,omitempty"`
	Refused    []entities.Refusal    `json:"refused,omitempty"`
	Audit      []entities.AuditEntry `json:"audit,omitempty"` // the newest user actions, oldest first
	Problem    string                `json:"problem,omitempty"`
}

// CheckRequest requests evaluations of checks of one service: until one differs from the known result (Check), or once (Preflight).
type CheckRequest struct {
	Application string                `json:"application"`
	Service     string                `json:"service"`
	ServiceID   string                `json:"serviceId"`
	Checks      []entities.Evaluation `json:"checks"`
	// Keys are the first names of renamed channels: commands use these.
	Keys map[string]string `json:"keys,omitempty"`
	// Name is the current name of the service. Others are the first names of renamed other services, by current name.
	Name   string            `json:"name,omitempty"`
	Others map[string]string `json:"others,omitempty"`
	// Releases are the releases that the checks are about, if the service waits for the answer and cannot be queried for them.
	Releases []ReleaseStatus `json:"releases,omitempty"`
}

// CheckAnswer contains readings by Evaluation.Key.
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
	Restarts    int           `json:"begun,omitempty"` // how often it was restarted after it had ended
	Timeout     time.Duration `json:"timeout"`
	ReportOnly  bool          `json:"reportOnly,omitempty"` // it is refused (A25)
	// BackTo is, after a rollback, the full version that runs instead.
	BackTo string `json:"backTo,omitempty"`
}

// ExtensionAnswer is the result of an extension. An empty Err is success.
type ExtensionAnswer struct {
	Err  string `json:"err,omitempty"`
	Tail string `json:"tail,omitempty"` // end of the output, at most 500 bytes
	Log  string `json:"log,omitempty"`  // key of the whole output in the store
}

// RemoveRequest removes an instance.
type RemoveRequest struct {
	Application   string        `json:"application"`
	Service       string        `json:"service"`
	ServiceID     string        `json:"serviceId"`
	Runtime       string        `json:"runtime"`
	RuntimeDigest string        `json:"runtimeDigest"`
	Instance      InstanceRef   `json:"instance"`
	Timeout       time.Duration `json:"timeout"`
	Sequence      int64         `json:"sequence,omitempty"` // as of an apply
	// Successor: the objects to remove were left on a runtime that the instance has moved away from.
	Successor *Successor `json:"successor,omitempty"`
	// ReportOnly: the channel is report-only, and the removal is refused (A25).
	ReportOnly bool `json:"reportOnly,omitempty"`
}

// Successor is the new location of an instance that has left objects on another runtime, and its current target there. Nothing is removed
// once there is a later claim for the instance, or if both runtimes reach the same place.
type Successor struct {
	Runtime       string      `json:"runtime"`
	RuntimeDigest string      `json:"runtimeDigest"`
	Instance      InstanceRef `json:"instance"`
	Sequence      int64       `json:"sequence"`
}

// RemoveAnswer says whether everything is gone; an empty Err means yes.
type RemoveAnswer struct {
	Err string `json:"err,omitempty"`
	// Renamed: nothing was removed, since the runtime is that of the successor under another name.
	Renamed bool `json:"renamed,omitempty"`
}

// VerifyRequest asks whose identity a token proves, and whether the token may still serve this request.
type VerifyRequest struct {
	Identity entities.Identity `json:"identity"`
	Token    string            `json:"token"`
	// RequestID and RequestDigest (a digest of the request and its receiver) identify the one request that the token may serve.
	RequestID     string `json:"requestId,omitempty"`
	RequestDigest string `json:"of,omitempty"`
	// Nonce is that of a token for this act (Act.Nonce); NoNonce is why there is none. Bound: the token has to be one, except for those whom the
	// identity excepts.
	Nonce   string `json:"nonce,omitempty"`
	NoNonce string `json:"noNonce,omitempty"`
	Bound   bool   `json:"bound,omitempty"`
	// At is when the request arrived, if that was a while ago: the token must have been valid then. Zero: now.
	At time.Time `json:"at,omitzero"`
	// Urgent: verification does not wait while the store is unavailable. The store then does not record that the token was used.
	Urgent bool `json:"urgent,omitempty"`
}

// NoIdentity is part of the error for a token if no issuer is configured.
const NoIdentity = "no identity: nothing says who issues its tokens"

// VerifyAnswer is the identity. An invalid token is an ErrRefused.
type VerifyAnswer struct {
	Who entities.Who `json:"who"`
}

// HistoryRequest appends audit entries to the store. Existing entries are not changed.
type HistoryRequest struct {
	Application string                `json:"application"`
	Service     string                `json:"service"` // "" for the application's own
	Entries     []entities.AuditEntry `json:"lines"`
}

// AnnounceRequest sends one audit entry to webhooks, at least once.
type AnnounceRequest struct {
	Application   string                  `json:"application"`
	Service       string                  `json:"service"`
	Entry         entities.AuditEntry     `json:"line"`
	Notifications []entities.Notification `json:"notifications"` // those that selected its kind
	// Incarnation is that of the entry's release. Since is that of the release it replaces in the channel; 0: none.
	Incarnation int64 `json:"incarnation,omitempty"`
	Since       int64 `json:"since,omitempty"`
	// Next are the commands that a person can use now.
	Next []string `json:"next,omitempty"`
}

// AnnouncePause announces a pause to services, and stores it for services that start later.
type AnnouncePause struct {
	ScopePause
	Application string `json:"application,omitempty"` // whose services; of a runtime, empty
	Runtime     string `json:"runtime,omitempty"`
	Manifest    string `json:"manifest,omitempty"` // of the application
	// Ended is when the last ended pause had begun, if Pause is nil.
	Ended time.Time `json:"ended,omitzero"`
	// Only lists the workflow ids of services that could not be notified before. Only these are notified.
	Only []string `json:"only,omitempty"`
	// PermitsDigest is the digest of the drain's permits in the store, packed, if they are too large for a payload.
	PermitsDigest string `json:"turns,omitempty"`
}

// AnnounceAnswer names services, by their workflow ids, that could not be notified of a pause.
type AnnounceAnswer struct {
	Unreached
}
