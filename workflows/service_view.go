package workflows

import (
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// Search attributes that a Service keeps up to date.
var (
	attrStatus     = temporal.NewSearchAttributeKeyKeyword(protocol.AttrStatus)
	attrVersion    = temporal.NewSearchAttributeKeyKeyword(protocol.AttrVersion)
	attrWaitingFor = temporal.NewSearchAttributeKeyKeywordList(protocol.AttrWaitingFor)
)

// shown is what people were last told, so that nothing is written when nothing changed.
type shown struct {
	details    string
	status     string
	version    string
	waitingFor []string
}

// show keeps the Temporal UI's details and the search attributes up to date (INTERFACE section 3).
// Details cost no history; attributes cost an event each time they change.
func (s *service) show() {
	status := View(s.state, s.decision)
	if details := explain.Markdown(status); details != s.shown.details {
		workflow.SetCurrentDetails(s.ctx, details)
		s.shown.details = details
	}
	if s.ending() && s.atRest() && !s.state.Gone() {
		return
	}
	var updates []temporal.SearchAttributeUpdate
	if status.Status != s.shown.status {
		updates = append(updates, attrStatus.ValueSet(status.Status))
	}
	if status.Version != s.shown.version {
		updates = append(updates, attrVersion.ValueSet(status.Version))
	}
	if waits := waitingFor(s.decision); !slices.Equal(waits, s.shown.waitingFor) {
		updates = append(updates, attrWaitingFor.ValueSet(waits))
		s.shown.waitingFor = waits
	}
	s.shown.status, s.shown.version = status.Status, status.Version
	if len(updates) > 0 {
		if err := workflow.UpsertTypedSearchAttributes(s.ctx, updates...); err != nil {
			workflow.GetLogger(s.ctx).Error("search attributes not updated", "error", err)
		}
	}
}

// approvalID begins the ids of judgements that people's approvals are waited for.
const approvalID = string(entities.ManualApproval) + "/"

// The server terminates a workflow whose attribute has more than 2,048 bytes. What is left out of the
// list is told by its last entry.
const (
	maxWaitingFor  = 2000
	moreWaitingFor = "more"
)

// waitingFor names the approvals that can be given now, so that a saved view lists them
// ("approval:go-live"): as many as fit.
func waitingFor(d *entities.Decision) []string {
	out := []string{}
	for _, c := range d.Channels {
		for _, g := range approvable(c) {
			if name := string(entities.ManualApproval) + ":" + strings.TrimPrefix(g.ID, approvalID); !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return fitting(out, maxWaitingFor-len(moreWaitingFor)-len(`,""`))
}

// fitting are the first entries of a list that fit into so many bytes of JSON.
func fitting(list []string, limit int) []string {
	size := len(`[]`)
	for n, entry := range list {
		if size += len(entry) + len(`"",`); size > limit {
			return append(list[:n:n], moreWaitingFor)
		}
	}
	return list
}

// approvable are the approvals that a channel waits for once all that comes before them passes.
func approvable(c entities.ChannelDecision) []entities.Judgement {
	var out []entities.Judgement
	for _, g := range c.Gates {
		switch approval := strings.HasPrefix(g.ID, approvalID); {
		case approval && g.Verdict == entities.Wait:
			out = append(out, g)
		case g.Verdict != entities.Pass && !approval:
			return out
		}
	}
	return out
}

func (s *service) status() (protocol.Status, error) { return View(s.state, s.decision), nil }

func (s *service) explanation() (protocol.Explanation, error) {
	status := View(s.state, s.decision)
	return protocol.Explanation{Lines: explain.Lines(status, "", workflow.Now(s.ctx)), Status: status}, nil
}

// View is what a state and the last decision made from it look like from outside.
func View(s *entities.State, d *entities.Decision) protocol.Status {
	out := protocol.Status{
		Schema: protocol.StatusSchema, Application: s.Application, Service: s.Service, Store: s.Store,
		Channels: []protocol.ChannelStatus{}, Releases: []protocol.ReleaseStatus{}, Pins: []protocol.PinStatus{},
		Pauses: append([]protocol.PauseStatus{}, s.Pauses...), Refused: append([]protocol.Refusal{}, s.Refused...),
		Journal: s.Journal, Status: string(entities.StatusUnknown),
	}
	out.Deletion = s.Deletion
	for _, p := range s.Pins {
		out.Pins = append(out.Pins, protocol.PinStatus{
			Channel: p.Channel, Version: p.Target.FullVersion, Who: p.Who, Reason: p.Reason, At: p.At,
		})
	}
	if s.Spec == nil {
		out.Headline = "no configuration yet"
		return out
	}
	out.Incarnation, out.Spec, out.Description = s.Spec.Incarnation, s.SpecDigest, s.Spec.Description
	if newest := s.Newest(); newest != nil {
		out.Version = newest.FullVersion
	}
	var all []entities.Status
	for _, c := range d.Channels {
		channel := viewChannel(s, c)
		all = append(all, c.Status)
		if channel.ObservedAt.After(out.ObservedAt) {
			out.ObservedAt = channel.ObservedAt
		}
		out.Channels = append(out.Channels, channel)
	}
	worst := entities.Worst(all...)
	if s.Gone() {
		worst = entities.StatusDeleted
	}
	out.Status, out.Headline = string(worst), headline(s, d, worst)
	for n := len(s.Releases) - 1; n >= 0; n-- {
		out.Releases = append(out.Releases, viewRelease(s.Releases[n]))
	}
	if s.Held > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("config i%d waits for the next release", s.Held))
	}
	if s.Problem != "" {
		out.Notes = append(out.Notes, s.Problem)
	}
	return out
}
