package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// StatusSchema names the version of the Status document. Within it fields are only added; readers
// tolerate unknown enum values.
const StatusSchema = "converge.status/v1"

// Status answers a Service's status query.
type Status struct {
	Schema      string          `json:"schema"`
	Application string          `json:"application"`
	Service     string          `json:"service"`
	Key         string          `json:"key,omitempty"` // what it was called first, where that is another name
	Description string          `json:"description,omitempty"`
	Status      string          `json:"status"` // of the worst channel
	Version     string          `json:"version,omitempty"`
	Incarnation int64           `json:"incarnation"`
	Spec        string          `json:"spec,omitempty"` // digest of the rules in force
	Store       string          `json:"store,omitempty"`
	ObservedAt  time.Time       `json:"observedAt,omitzero"`
	Headline    string          `json:"headline"` // one line: what moves or what it waits for
	Channels    []ChannelStatus `json:"channels"`
	// MoreChannels is how many are not listed, of an answer that is cut short.
	MoreChannels int             `json:"moreChannels,omitempty"`
	Releases     []ReleaseStatus `json:"releases"` // newest first, at most 1,000 and what is next or in progress
	// MoreReleases is how many older ones are not listed.
	MoreReleases int                    `json:"moreReleases,omitempty"`
	Pauses       []entities.Pause       `json:"pauses"`
	Pins         []PinStatus            `json:"pins"`
	Refused      []entities.Refusal     `json:"refused"`
	Deletion     *Deletion              `json:"deletion,omitempty"` // it is being taken down
	Notes        []string               `json:"notes,omitempty"`    // e.g. "config i42 waits for the next release"
	Journal      []entities.JournalLine `json:"journal,omitempty"`  // bounded tail, oldest first
}

// ChannelStatus is one channel of a service.
type ChannelStatus struct {
	Name       string            `json:"name"`
	Key        string            `json:"key,omitempty"` // what runtimes know it by, if it had another name first
	Runtime    string            `json:"runtime"`
	ReportOnly bool              `json:"reportOnly,omitempty"` // nothing is written here; what would be stands among the reasons
	Status     string            `json:"status"`
	Health     string            `json:"health,omitempty"` // the status without pauses and what waits to come: CONVERGED is well
	Current    string            `json:"current"`          // active version(s) the runtime reports, "" for none
	Target     string            `json:"target"`
	Desired    string            `json:"desired"`
	Since      time.Time         `json:"since,omitzero"` // of the status
	Reasons    []Reason          `json:"reasons,omitempty"`
	Conditions []ConditionStatus `json:"conditions"`
	Objects    []entities.Object `json:"objects"`
	Omitted    int               `json:"omitted,omitempty"`
	ObservedAt time.Time         `json:"observedAt,omitzero"`
	// Unread: what runs cannot be read, whatever the status is of; Objects are what was read before. Of several instances, the first such.
	Unread     *Unread   `json:"unread,omitempty"`
	NextChange time.Time `json:"nextChange,omitzero"` // when something is due by itself
	// Instances of the channel, where there are several: those that are not as desired first, at most 50.
	Instances []InstanceStatus `json:"instances,omitempty"`
	// MoreInstances is how many are not listed.
	MoreInstances int `json:"moreInstances,omitempty"`
	// Fleet counts them, where there are several.
	Fleet *FleetStatus `json:"fleet,omitempty"`
	// Checks are what was last read of checks that are asked now, by id.
	Checks []CheckStatus `json:"checks,omitempty"`
	// StableSince: the target's objects are stable since then, and what follows the deployment runs.
	StableSince time.Time `json:"stableSince,omitzero"`
	// StableFrom is when that was seen: pauses move StableSince, and not this.
	StableFrom time.Time          `json:"stableFrom,omitzero"`
	Rollback   *entities.Rollback `json:"rollback,omitempty"`
	LeaseAsked time.Time          `json:"leaseAsked,omitzero"` // it waits for a place on its runtime since then
	// MovesTo is the runtime that the configuration names, while the release that takes the channel there is still to come.
	MovesTo string `json:"movesTo,omitempty"`
	// Lacks says which configuration has not reached the channel, and why.
	Lacks string `json:"lacks,omitempty"`
	// Left is what its instances have left on runtimes that they are not on any more.
	Left []LeftStatus `json:"left,omitempty"`
}

