package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// LoadSpecRequest asks for a service spec by digest (local activity).
type LoadSpecRequest struct {
	Application string `json:"application"`
	Service     string `json:"service"`
	Digest      string `json:"digest"`
	// Incarnation, Hash and Order are what the signal said of itself. The store says what is so.
	Incarnation int64                `json:"incarnation,omitempty"`
	Hash        string               `json:"hash,omitempty"`
	Order       entities.NoticeOrder `json:"order,omitzero"`
	// Before is the digest of the spec in force, where releases wait: what the new one asks for less is wanted, too.
	Before string `json:"before,omitempty"`
	// On are the runtimes that each channel is on, by its first name, or that a release takes it to yet, whatever the new spec names.
	On map[string][]string `json:"on,omitempty"`
}

// LoadSpecAnswer is the spec, packed when it is large, of the newest notice that the store has: none when the service is not
// declared in it.
type LoadSpecAnswer struct {
	InStore
	// Notice is that notice. Digest is that of the spec, and Store the
	// store's URL as the worker calls it.
	Notice *Notice `json:"notice,omitempty"`
	Digest string  `json:"digest,omitempty"`
	Store  string  `json:"store,omitempty"`

	Spec   *entities.Spec `json:"spec,omitempty"`
	Packed Packed         `json:"packed,omitempty"`
	// Pauses in force of what the service is part of: its application and its runtimes.
	Pauses []ScopePause `json:"pauses,omitempty"`
	// Loosened is what the spec asks for less than the one before, by values as well; Compared says that both could be read.
	Loosened []entities.Loosening `json:"loosened,omitempty"`
	Compared bool                 `json:"compared,omitempty"`
}

// PrepareRequest asks that a version is rendered, once and for ever (local activity). The version
// record in the store is written by the first call; a later call with the same version returns
// what stands there, and is refused when it names other parameters.
type PrepareRequest struct {
	Application string `json:"application"`
	Service     string `json:"service"`
	Version     string `json:"version"`     // named by a person, CI or the file
	FullVersion string `json:"fullVersion"` // differs from Version for a config release ("v7-i42")
	// Values is the aspect that a merged full version ("v7-flags.x3f9a21c0") is rendered for, where it is for one: the version must know its
	// parameters. Of a merged full version Version is empty.
	Values      string `json:"values,omitempty"`
	Incarnation int64  `json:"incarnation"` // taken for a new version
	Hash        string `json:"hash"`
	// Instances to render for; one unknown to the recorded incarnation is left out.
	Instances         []entities.InstanceID     `json:"instances"`
	Parameters        map[string]any            `json:"parameters,omitempty"`
	ChannelParameters map[string]map[string]any `json:"channelParameters,omitempty"`
	// Initial: refused when the store knows another version of the service. Then something was
	// released before and only the workflow's memory of it is gone.
	Initial bool `json:"initial,omitempty"`
	// Present: instance → full version that is there. For a config release the payload is also
	// rendered under it, to see whether anything changed.
	Present map[entities.InstanceID]string `json:"present,omitempty"`
	// Keys are the channels that had another name first, with that: the recorded incarnation may know them by an earlier one.
	Keys map[string]string `json:"keys,omitempty"`
	// Packed is all of it instead, where it is too large for a payload.
	Packed Packed `json:"packed,omitempty"`
}

// Fitting is the request in the form in which it fits into a payload.
func (r PrepareRequest) Fitting() PrepareRequest {
	if packed := packedBeyond(r); packed != nil {
		return PrepareRequest{Application: r.Application, Service: r.Service, FullVersion: r.FullVersion, Packed: packed}
	}
	return r
}

// Whole is the request in the form in which it was made.
func (r PrepareRequest) Whole() (PrepareRequest, error) {
	if len(r.Packed) == 0 {
		return r, nil
	}
	var out PrepareRequest
	err := r.Packed.Unpack(&out)
	return out, err
}

// PrepareAnswer names what was rendered.
type PrepareAnswer struct {
	InStore
	Known       bool                                    `json:"known,omitempty"` // the version had been recorded before
	Incarnation int64                                   `json:"incarnation"`
	Hash        string                                  `json:"hash"`
	Payloads    map[entities.InstanceID]PreparedPayload `json:"payloads"`
	// Beside is how many others the worker has prepared in the last half minute, where these are many.
	Beside int `json:"beside,omitempty"`
}

