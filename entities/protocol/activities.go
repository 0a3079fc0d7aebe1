package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// LoadSpecRequest requests a service spec by digest (local activity).
type LoadSpecRequest struct {
	Application string `json:"application"`
	Service     string `json:"service"`
	Digest      string `json:"digest"`
	// Incarnation, Hash and Order are from the signal. The store is authoritative.
	Incarnation int64                `json:"incarnation,omitempty"`
	Hash        string               `json:"hash,omitempty"`
	Order       entities.NoticeOrder `json:"order,omitzero"`
	// CurrentDigest is the digest of the spec in force, if releases wait. The answer then also lists what the new spec relaxes.
	CurrentDigest string `json:"before,omitempty"`
	// Runtimes lists the runtimes of each channel, by its first name: the current ones, and those of pending releases. The new spec may not
	// name them.
	Runtimes map[string][]string `json:"on,omitempty"`
}

// LoadSpecAnswer is the spec of the newest notice in the store, packed when it is large. It is empty if the service is not declared in it.
type LoadSpecAnswer struct {
	StoredAnswer
	// Notice is the newest notice. Digest is the digest of the spec. Store is the store's URL for the worker.
	Notice *Notice `json:"notice,omitempty"`
	Digest string  `json:"digest,omitempty"`
	Store  string  `json:"store,omitempty"`

	Spec   *entities.Spec `json:"spec,omitempty"`
	Packed Packed         `json:"packed,omitempty"`
	// Pauses in force for the application and the runtimes of the service.
	Pauses []ScopePause `json:"pauses,omitempty"`
	// Loosened lists what the spec relaxes, compared with the one before, including values. Compared says that both specs could be read.
	Loosened []entities.Loosening `json:"loosened,omitempty"`
	Compared bool                 `json:"compared,omitempty"`
}

// PrepareRequest requests that a version is rendered, once for all time (local activity). The first call writes the version record to the
// store. A later call with the same version returns that record. It is refused if it names other parameters.
type PrepareRequest struct {
	Application string `json:"application"`
	Service     string `json:"service"`
	Version     string `json:"version"`     // named by a user, CI or the file
	FullVersion string `json:"fullVersion"` // differs from Version for a config release ("v7-i42")
	// Values is the aspect of a merged full version ("v7-flags.x3f9a21c0"), if it is rendered for one: the version must know its parameters.
	// For a merged full version, Version is empty.
	Values      string `json:"values,omitempty"`
	Incarnation int64  `json:"incarnation"` // for a new version
	Hash        string `json:"hash"`
	// Instances to render for. An instance that the recorded incarnation does not know is left out.
	Instances         []entities.InstanceID     `json:"instances"`
	Parameters        map[string]any            `json:"parameters,omitempty"`
	ChannelParameters map[string]map[string]any `json:"channelParameters,omitempty"`
	// Initial: refuse if the store knows another version of the service. In that case there was a release before, and only the workflow's
	// state is lost.
	Initial bool `json:"initial,omitempty"`
	// CurrentVersions is the current full version by instance. For a config release the payload is also rendered under it, to detect whether
	// anything changed.
	CurrentVersions map[entities.InstanceID]string `json:"present,omitempty"`
	// Keys are the first names of renamed channels: the recorded incarnation may know them by an earlier name.
	Keys map[string]string `json:"keys,omitempty"`
	// Packed is the whole request instead, if it is too large for a payload.
	Packed Packed `json:"packed,omitempty"`
}

// Fitting returns the request in a form that fits into a payload.
func (r PrepareRequest) Fitting() PrepareRequest {
	if packed := packIfLarge(r); packed != nil {
		return PrepareRequest{Application: r.Application, Service: r.Service, FullVersion: r.FullVersion, Packed: packed}
	}
	return r
}

// Whole returns the request in its original form.
func (r PrepareRequest) Whole() (PrepareRequest, error) {
	if len(r.Packed) == 0 {
		return r, nil
	}
	var out PrepareRequest
	err := r.Packed.Unpack(&out)
	return out, err
}

// PrepareAnswer names the rendered payloads.
type PrepareAnswer struct {
	StoredAnswer
	Known       bool                                    `json:"known,omitempty"` // the version had been recorded before
	Incarnation int64                                   `json:"incarnation"`
	Hash        string                                  `json:"hash"`
	Payloads    map[entities.InstanceID]PreparedPayload `json:"payloads"`
	// RecentlyPrepared is how many others the worker has prepared in the last half minute, if there are many.
	RecentlyPrepared int `json:"beside,omitempty"`
}

// PreparedPayload is a rendered payload's digest, and its digest when rendered under the current version.
type PreparedPayload struct {
	Digest               string `json:"digest"`
	CurrentVersionDigest string `json:"underPresent,omitempty"`
	Runtime              string `json:"runtime,omitempty"` // that it was rendered for
}