// LeftStatus is what an instance has left on a runtime that it moved from, orphaned.
type LeftStatus struct {
	Instance string    `json:"instance"` // "production", or "production/eu-3" in a fleet
	Runtime  string    `json:"runtime"`
	Version  string    `json:"version"` // full version that was the target there
	At       time.Time `json:"at"`      // when it moved
	Text     string    `json:"text"`    // what it is, and what becomes of it
}

// CheckStatus is the newest reading of a check.
type CheckStatus struct {
	ID      string    `json:"id"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of the verdict
	At      time.Time `json:"at,omitzero"`    // of the reading
	Next    time.Time `json:"next,omitzero"`  // when it may change by itself, or is tried again
	Errors  int       `json:"errors,omitempty"`
	// Interval that tries of what cannot be evaluated grow from, in nanoseconds.
	Interval time.Duration `json:"interval,omitempty"`
}

// PinStatus is a channel that is held at a target.
type PinStatus struct {
	Channel string       `json:"channel"`
	Version string       `json:"version"` // full version
	Who     entities.Who `json:"who"`
	Reason  string       `json:"reason,omitempty"`
	At      time.Time    `json:"at"`
}

// Reason is one line of why a channel is as it is, since when, and what would change it.
type Reason struct {
	Code    string    `json:"code,omitempty"` // what kind of line it is: gate, pause, pin, failure, rollback, command, progress
	Text    string    `json:"text"`
	Since   time.Time `json:"since,omitzero"`
	Unblock string    `json:"unblock,omitempty"`
}

// ConditionStatus is the verdict on one condition of the next release of a channel.
type ConditionStatus struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`              // of gate: channel-stable, approval, check, extension, …
	Subject string `json:"subject,omitempty"` // what it is about within its kind: a topic, an extension
	Verdict string `json:"verdict"`           // PASS, WAIT, FAIL, ERROR
	// Code tells apart what the verdict does not: not-asked (something before it does not pass), bypassed, rejected.
	Code      string    `json:"code,omitempty"`
	Reason    string    `json:"reason"` // for people
	Since     time.Time `json:"since,omitzero"`
	NextCheck time.Time `json:"nextCheck,omitzero"`
	Unblock   string    `json:"unblock,omitempty"`
	// Bypassable: a person can let the release pass it.
	Bypassable bool `json:"bypassable,omitempty"`
	// Plain: the reason says what is judged, so that the id adds nothing.
	Plain bool `json:"plain,omitempty"`
	// Channels that the release must have succeeded in, of a channel-stable condition.
	Channels []string `json:"channels,omitempty"`
	// ApprovedBy are the people who approved, and Need is how many it takes.
	ApprovedBy []string `json:"approvedBy,omitempty"`
	Need       int      `json:"need,omitempty"`
	// Elsewhere is the channel that a shared extension ran for, when that is another one.
	Elsewhere string `json:"elsewhere,omitempty"`
	// Errors in a row of a check that cannot be evaluated, and the Interval, in nanoseconds, that its tries grow from.
	Errors   int           `json:"errors,omitempty"`
	Interval time.Duration `json:"interval,omitempty"`
}

