// Package preview finds out what a release, or the configuration in a directory, would change where
// services run, and changes nothing: render, store what is named by its content, and ask the workers,
// who alone can reach the runtimes, through a short workflow. `converge plan` prints it.
//
// It publishes and releases nothing, remembers no version, and decides nothing.
package preview

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

// Schema names the version of the Plan document. Within it fields are only added.
const Schema = "converge.plan/v1"

// Plan is what would change.
type Plan struct {
	Schema      string `json:"schema"`
	Application string `json:"application"`
	// Incarnation is the newest one: what a directory is compared with.
	Incarnation int64     `json:"incarnation"`
	Services    []Service `json:"services"` // those that are concerned
	// Removed are services that the directory no longer declares: left in place, orphaned (D10), but for what a service that is a
	// removal says.
	Removed []string `json:"removed,omitempty"`
	// Rules are the changes of a directory that release nothing (incarnation.Diff without payloads).
	Rules  *incarnation.Difference `json:"rules,omitempty"`
	Totals protocol.PreviewTotals  `json:"totals"`
	// Unseen counts the channels where something would be applied by a runtime that cannot say what
	// changes, Failed those that could not be asked.
	Unseen int `json:"unseen,omitempty"`
	Failed int `json:"failed,omitempty"`
}

// Service is what would change of one service.
type Service struct {
	Service string `json:"service"`
	// Version is the full version that was asked about; empty when each channel has its own.
	Version     string `json:"version,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"` // that the version is made from
	Known       bool   `json:"known,omitempty"`       // the version was released before
	// Removal: its channels are taken down, and this is what goes and what stays (A24).
	Removal bool `json:"removal,omitempty"`
	// Refused is why `delete` would be refused at present.
	Refused  string    `json:"refused,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	Channels []Channel `json:"channels"`
}

// Channel is what would change in one instance of a channel: what its runtime said, or why that is not known.
type Channel struct {
	Instance entities.InstanceID `json:"instance"`
	Runtime  string              `json:"runtime"`
	Present  string              `json:"present,omitempty"` // the full version there, empty for nothing
	Version  string              `json:"version"`           // the full version that would be applied
	protocol.ItemPreview
	// Sent is what the runtime would be sent otherwise than now, when it cannot say what changes.
	Sent []protocol.PreviewField `json:"sent,omitempty"`
}

// Name is the instance as a person is shown it.
func (c Channel) Name() string {
	if c.Instance.Name == "" {
		return c.Channel
	}
	return c.Instance.String()
}

// Unseen reports whether the runtime cannot say what an apply changes.
func (c Channel) Unseen() bool { return c.Code == protocol.PreviewNoPlanner }

// Failed reports whether it is not known what would change, though it could be.
func (c Channel) Failed() bool { return c.Code != "" && !c.Unseen() }

// Unchanged reports whether an apply there is known to change nothing.
func (c Channel) Unchanged() bool {
	return c.Code == "" && len(c.Changes)+c.Omitted == 0 || c.Unseen() && len(c.Sent) == 0 && c.Present != "" && !c.Removal
}

// Empty reports whether nothing at all would change, rules included, and everything was asked.
func (p *Plan) Empty() bool {
	if p.Rules != nil && !p.Rules.Empty() || len(p.Removed) > 0 {
		return false
	}
	for _, s := range p.Services {
		for _, c := range s.Channels {
			if !c.Unchanged() {
				return false
			}
		}
	}
	return true
}

// count adds up the channels.
func (p *Plan) count() {
	for _, s := range p.Services {
		for _, c := range s.Channels {
			p.Totals = p.Totals.Add(c.Totals)
			switch {
			case c.Failed():
				p.Failed++
			case c.Unseen() && !c.Unchanged():
				p.Unseen++
			}
		}
	}
}