// InstanceRef names an instance and the target that it is observed at or moved to.
type InstanceRef struct {
	ID          entities.InstanceID `json:"id"` // "production/main", by the first name of the channel
	FullVersion string              `json:"fullVersion,omitempty"`
	Payload     string              `json:"payload,omitempty"` // digest in the store, empty when nothing was applied
	// KnownDigest is the digest of the last known reading. An observation returns when a reading differs from it. Empty: any reading is news.
	KnownDigest string `json:"known,omitempty"`
	// Restarted is when a user last restarted it; zero: never.
	Restarted time.Time `json:"restarted,omitzero"`
	// ReportOnly: its channel is report-only, so what another tool deployed is recognised by its content (A25).
	ReportOnly bool `json:"reportOnly,omitempty"`
}

// ServerPollInterval is how often the server repeats an observation of steady instances that workers poll (F9). For ten thousand services,
// on up to 25 runtimes each, that is 417 Temporal actions an hour.
const ServerPollInterval = 24 * time.Hour

// MinPollInterval is the shortest interval at which workers poll steady instances; a lost worker is noticed sooner. The server polls
// instances with a shorter interval.
const MinPollInterval = time.Minute

// ObserveRequest requests an observation of the instances of one service on one runtime until a reading differs from the known one.
type ObserveRequest struct {
	Application   string        `json:"application"`
	Service       string        `json:"service"`
	ServiceID     string        `json:"serviceId"`
	Runtime       string        `json:"runtime"`
	RuntimeDigest string        `json:"runtimeDigest"`
	Instances     []InstanceRef `json:"instances"`
	Interval      time.Duration `json:"interval"` // between readings
	Timeout       time.Duration `json:"timeout"`  // of one reading of one instance
	// Steady: no change is expected.
	Steady bool `json:"steady,omitempty"`
	// SteadyPollInterval is, for changing instances, how often workers poll them afterwards. No observation of the steady instances by the
	// server follows then. Zero: one follows.
	SteadyPollInterval time.Duration `json:"rest,omitempty"`
}

// ObserveAllRequest requests separate observations of one service on several runtimes, until any of them has news.
type ObserveAllRequest struct {
	Requests []ObserveRequest `json:"of"`
	// Immediate: a workflow task waits for the answer. Instances that cannot be read at once are not read, and the answer contains an error.
	Immediate bool `json:"here,omitempty"`
}

// WatchedInstance is the last known state of an instance that a runtime watches, and how to read it again. A worker that takes over
// compares it with the current state. It only triggers readings; nothing else depends on it.
type WatchedInstance struct {
	Request ObserveRequest `json:"request"` // with that one instance
	Summary ReadingSummary `json:"seen"`
}

// ReadingSummary is the part of a reading that the decision, or a user, sees immediately.
type ReadingSummary struct {
	Version    string `json:"version,omitempty"` // the version that was requested
	Known      bool   `json:"known,omitempty"`
	Stable     bool   `json:"stable,omitempty"`
	Drifted    bool   `json:"drifted,omitempty"`
	Failed     bool   `json:"failed,omitempty"`
	AsDeclared bool   `json:"asDeclared,omitempty"`
	Foreign    string `json:"foreign,omitempty"` // digest of the fields that others added
}

// ObserveAnswer contains the readings that differ from the known ones.
type ObserveAnswer struct {
	Readings map[entities.InstanceID]entities.Reading `json:"readings"`
	// ServedFromWatchCache: workers receive every change of the instances, and read them again at once, from memory.
	ServedFromWatchCache bool `json:"atHand,omitempty"`
}

// ObserveAllAnswer is the ObserveAnswer of an ObserveAllRequest.
type ObserveAllAnswer struct {
	Readings map[entities.InstanceID]entities.Reading `json:"readings"`
	// ServedFromWatchCache lists the runtimes whose changes workers receive.
	ServedFromWatchCache []string `json:"atHand,omitempty"`
}

// ApplyRequest moves one instance to its target.
type ApplyRequest struct {
	Application   string        `json:"application"`
	Service       string        `json:"service"`
	ServiceID     string        `json:"serviceId"`
	Runtime       string        `json:"runtime"`
	RuntimeDigest string        `json:"runtimeDigest"`
	Instance      InstanceRef   `json:"instance"`
	Attempt       int           `json:"attempt"`
	Timeout       time.Duration `json:"timeout"`
	FetchTimeout  time.Duration `json:"fetchTimeout"`
	// Sequence of the target: nothing is applied after a later one was (F2). 0: from a workflow that does not count.
	Sequence int64 `json:"sequence,omitempty"`
	// ReportOnly: the channel is report-only, and the apply is refused (A25).
	ReportOnly bool `json:"reportOnly,omitempty"`
	// Restart: the instance is restarted, even though it is at its target.
	Restart bool `json:"restart,omitempty"`
	// Urgent: a rollback, which waits for no other work.
	Urgent bool `json:"urgent,omitempty"`
	// Last: no other attempt follows if this one takes longer than Timeout.
	Last bool `json:"last,omitempty"`
	// SteadyPollInterval is as in ObserveRequest. If set, no observation follows immediately after the apply: workers follow hints about the
	// instance.
	SteadyPollInterval time.Duration `json:"rest,omitempty"`
}