// ReleaseStatus is one release and its phase in each channel.
type ReleaseStatus struct {
	ID          string            `json:"id"`
	Version     string            `json:"version"` // full version
	Incarnation int64             `json:"incarnation"`
	By          string            `json:"by"`
	Proven      bool              `json:"proven,omitempty"` // By is who a token proved it to be (G7)
	At          time.Time         `json:"at"`
	Phases      map[string]string `json:"phases"`
	Reasons     map[string]string `json:"reasons,omitempty"` // channel → why it is in that phase
	// Aspect that it gives values to, and which, for people; none: it is of a version (B5).
	Aspect string `json:"aspect,omitempty"`
	Sets   string `json:"sets,omitempty"`
	// Keeps are the channels to which only its configuration, or its values, come, under the version that is there → that as a full version, once it
	// is rendered.
	Keeps map[string]string `json:"keeps,omitempty"`

	Approvals  []entities.Approval `json:"approvals,omitempty"`
	Bypasses   []entities.Bypass   `json:"bypasses,omitempty"`
	Extensions []ExtensionStatus   `json:"extensions,omitempty"` // by key
}

// ExtensionStatus is how far an extension is for one release.
type ExtensionStatus struct {
	Key   string `json:"key"` // Extension.RunKey
	Name  string `json:"name"`
	State string `json:"state"` // waiting, running, done, failed
	// Deadline of the run that is under way: later it is ended, which is a failure.
	Deadline time.Time `json:"deadline,omitzero"`
	entities.ExtensionProgress
}

// InstanceStatus is one instance of a channel that has several.
type InstanceStatus struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime,omitempty"`
	Status  string `json:"status"`
	Current string `json:"current"`
	Target  string `json:"target"`
	Reason  string `json:"reason,omitempty"`
	// Unread: what runs there cannot be read.
	Unread *Unread `json:"unread,omitempty"`
}

// Unread is why readings fail, and since when.
type Unread struct {
	Code    string    `json:"code"` // of a reading error: unreachable, no-worker, …
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
}

// Text is both in one line.
func (u Unread) Text() string { return u.Code + ": " + u.Message }

// FleetStatus counts the instances of a channel that has several.
type FleetStatus struct {
	Instances int    `json:"instances"`
	Version   string `json:"version,omitempty"`  // the newest that is the target of one, as it was named
	At        int    `json:"at"`                 // how many have converged at it, under whatever configuration
	AtPaused  int    `json:"atPaused,omitempty"` // how many of them are paused, and so are counted among ByStatus too
	// ByStatus counts those that are not CONVERGED.
	ByStatus map[string]int `json:"byStatus,omitempty"`
}

// Deletion is a service being taken down (A24).
type Deletion struct {
	Who    entities.Who `json:"who"`
	Reason string       `json:"reason,omitempty"`
	At     time.Time    `json:"at"`
	Gone   []string     `json:"gone,omitempty"` // channels, or instances, whose objects are removed
}

// Explanation answers a Service's explain query: the lines a person reads, and what they are made
// of.
type Explanation struct {
	Lines  []string `json:"lines"`
	Status Status   `json:"status"`
	// Running is what workers are doing for the service at this moment. The query knows nothing of it, the command line does.
	Running []Progress `json:"running,omitempty"`
}

// Progress is how far an apply, a removal or an extension is: the details of its activity's heartbeats, for people. It is up
// to some seconds old.
type Progress struct {
	Channel string    `json:"channel,omitempty"`
	What    string    `json:"what,omitempty"`  // "extension smoke of v2"; empty: a worker has taken it, and has not begun
	Place   string    `json:"place,omitempty"` // where its command runs, unless it is the worker's machine
	Tail    string    `json:"tail,omitempty"`  // the end of what it has printed so far, at most 500 bytes
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"` // it is ended then
}

// HistorySchema names the version of the HistoryAnswer document.
const HistorySchema = "converge.history/v1"

// HistoryAnswer answers a Service's history query: the newest lines of the audit trail, which the
// store does not have yet. The lines up to Stored are there (D13).
type HistoryAnswer struct {
	Schema      string               `json:"schema"`
	Application string               `json:"application"`
	Service     string               `json:"service"`
	Stored      int64                `json:"stored"` // number of the last line in the store
	Lines       []entities.AuditLine `json:"lines"`  // oldest first
	// Last is the last line that was ever noted: by its hash all lines can be verified.
	Last *entities.TrailEnd `json:"last,omitempty"`
}
