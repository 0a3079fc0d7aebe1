package protocol

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// StatusSchema names the version of the Status document. Within a version fields are only added. Readers tolerate unknown enum values.
const StatusSchema = "converge.status/v1"

// Status answers a Service's status query.
type Status struct {
	Schema      string          `json:"schema"`
	Application string          `json:"application"`
	Service     string          `json:"service"`
	Key         string          `json:"key,omitempty"` // first name of a renamed service
	Description string          `json:"description,omitempty"`
	Status      string          `json:"status"` // of the worst channel
	Version     string          `json:"version,omitempty"`
	Incarnation int64           `json:"incarnation"`
	Spec        string          `json:"spec,omitempty"` // digest of the rules in force
	Store       string          `json:"store,omitempty"`
	Board       string          `json:"board,omitempty"` // address of its page on the board
	ObservedAt  time.Time       `json:"observedAt,omitzero"`
	Headline    string          `json:"headline"` // one line: the current activity, or what it waits for
	Channels    []ChannelStatus `json:"channels"`
	// MoreChannels is how many channels a shortened answer does not list.
	MoreChannels int             `json:"moreChannels,omitempty"`
	Releases     []ReleaseStatus `json:"releases"` // newest first, at most 1,000, plus the next ones and those in progress
	// MoreReleases is how many older releases are not listed.
	MoreReleases int                     `json:"moreReleases,omitempty"`
	Pauses       []entities.Pause        `json:"pauses"`
	Pins         []PinStatus             `json:"pins"`
	Refused      []entities.Refusal      `json:"refused"`
	Deletion     *Deletion               `json:"deletion,omitempty"` // it is being deleted
	Notes        []string                `json:"notes,omitempty"`    // e.g. "config i42 waits for the next release"
	Restarts     *entities.Restarts      `json:"restarts,omitempty"` // of its workflow, from a checkpoint
	Undelivered  []entities.Undelivered  `json:"undelivered,omitempty"`
	Journal      []entities.JournalEntry `json:"journal,omitempty"` // limited to the newest entries, oldest first
}

// CheckChannel refuses a channel that a service does not have.
func (s Status) CheckChannel(name string) error {
	var names []string
	for _, c := range s.Channels {
		names = append(names, c.Name)
	}
	if slices.Contains(names, name) {
		return nil
	}
	return fmt.Errorf("%s/%s has no release channel %q; expected one of %s", s.Application, s.Service, name, strings.Join(names, ", "))
}

// ChannelStatus is one channel of a service.
type ChannelStatus struct {
	Name       string            `json:"name"`
	Key        string            `json:"key,omitempty"` // first name of a renamed channel, for runtimes
	Runtime    string            `json:"runtime"`
	ReportOnly bool              `json:"reportOnly,omitempty"` // nothing is applied here; pending changes are among the reasons
	Status     string            `json:"status"`
	Health     string            `json:"health,omitempty"` // the status without pauses and pending releases: CONVERGED is healthy
	Current    string            `json:"current"`          // active version(s) the runtime reports, "" for none
	Target     string            `json:"target"`
	Desired    string            `json:"desired"`
	Since      time.Time         `json:"since,omitzero"` // of the status
	Reasons    []Reason          `json:"reasons,omitempty"`
	Conditions []ConditionStatus `json:"conditions"`
	Objects    []entities.Object `json:"objects"`
	Omitted    int               `json:"omitted,omitempty"`
	ObservedAt time.Time         `json:"observedAt,omitzero"`
	// Unread: the current version cannot be read, with any status. Objects are from the last reading. For several instances it is the first
	// such.
	Unread     *Unread   `json:"unread,omitempty"`
	NextChange time.Time `json:"nextChange,omitzero"` // when the next change without an action is due
	ApplyEnds  time.Time `json:"applyEnds,omitzero"`  // the running apply times out; the earliest of several
	// Instances of the channel, if it has several: those that are not as desired first, at most 50.
	Instances []InstanceStatus `json:"instances,omitempty"`
	// MoreInstances is how many are not listed.
	MoreInstances int `json:"moreInstances,omitempty"`
	// Fleet counts the instances, if there are several.
	Fleet *FleetStatus `json:"fleet,omitempty"`
	// Checks are the last results of the checks that are active now, by id.
	Checks []CheckStatus `json:"checks,omitempty"`
	// StableSince: the target's objects are stable since then, and the phase after the deployment runs.
	StableSince time.Time `json:"stableSince,omitzero"`
	// StableFrom is when that was observed. Pauses move StableSince, but not this.
	StableFrom       time.Time          `json:"stableFrom,omitzero"`
	Rollback         *entities.Rollback `json:"rollback,omitempty"`
	LeaseRequestedAt time.Time          `json:"leaseAsked,omitzero"` // it waits for a lease on its runtime since then
	// MovesTo is the runtime in the configuration, until a release moves the channel there.
	MovesTo string `json:"movesTo,omitempty"`
	// MissingConfig says which configuration has not reached the channel, and why.
	MissingConfig string `json:"lacks,omitempty"`
	// PreviousPlacements lists objects that its instances left on runtimes that they have moved away from.
	PreviousPlacements []PreviousPlacementStatus `json:"left,omitempty"`
}