// ApplyAnswer is the result of an apply. A failed apply is an answer, not an error of the activity. Errors are for failures that Temporal
// itself should retry.
type ApplyAnswer struct {
	Err       string `json:"err,omitempty"`
	Permanent bool   `json:"permanent,omitempty"`
	// Unready: the apply could not begin (for example, the store was unavailable, or the runtime's API allowed no more calls). That is no
	// failure of the release.
	Unready bool `json:"unready,omitempty"`
	// Fenced is the claim that refused the apply, before its first change, or before further changes on a runtime that noticed a later claim.
	Fenced *Claim `json:"fenced,omitempty"`
	// Begun is how often the apply was begun, if more than once: a worker that ran it was lost, or stopped (A11).
	Begun int `json:"begun,omitempty"`
	// Reading was taken right after the apply.
	Reading *entities.Reading `json:"reading,omitempty"`
	// ServedFromWatchCache is as in ObserveAnswer.
	ServedFromWatchCache bool `json:"atHand,omitempty"`
}

// Claim records the target of an instance before the first write (F2). The claim with the higher epoch is later. In the same epoch the one
// with the higher sequence is.
type Claim struct {
	Epoch    int64 `json:"epoch"`
	Sequence int64 `json:"sequence"`
	// Target is the digest of the target; a removal has none.
	Target      string    `json:"target,omitempty"`
	FullVersion string    `json:"fullVersion,omitempty"`
	At          time.Time `json:"at"`
}

// Later reports whether a claim is later than another.
func (c *Claim) Later(than *Claim) bool {
	return c.Epoch > than.Epoch || c.Epoch == than.Epoch && c.Sequence > than.Sequence
}

// NotifyRequest notifies the services whose spec digest differs between two manifests.
type NotifyRequest struct {
	Application string      `json:"application"`
	From        string      `json:"from,omitempty"` // manifest digest that all services know
	To          string      `json:"to"`
	Newest      Incarnation `json:"newest"`
	// Skipped are incarnations published since the last time that no service was notified of. They are recorded, so that each can be read by
	// its number (D5).
	Skipped []Incarnation `json:"passed,omitempty"`
	Store   string        `json:"store"`
	// Pinned: services adopt Newest even if they know newer ones (D15). At is when the notifications began.
	Pinned bool                 `json:"pinned,omitempty"`
	Order  entities.NoticeOrder `json:"order,omitzero"`
	At     time.Time            `json:"at,omitzero"`
	// PinnedBy and Rules are those of the notice. RulesFrom is the digest of the manifest whose rules all services know, if that is not From.
	PinnedBy  *entities.Who `json:"pinnedBy,omitempty"`
	Rules     *RulesOf      `json:"rules,omitempty"`
	RulesFrom string        `json:"rulesFrom,omitempty"`
	// PeopleChanged: who may do what has changed since services were last notified. Then services that are not declared any more are notified,
	// too.
	PeopleChanged bool `json:"peopleChanged,omitempty"`
	// Additional lists further services to notify, because earlier notifications failed.
	Additional []string `json:"also,omitempty"`
	// Unmanaged are services that are left out, because they are unmanaged. Remanaged are those that were unmanaged so far, and why they are
	// started again. AllServices means all of them.
	Unmanaged []string          `json:"unmanaged,omitempty"`
	Remanaged map[string]string `json:"again,omitempty"`
	// Packed is the whole request instead, if it is too large for a payload.
	Packed Packed `json:"packed,omitempty"`
}

// Fitting returns the request in a form that fits into a payload.
func (r NotifyRequest) Fitting() NotifyRequest {
	if packed := packIfLarge(r); packed != nil {
		return NotifyRequest{Application: r.Application, Packed: packed}
	}
	return r
}

// Whole returns the request in its original form.
func (r NotifyRequest) Whole() (NotifyRequest, error) {
	if len(r.Packed) == 0 {
		return r, nil
	}
	var out NotifyRequest
	err := r.Packed.Unpack(&out)
	return out, err
}

// NotifyAnswer counts the notified services, and names those that could not be reached.
type NotifyAnswer struct {
	Notified int `json:"notified"`
	// SupersededBy is the order of a notice that was recorded later. Then no service was notified of this one.
	SupersededBy entities.NoticeOrder `json:"overtaken,omitzero"`
	Unreached
}

// Unreached are services that could not be notified. They delayed no other service, and are retried.
type Unreached struct {
	Services []string `json:"unreached,omitempty"`
	More     int      `json:"moreUnreached,omitempty"` // further ones without names
	Why      string   `json:"whyUnreached,omitempty"`  // the error of the first one
}