// PreparedPayload is a rendered payload's digest, and its digest when rendered under the version
// already there.
type PreparedPayload struct {
	Digest       string `json:"digest"`
	UnderPresent string `json:"underPresent,omitempty"`
	Runtime      string `json:"runtime,omitempty"` // that it was rendered for
}

// InstanceRef names an instance and the target that it is observed at or moved to.
type InstanceRef struct {
	ID          entities.InstanceID `json:"id"` // "production/main", by the name that the channel had first
	FullVersion string              `json:"fullVersion,omitempty"`
	Payload     string              `json:"payload,omitempty"` // digest in the store, empty when nothing was applied
	// Known is the digest of the reading that is already known; an observation returns when there is
	// another. Empty: any reading is news.
	Known string `json:"known,omitempty"`
	// Restarted is when a person last had it restarted; zero: never.
	Restarted time.Time `json:"restarted,omitzero"`
}

// SafetyInterval is how often the server has an observation repeated of what is steady where workers read it by themselves (F9): ten
// thousand services, on as many as 25 runtimes each, take 417 actions an hour of Temporal for it.
const SafetyInterval = 24 * time.Hour

// ShortestRound is the shortest interval at which workers read what is steady by themselves: who is gone is noticed before. What is to be
// read more often the server has read.
const ShortestRound = time.Minute

// ObserveRequest asks to observe instances of one service on one runtime until something is not
// as known.
type ObserveRequest struct {
	Application   string        `json:"application"`
	Service       string        `json:"service"`
	ServiceID     string        `json:"serviceId"`
	Runtime       string        `json:"runtime"`
	RuntimeDigest string        `json:"runtimeDigest"`
	Instances     []InstanceRef `json:"instances"`
	Interval      time.Duration `json:"interval"` // between readings
	Timeout       time.Duration `json:"timeout"`  // of one reading of one instance
	// Steady: nothing of it is expected to change.
	Steady bool `json:"steady,omitempty"`
	// Rest is how often workers read again what was read here, of what moves: no observation of what is steady begins after this. Zero: one
	// does.
	Rest time.Duration `json:"rest,omitempty"`
}

// ObserveAllRequest asks for observations of one service on several runtimes at once, each for itself, until any has news.
type ObserveAllRequest struct {
	Of []ObserveRequest `json:"of"`
	// Here: a workflow task waits for the answer, so what is not read at once is not read, and an error says so.
	Here bool `json:"here,omitempty"`
}

// Watched is what the workflow of a service knows of an instance of it that a runtime watches, and how to read that again. A
// worker that takes over compares it with what is there. It is a reason to look, and nothing rests on it.
type Watched struct {
	Request ObserveRequest `json:"request"` // with that one instance
	Seen    Seen           `json:"seen"`
}

// Seen is what of a reading the decision, or a person, sees at once.
type Seen struct {
	Version    string `json:"version,omitempty"` // that was asked about
	Known      bool   `json:"known,omitempty"`
	Stable     bool   `json:"stable,omitempty"`
	Drifted    bool   `json:"drifted,omitempty"`
	Failed     bool   `json:"failed,omitempty"`
	AsDeclared bool   `json:"asDeclared,omitempty"`
	Foreign    string `json:"foreign,omitempty"` // digest of what others added
}

// ObserveAnswer holds the readings that differ from what was known.
type ObserveAnswer struct {
	Readings map[entities.InstanceID]entities.Reading `json:"readings"`
	// AtHand: workers hear of every change of them, and read them again at once, from memory.
	AtHand bool `json:"atHand,omitempty"`
}

// ObserveAllAnswer is the ObserveAnswer of an ObserveAllRequest.
type ObserveAllAnswer struct {
	Readings map[entities.InstanceID]entities.Reading `json:"readings"`
	// AtHand are the runtimes of which workers hear of every change.
	AtHand []string `json:"atHand,omitempty"`
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
	// Sequence of the target: nothing is applied after a later one was (F2). 0: from a workflow that counts none.
	Sequence int64 `json:"sequence,omitempty"`
	// ReportOnly: the channel only reports, and the apply is refused (A25).
	ReportOnly bool `json:"reportOnly,omitempty"`
	// Restart: what runs begins anew, though it is at the target.
	Restart bool `json:"restart,omitempty"`
	// Rest is that of an ObserveRequest, and says that no observation begins at once after the apply: hints at the instance are followed.
	Rest time.Duration `json:"rest,omitempty"`
}