// PreviousPlacementStatus is an orphaned object that an instance left on a runtime that it moved away from.
type PreviousPlacementStatus struct {
	Instance string    `json:"instance"` // "production", or "production/eu-3" in a fleet
	Runtime  string    `json:"runtime"`
	Version  string    `json:"version"` // full version that was the target there
	At       time.Time `json:"at"`      // when it moved
	Text     string    `json:"text"`    // what it is, and what happens to it
}

// CheckStatus is the newest result of a check.
type CheckStatus struct {
	ID      string    `json:"id"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since,omitzero"` // of the verdict
	At      time.Time `json:"at,omitzero"`    // of the reading
	Next    time.Time `json:"next,omitzero"`  // when it may change without an action, or is retried
	Errors  int       `json:"errors,omitempty"`
	// Interval is the initial interval of retries after errors, in nanoseconds.
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

// Reason is one reason for a channel's status: since when, and what would change it.
type Reason struct {
	Code    string    `json:"code,omitempty"` // the kind of line: gate, pause, pin, failure, rollback, command, progress
	Text    string    `json:"text"`
	Since   time.Time `json:"since,omitzero"`
	Unblock string    `json:"unblock,omitempty"`
}

// ConditionStatus is the verdict on one condition of the next release of a channel.
type ConditionStatus struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`              // of gate: channel-stable, approval, check, extension, …
	Subject string `json:"subject,omitempty"` // its subject within the kind: a topic, an extension
	Verdict string `json:"verdict"`           // PASS, WAIT, FAIL, ERROR
	// Code adds a detail to the verdict: not-asked (an earlier condition does not pass), bypassed, rejected, open (an approval that people
	// are asked for now).
	Code      string    `json:"code,omitempty"`
	Reason    string    `json:"reason"` // for people
	Since     time.Time `json:"since,omitzero"`
	NextCheck time.Time `json:"nextCheck,omitzero"`
	Unblock   string    `json:"unblock,omitempty"`
	// Bypassable: a user can let the release bypass it.
	Bypassable bool `json:"bypassable,omitempty"`
	// Plain: the reason names the condition, so the id adds nothing.
	Plain bool `json:"plain,omitempty"`
	// Channels that the release must have succeeded in, for a channel-stable condition.
	Channels []string `json:"channels,omitempty"`
	// ApprovedBy are the users who approved. Need is how many approvals are required.
	ApprovedBy []string `json:"approvedBy,omitempty"`
	Need       int      `json:"need,omitempty"`
	// Eligible are the people who may give an open approval; nil: everybody may.
	Eligible *entities.Eligible `json:"eligible,omitempty"`
	// Elsewhere is the channel that a shared extension ran for, if that is another one.
	Elsewhere string `json:"elsewhere,omitempty"`
	// Errors counts failed evaluations of a check in a row. Interval is the initial interval of its retries, in nanoseconds.
	Errors   int           `json:"errors,omitempty"`
	Interval time.Duration `json:"interval,omitempty"`
}

// ReleaseStatus is one release and its phase in each channel.
type ReleaseStatus struct {
	ID          string            `json:"id"`
	Version     string            `json:"version"` // full version
	Incarnation int64             `json:"incarnation"`
	By          string            `json:"by"`
	Proven      bool              `json:"proven,omitempty"` // a token proved By (G7)
	At          time.Time         `json:"at"`
	Phases      map[string]string `json:"phases"`
	Reasons     map[string]string `json:"reasons,omitempty"` // channel → why it is in that phase
	// Aspect is the aspect whose values it sets. ValuesText lists the values, for people. Empty: it releases a version (B5).
	Aspect     string `json:"aspect,omitempty"`
	ValuesText string `json:"sets,omitempty"`
	// KeptVersions are the channels that get only its configuration, or its values, and keep their version → the resulting full version, once
	// it is rendered.
	KeptVersions map[string]string `json:"keeps,omitempty"`

	Approvals  []entities.Approval `json:"approvals,omitempty"`
	Bypasses   []entities.Bypass   `json:"bypasses,omitempty"`
	Extensions []ExtensionStatus   `json:"extensions,omitempty"` // by key
}

// ExtensionStatus is the progress of an extension for one release.
type ExtensionStatus struct {
	Key   string `json:"key"` // Extension.RunKey
	Name  string `json:"name"`
	State string `json:"state"` // waiting, running, done, failed
	// Deadline of the current run: after it the run is ended, and has failed.
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
	// Unread: the current version cannot be read.
	Unread *Unread `json:"unread,omitempty"`
}

// Unread is why readings fail, and since when.
type Unread struct {
	Code    string    `json:"code"` // of a reading error: unreachable, no-worker, …
	Message string    `json:"message"`
	Since   time.Time `json:"since,omitzero"`
}

// Text returns both in one line.
func (u Unread) Text() string { return u.Code + ": " + u.Message }

// FleetStatus counts the instances of a channel that has several.
type FleetStatus struct {
	Instances          int    `json:"instances"`
	Version            string `json:"version,omitempty"`     // the newest target version of any instance, as it was named
	AtVersion          int    `json:"at"`                    // how many have converged at it, with any configuration
	OtherwiseAtVersion int    `json:"atOtherwise,omitempty"` // how many of them are paused or rolled back, and so are in ByStatus too
	// ByStatus counts those that are not CONVERGED.
	ByStatus map[string]int `json:"byStatus,omitempty"`
}

// Deletion is a service that is being deleted (A24).
type Deletion struct {
	Who    entities.Who `json:"who"`
	Reason string       `json:"reason,omitempty"`
	At     time.Time    `json:"at"`
	Gone   []string     `json:"gone,omitempty"` // channels, or instances, whose objects are removed
}

// Explanation answers a Service's explain query: the lines for people, and their source.
type Explanation struct {
	Lines  []string `json:"lines"`
	Status Status   `json:"status"`
	// Running lists the current activities of workers for the service. The query does not set it; the command line does.
	Running []Progress `json:"running,omitempty"`
}

// Progress is the progress of an apply, a removal or an extension, from the heartbeat details of its activity, for people. It is up to some
// seconds old.
type Progress struct {
	Channel     string    `json:"channel,omitempty"`
	Description string    `json:"what,omitempty"`  // "extension smoke of v2"; empty: a worker has the task, but has not begun
	Place       string    `json:"place,omitempty"` // where its command runs, unless it is the worker's machine
	Tail        string    `json:"tail,omitempty"`  // the end of its output so far, at most 500 bytes
	Since       time.Time `json:"since,omitzero"`
	Until       time.Time `json:"until,omitzero"` // its timeout
	// PutOff is how often a worker did not begin it, because it runs as many changes as the Temporal server keeps up with.
	PutOff int `json:"putOff,omitempty"`
}

// IsPutOff reports that the last attempt was put off. One that has begun names its timeout.
func (p *Progress) IsPutOff() bool { return p.PutOff > 0 && p.Until.IsZero() }

// HistorySchema names the version of the HistoryAnswer document.
const HistorySchema = "converge.history/v1"

// HistoryAnswer answers a Service's history query: the newest entries of the audit trail, which are not in the store yet. The entries up to
// Stored are (D13).
type HistoryAnswer struct {
	Schema      string                `json:"schema"`
	Application string                `json:"application"`
	Service     string                `json:"service"`
	Stored      int64                 `json:"stored"` // number of the last entry in the store
	Entries     []entities.AuditEntry `json:"lines"`  // oldest first
	// Last is the last recorded entry. Its hash verifies all entries.
	Last *entities.TrailEnd `json:"last,omitempty"`
}
