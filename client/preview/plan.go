// Package preview computes what a release, or the configuration in a directory, would change where services run, and changes nothing. It
// renders, stores content-addressed objects, and queries the workers through a short workflow, since only they can reach the runtimes.
// `converge plan` prints the result.
//
// It publishes and releases nothing, records no version, and decides nothing.
package preview

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/incarnation"
)

// Schema names the version of the Plan document. Within it fields are only added.
const Schema = "converge.plan/v1"

// Plan is the set of changes.
type Plan struct {
	Schema      string `json:"schema"`
	Application string `json:"application"`
	// Incarnation is the newest one, with which a directory is compared.
	Incarnation int64     `json:"incarnation"`
	Services    []Service `json:"services"` // the affected ones
	// Removed are services that the directory no longer declares. They are left in place, orphaned (D10), except for the parts that a
	// service with Removal lists.
	Removed []string `json:"removed,omitempty"`
	// Rules are the changes of a directory that release nothing (incarnation.Diff without payloads).
	Rules  *incarnation.Difference `json:"rules,omitempty"`
	Totals protocol.PreviewTotals  `json:"totals"`
	// Unseen counts the channels with an apply whose runtime cannot report changes, Failed those that could not be queried.
	Unseen int `json:"unseen,omitempty"`
	Failed int `json:"failed,omitempty"`
}

// Service is the changes of one service.
type Service struct {
	Service string `json:"service"`
	// Version is the planned full version; empty if each channel has its own.
	Version     string `json:"version,omitempty"`
	Incarnation int64  `json:"incarnation,omitempty"` // that the version is rendered from
	Known       bool   `json:"known,omitempty"`       // the version was released before
	// Removal: its channels are removed; the plan shows what is removed and kept (A24).
	Removal bool `json:"removal,omitempty"`
	// Refused is why `delete` would be refused now.
	Refused  string    `json:"refused,omitempty"`
	Notes    []string  `json:"notes,omitempty"`
	Channels []Channel `json:"channels"`
}

// Channel is the changes of one instance of a channel, as its runtime reports them, or why they are not known.
type Channel struct {
	Instance entities.InstanceID `json:"instance"`
	Runtime  string              `json:"runtime"`
	Present  string              `json:"present,omitempty"` // the current full version, empty for none
	Version  string              `json:"version"`           // the full version that would be applied
	protocol.ItemPreview
	// Sent is the difference to the last payload of the runtime, if the runtime cannot report changes.
	Sent []protocol.PreviewField `json:"sent,omitempty"`
}

// Name is the display name of the instance.
func (c Channel) Name() string {
	if c.Instance.Name == "" {
		return c.Channel
	}
	return c.Instance.String()
}

// Unseen reports whether the runtime cannot report what an apply changes.
func (c Channel) Unseen() bool { return c.Code == protocol.PreviewNoPlanner }

// Failed reports whether the changes are unknown although the runtime could report them.
func (c Channel) Failed() bool { return c.Code != "" && !c.Unseen() }

// Unchanged reports whether an apply there is known to change nothing.
func (c Channel) Unchanged() bool {
	return c.Code == "" && len(c.Changes)+c.Omitted == 0 || c.Unseen() && len(c.Sent) == 0 && c.Present != "" && !c.Removal
}

// Empty reports whether nothing would change, including rules, and every query was answered.
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

// count computes the totals.
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