// ApplyAnswer is how an apply ended. A failed apply is an answer, not an error of the activity:
// errors are left for what Temporal itself should retry.
type ApplyAnswer struct {
	Err       string `json:"err,omitempty"`
	Permanent bool   `json:"permanent,omitempty"`
	// Unready: the apply could not even begin (the store was away, or the runtime's API allows no more calls, say). That is
	// no failure of the release.
	Unready bool `json:"unready,omitempty"`
	// Fenced: it was refused, by this claim, before it changed anything, or before it changed more on a runtime that saw a
	// later one come.
	Fenced *Claim `json:"fenced,omitempty"`
	// Reading was taken right after the apply.
	Reading *entities.Reading `json:"reading,omitempty"`
	// AtHand: that of an ObserveAnswer.
	AtHand bool `json:"atHand,omitempty"`
}

// Claim is what an instance was to be at, claimed before the first write (F2). Of two claims the one of the higher epoch is
// later, and, in one epoch, that of the higher sequence.
type Claim struct {
	Epoch    int64 `json:"epoch"`
	Sequence int64 `json:"sequence"`
	// Target is the digest of the target; a removal has none.
	Target      string    `json:"target,omitempty"`
	FullVersion string    `json:"fullVersion,omitempty"`
	At          time.Time `json:"at"`
}

// Later tells whether a claim is later than another.
func (c *Claim) Later(than *Claim) bool {
	return c.Epoch > than.Epoch || c.Epoch == than.Epoch && c.Sequence > than.Sequence
}

// NotifyRequest notifies the services whose spec digest differs between two manifests.
type NotifyRequest struct {
	Application string      `json:"application"`
	From        string      `json:"from,omitempty"` // manifest digest that all services know
	To          string      `json:"to"`
	Newest      Incarnation `json:"newest"`
	// Passed are incarnations published since the last time that no service was notified of: they are
	// recorded, so that every one can be read by its number (D5).
	Passed []Incarnation `json:"passed,omitempty"`
	Store  string        `json:"store"`
	// Pinned: services take Newest over though they know newer ones (D15). At is when notifying began.
	Pinned bool                 `json:"pinned,omitempty"`
	Order  entities.NoticeOrder `json:"order,omitzero"`
	At     time.Time            `json:"at,omitzero"`
	// Also are services that are notified beside those, since they could not be before.
	Also []string `json:"also,omitempty"`
	// Unmanaged are services that are left out, since they are kept down. Again are those that were so far, and why they
	// are started again. AllServices is every one.
	Unmanaged []string          `json:"unmanaged,omitempty"`
	Again     map[string]string `json:"again,omitempty"`
	// Packed is all of it instead, where it is too large for a payload.
	Packed Packed `json:"packed,omitempty"`
}

// Fitting is the request in the form in which it fits into a payload.
func (r NotifyRequest) Fitting() NotifyRequest {
	if packed := packedBeyond(r); packed != nil {
		return NotifyRequest{Application: r.Application, Packed: packed}
	}
	return r
}

// Whole is the request in the form in which it was made.
func (r NotifyRequest) Whole() (NotifyRequest, error) {
	if len(r.Packed) == 0 {
		return r, nil
	}
	var out NotifyRequest
	err := r.Packed.Unpack(&out)
	return out, err
}

// NotifyAnswer counts the services that were notified, and names those that could not be.
type NotifyAnswer struct {
	Notified int `json:"notified"`
	// Overtaken is the order of a notice that was recorded later: nobody was notified of this one.
	Overtaken entities.NoticeOrder `json:"overtaken,omitzero"`
	Unreached
}

// Unreached are services that could not be told something. They held up no other, and are tried again.
type Unreached struct {
	Services []string `json:"unreached,omitempty"`
	More     int      `json:"moreUnreached,omitempty"` // that are not named
	Why      string   `json:"whyUnreached,omitempty"`  // the first was not
}
