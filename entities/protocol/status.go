package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// StatusSchema names the version of the Status document. Within it fields are only added; readers
// tolerate unknown enum values.
const StatusSchema = "converge.status/v1"

// Status answers a Service's status query (INTERFACE section 2).
type Status struct {
	Schema      string          `json:"schema"`
	Application string          `json:"application"`
	Service     string          `json:"service"`
	Description string          `json:"description,omitempty"`
	Status      string          `json:"status"` // of the worst channel
	Version     string          `json:"version,omitempty"`
	Incarnation int64           `json:"incarnation"`
	Store       string          `json:"store,omitempty"`
	ObservedAt  time.Time       `json:"observedAt,omitzero"`
	Headline    string          `json:"headline"` // one line: what moves or what it waits for
	Channels    []ChannelStatus `json:"channels"`
	Releases    []ReleaseStatus `json:"releases"` // newest first
	Pauses      []PauseStatus   `json:"pauses"`
	Pins        []any           `json:"pins"`
	Refused     []Refusal       `json:"refused"`
	Notes       []string        `json:"notes,omitempty"`   // e.g. "config i42 waits for the next release"
	Journal     []JournalLine   `json:"journal,omitempty"` // bounded tail, oldest first
}

// ChannelStatus is one channel of a service.
type ChannelStatus struct {
	Name       string            `json:"name"`
	Runtime    string            `json:"runtime"`
	Status     string            `json:"status"`
	Current    string            `json:"current"` // active version(s) the runtime reports, "" for none
	Target     string            `json:"target"`
	Desired    string            `json:"desired"`
	Since      time.Time         `json:"since,omitzero"` // of the status
	Reasons    []Reason          `json:"reasons,omitempty"`
	Conditions []ConditionStatus `json:"conditions"`
	Objects    []entities.Object `json:"objects"`
	Omitted    int               `json:"omitted,omitempty"`
	ObservedAt time.Time         `json:"observedAt,omitzero"`
	NextChange time.Time         `json:"nextChange,omitzero"` // when something is due by itself
}

// Reason is one line of why a channel is as it is, since when, and what would change it.
type Reason struct {
	Text    string    `json:"text"`
	Since   time.Time `json:"since,omitzero"`
	Unblock string    `json:"unblock,omitempty"`
}

// ConditionStatus is the verdict on one condition of the next release of a channel.
type ConditionStatus struct {
	ID        string    `json:"id"`
	Verdict   string    `json:"verdict"` // PASS, WAIT, FAIL, ERROR
	Reason    string    `json:"reason"`
	Since     time.Time `json:"since,omitzero"`
	NextCheck time.Time `json:"nextCheck,omitzero"`
	Unblock   string    `json:"unblock,omitempty"`
}

// ReleaseStatus is one release and its phase in each channel.
type ReleaseStatus struct {
	ID          string            `json:"id"`
	Version     string            `json:"version"` // full version
	Incarnation int64             `json:"incarnation"`
	By          string            `json:"by"`
	At          time.Time         `json:"at"`
	Phases      map[string]string `json:"phases"`
	Reasons     map[string]string `json:"reasons,omitempty"` // channel → why it is in that phase
}

// PauseStatus is one pause in force.
type PauseStatus = entities.Pause

// JournalLine is something that happened.
type JournalLine = entities.JournalLine

// Explanation answers a Service's explain query: the lines a person reads, and what they are made
// of.
type Explanation struct {
	Lines  []string `json:"lines"`
	Status Status   `json:"status"`
}
