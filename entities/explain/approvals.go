package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// OpenApproval is an approval that people are asked for now: of a release for a topic, in all channels that it is for.
type OpenApproval struct {
	Application string            `json:"application"`
	Service     string            `json:"service"`
	Version     string            `json:"version"` // full version
	Topic       string            `json:"topic"`
	Channels    []ApprovalChannel `json:"channels"`
	ApprovedBy  []string          `json:"approvedBy,omitempty"`
	Need        int               `json:"need"`   // how many approvals are required; 0: one, by anyone
	Reason      string            `json:"reason"` // for people: how many are given, and who may give the others
	Since       time.Time         `json:"since,omitzero"`
	Command     string            `json:"command"`
}

// ApprovalChannel is a channel that an approval is for.
type ApprovalChannel struct {
	Name    string   `json:"name"`
	Current string   `json:"current,omitempty"` // what runs there
	Waits   []string `json:"waits,omitempty"`   // ids of the other conditions that do not pass yet
	// Eligible are the people who may give the approval for the channel; nil: everybody may.
	Eligible *entities.Eligible `json:"eligible,omitempty"`
}

// MayGive reports whether a person may give the approval for some channel, as far as names and groups tell. Grants have to cover all channels.
func (a OpenApproval) MayGive(who entities.Who) bool {
	notGranted := func(c ApprovalChannel) bool { return !c.Eligible.Grants(who) }
	return !slices.ContainsFunc(a.Channels, notGranted) && slices.ContainsFunc(a.Channels, func(c ApprovalChannel) bool { return c.Eligible.Includes(who) })
}

// OpenApprovals lists the approvals that people are asked for now, those that wait longest first.
func OpenApprovals(services []protocol.Status) []OpenApproval {
	all := []OpenApproval{}
	for _, s := range services {
		for _, c := range s.Channels {
			for _, k := range c.Conditions {
				if k.Code != "open" {
					continue
				}
				version := cmp.Or(c.Desired, c.Target)
				at := slices.IndexFunc(all, func(a OpenApproval) bool {
					return a.Application == s.Application && a.Service == s.Service && a.Version == version && a.Topic == k.Subject
				})
				if at < 0 {
					at = len(all)
					all = append(all, OpenApproval{
						Application: s.Application, Service: s.Service, Version: version, Topic: k.Subject, ApprovedBy: k.ApprovedBy, Need: k.Need,
						Reason: k.Reason, Since: k.Since, Command: k.Unblock,
					})
				}
				all[at].Channels = append(all[at].Channels, ApprovalChannel{c.Name, c.Current, otherWaits(c, k), k.Eligible})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b OpenApproval) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Application, b.Application), cmp.Compare(a.Service, b.Service))
	})
	return all
}

func otherWaits(c protocol.ChannelStatus, approval protocol.ConditionStatus) (ids []string) {
	for _, k := range c.Conditions {
		if k.ID != approval.ID && k.Verdict != "PASS" && !notEvaluated(k) {
			ids = append(ids, k.ID)
		}
	}
	return ids
}

// Lines are the approval for people: what it is, what changes where, and the command.
func (a OpenApproval) Lines(now time.Time) []string {
	lines := []string{joined("; ", a.Application+"/"+a.Service+" "+a.Version+" "+a.Topic+": "+oneLine(a.Reason, textLimit), since(a.Since, now))}
	for _, c := range a.Channels {
		line := "  " + c.Name + " " + cmp.Or(c.Current, "(nothing)") + " → " + a.Version
		if len(c.Waits) > 0 {
			line += ", which also waits for " + strings.Join(c.Waits, ", ")
		}
		lines = append(lines, line)
	}
	return append(lines, "  "+a.Command)
}
