package workflows

import (
	"fmt"
	"slices"
	"strings"
	"time"

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
	if s.ending() && s.atRest() {
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

// waitingFor names what people are waited for: approvals, so that a saved view lists them.
func waitingFor(d *entities.Decision) []string {
	out := []string{}
	for _, c := range d.Channels {
		for _, g := range c.Gates {
			if g.Verdict != entities.Pass && g.Unblock != "" && c.Status == entities.StatusManualApproval && !slices.Contains(out, g.ID) {
				out = append(out, g.ID)
			}
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

func viewChannel(s *entities.State, c entities.ChannelDecision) protocol.ChannelStatus {
	i := s.Instances[c.Channel]
	if i == nil {
		i = &entities.Instance{}
	}
	spec, _ := s.Spec.Channel(c.Channel)
	out := protocol.ChannelStatus{
		Name: c.Channel, Runtime: spec.Runtime, Status: string(c.Status), Current: entities.ShownVersions(c.Current.Active),
		Since: i.Since, Conditions: []protocol.ConditionStatus{}, Objects: append([]entities.Object{}, i.Reading.Objects...),
		Omitted: i.Reading.Omitted, ObservedAt: i.LookedAt,
	}
	if c.Status == entities.StatusConverging || c.Status == entities.StatusDegraded {
		out.NextChange = c.Due // elsewhere what is due is bookkeeping, and moves nothing
	}
	if i.Target != nil {
		out.Target, out.Desired = i.Target.FullVersion, i.Target.FullVersion
	}
	if c.Next != nil {
		out.Desired = c.Next.FullVersion
	}
	for n, reason := range c.Reasons {
		r := protocol.Reason{Text: reason, Since: reasonSince(c.Status, i)}
		if n == 0 {
			r.Unblock = unblock(s, c, i)
		}
		out.Reasons = append(out.Reasons, r)
	}
	for _, g := range c.Gates {
		out.Conditions = append(out.Conditions, protocol.ConditionStatus{
			ID: g.ID, Verdict: string(g.Verdict), Reason: g.Reason, Since: g.Since, NextCheck: g.Next, Unblock: g.Unblock,
		})
	}
	return out
}

func reasonSince(status entities.Status, i *entities.Instance) time.Time {
	if status == entities.StatusUnknown && !i.ErrSince.IsZero() {
		return i.ErrSince
	}
	return i.Since
}

// unblock is the command that would change a status which does not end by itself.
func unblock(s *entities.State, c entities.ChannelDecision, i *entities.Instance) string {
	name := s.Application + "/" + s.Service
	switch c.Status {
	case entities.StatusPaused:
		if p, ok := s.PauseOf(c.Channel); ok && p.Channel != "" {
			return fmt.Sprintf("converge resume %s --channel %s", name, c.Channel)
		}
		return "converge resume " + name
	case entities.StatusFailed:
		return fmt.Sprintf("release a fix, or: converge retry %s %s", name, i.Target.FullVersion)
	}
	return ""
}

func viewRelease(r *entities.Release) protocol.ReleaseStatus {
	out := protocol.ReleaseStatus{ID: r.ID, Version: r.FullVersion, Incarnation: r.Incarnation, By: r.By, At: r.At, Phases: map[string]string{}}
	for _, channel := range entities.SortedKeys(r.Phases) {
		p := r.Phases[channel]
		out.Phases[channel] = string(p.Phase)
		if p.Reason != "" {
			if out.Reasons == nil {
				out.Reasons = map[string]string{}
			}
			out.Reasons[channel] = p.Reason
		}
	}
	return out
}

// headline is the one line that says what a service does or waits for.
func headline(s *entities.State, d *entities.Decision, worst entities.Status) string {
	newest := s.Newest()
	switch {
	case len(s.Spec.Channels) == 0:
		return "no longer declared; its objects were left in place"
	case newest == nil:
		return "nothing released yet"
	case worst == entities.StatusConverged:
		return newest.FullVersion + " converged in every channel"
	}
	for _, c := range d.Channels {
		if c.Status != worst {
			continue
		}
		version := newest.FullVersion
		if i := s.Instances[c.Channel]; i != nil && i.Target != nil {
			version = i.Target.FullVersion
		}
		if c.Next != nil && (worst == entities.StatusPreconditions || worst == entities.StatusBlocked) {
			version = c.Next.FullVersion
		}
		switch worst {
		case entities.StatusPaused:
			return pausedHeadline(c)
		case entities.StatusFailed:
			return failedHeadline(c, s.Instances[c.Channel])
		}
		line := fmt.Sprintf("%s %s in %s", version, worst, c.Channel)
		if len(c.Reasons) > 0 {
			line += ": " + c.Reasons[0]
		}
		return line
	}
	return string(worst)
}

// pausedHeadline says who holds a channel and what waits for it.
func pausedHeadline(c entities.ChannelDecision) string {
	line := c.Channel + " is " + strings.Join(c.Reasons, "; ")
	if c.Next != nil {
		line += "; " + c.Next.FullVersion + " waits"
	}
	return line
}

func failedHeadline(c entities.ChannelDecision, i *entities.Instance) string {
	return fmt.Sprintf("%s FAILED in %s: %s", i.Target.FullVersion, c.Channel, i.Failure)
}
