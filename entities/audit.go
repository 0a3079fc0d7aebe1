package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// This file keeps the audit trail: a line for every change of a target, every human act, every bypass
// and every outcome. State is only its outbox; the whole of it lies in the store.

// MaxAnnouncements bounds what somebody is still to be told of: past it the oldest are dropped.
const MaxAnnouncements = 100

// Note numbers an audit line and appends it, and puts it among the announcements when a Notification
// asks for its kind.
func (s *State) Note(line AuditLine) {
	s.AuditLines++
	line.N = s.AuditLines
	s.Audit = keepLast(append(s.Audit, line), MaxAudit)
	if s.Spec != nil && slices.ContainsFunc(s.Spec.Notifications, func(n Notification) bool { return slices.Contains(n.Events, line.Kind) }) {
		s.Announcements = keepLast(append(s.Announcements, line), MaxAnnouncements)
	}
}

// AuditStored forgets the lines up to that number: they are in the store.
func (s *State) AuditStored(upTo int64) {
	s.Audit = slices.DeleteFunc(s.Audit, func(l AuditLine) bool { return l.N <= upTo })
}

// Unheard is the oldest line that a notification asks for and was not told of yet.
func (s *State) Unheard(n Notification) (AuditLine, bool) {
	for _, l := range s.Announcements {
		if l.N > s.Heard[n.Name] && slices.Contains(n.Events, l.Kind) {
			return l, true
		}
	}
	return AuditLine{}, false
}

// HeardOf takes note that a notification was told of a line, and so of all before it. Each is told in
// order, whatever the others hear.
func (s *State) HeardOf(notification string, line int64) {
	if s.Heard == nil {
		s.Heard = map[string]int64{}
	}
	s.Heard[notification] = line
	s.ForgetHeard()
}

// ForgetHeard forgets the announcements that nobody is to be told of any more.
func (s *State) ForgetHeard() {
	var all []Notification
	if s.Spec != nil {
		all = s.Spec.Notifications
	}
	s.Announcements = slices.DeleteFunc(s.Announcements, func(l AuditLine) bool {
		return !slices.ContainsFunc(all, func(n Notification) bool {
			return l.N > s.Heard[n.Name] && slices.Contains(n.Events, l.Kind)
		})
	})
	if len(s.Announcements) == 0 {
		s.Announcements, s.Heard = nil, nil
	}
}

// noteChange writes the audit line of a change that concerns a target.
func (s *State) noteChange(c Change, kind, text string, now time.Time) {
	line := AuditLine{At: now, Kind: kind, Channel: c.Channel, Release: c.Release, Text: text, Reason: c.Cause}
	if c.Target != nil {
		line.Version = c.Target.FullVersion
	} else if r := s.ReleaseByID(c.Release); r != nil {
		line.Version = r.FullVersion
	}
	s.Note(line)
}

// noteAct writes the audit line of something that a person did.
func (s *State) noteAct(kind string, who Who, r *Release, channel, text, reason string, now time.Time) {
	line := AuditLine{At: now, Kind: kind, Who: &who, Channel: channel, Text: text, Reason: reason}
	if r != nil {
		line.Release, line.Version = r.ID, r.FullVersion
	}
	s.Note(line)
}

// noteWaiting tells once for each release and channel that an approval is waited for; where every
// apply is approved, once for each time one is asked for (C10).
func (s *State) noteWaiting(c *ChannelDecision, i *Instance, now time.Time) {
	if c.Status != StatusManualApproval {
		return
	}
	line := AuditLine{At: now, Kind: EventWaiting, Channel: c.Channel}
	told := ""
	switch {
	case c.Next != nil && i.ApplyAsked.IsZero():
		line.Release, line.Version, told = c.Next.ID, c.Next.FullVersion, c.Next.ID
	case i.Target != nil:
		line.Version, told = i.Target.FullVersion, "apply "+i.ApplyAsked.UTC().Format(time.RFC3339)
	}
	if i.Told == told {
		return
	}
	i.Told = told
	var waits []string
	for _, g := range c.Gates {
		if g.Verdict != Pass && strings.HasPrefix(g.ID, string(ManualApproval)+"/") {
			waits = append(waits, g.ID)
		}
	}
	line.Text = fmt.Sprintf("%s waits for %s", line.Version, strings.Join(waits, ", "))
	s.Note(line)
}

// noteLoosened tells what a new spec loosens for releases that wait: an approval that asks for fewer
// people, or a condition or check that is gone.
func (s *State) noteLoosened(before, spec *Spec, now time.Time) {
	if before == nil {
		return
	}
	for _, c := range spec.Channels {
		old, _ := before.Channel(c.Name)
		r := s.waiting(c.Name)
		if r == nil {
			continue
		}
		if loosened := loosened(old, c); len(loosened) > 0 {
			s.Note(AuditLine{
				At: now, Kind: EventRules, Channel: c.Name, Release: r.ID, Version: r.FullVersion,
				Text: fmt.Sprintf("incarnation %d asks for less: %s", spec.Incarnation, strings.Join(loosened, ", ")),
			})
		}
	}
}

// waiting is the oldest release that is still to come in a channel, or nil.
func (s *State) waiting(channel string) *Release {
	for _, r := range s.Releases {
		if p := r.Phases[channel]; p != nil && p.Phase == maestro.Pending {
			return r
		}
	}
	return nil
}

// loosened lists what the rules of a channel ask for no longer.
func loosened(old, c ChannelSpec) []string {
	var out []string
	for _, o := range old.Conditions {
		at := slices.IndexFunc(c.Conditions, func(n Condition) bool { return n.ID == o.ID })
		switch {
		case at < 0:
			out = append(out, "no "+o.ID)
		case c.Conditions[at].MinApprovers < o.MinApprovers:
			out = append(out, fmt.Sprintf("%s from %d instead of %d", o.ID, c.Conditions[at].MinApprovers, o.MinApprovers))
		case len(o.Approvers) > 0 && widened(o.Approvers, c.Conditions[at].Approvers):
			out = append(out, o.ID+" from more people")
		}
	}
	for _, o := range old.Checks {
		at := slices.IndexFunc(c.Checks, func(n Check) bool { return n.ID == o.ID })
		if at < 0 {
			out = append(out, "no "+o.ID)
			continue
		}
		for _, stage := range o.At {
			if !slices.ContainsFunc(c.Checks[at].At, func(n CheckAt) bool { return n.Stage == stage.Stage }) {
				out = append(out, fmt.Sprintf("no %s at %s", o.ID, stage.Stage))
			}
		}
	}
	return out
}

// widened: somebody may approve who could not before.
func widened(old, now []string) bool {
	return len(now) == 0 || slices.ContainsFunc(now, func(n string) bool { return !slices.Contains(old, n) })
}
