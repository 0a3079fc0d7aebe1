package state

import (
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file keeps the audit trail: a line for every change of a target, every action of a person, every bypass and every outcome. The
// state is only its outbox; the complete trail is in the store.

// note records an audit line, and announces it if a notification includes its kind.
func (s *State) note(line entities.AuditLine) { s.Announce(s.notifications(), s.Note(line)) }

// notifications are the notifications that the service declares.
func (s *State) notifications() []entities.Notification {
	if s.Spec == nil {
		return nil
	}
	return s.Spec.Notifications
}

// AnnouncedTo records that a notification has sent a line, and so all before it.
func (s *State) AnnouncedTo(notification string, line int64) {
	s.Sent(s.notifications(), notification, line)
}

// ForgetAnnounced removes the announcements that no notification needs any more.
func (s *State) ForgetAnnounced() { s.ForgetSent(s.notifications()) }

// noteChange records the audit line of a change that concerns a target.
func (s *State) noteChange(c Change, kind, text string, now time.Time) {
	line := entities.AuditLine{At: now, Kind: kind, Channel: c.Channel, Release: c.Release, Text: text, Reason: c.Cause}
	switch r := s.ReleaseByID(c.Release); {
	case c.Target != nil:
		line.Version = c.Target.FullVersion
	case len(c.Moves) > 0:
		line.Version = c.Moves[0].Target.FullVersion
	case r != nil:
		line.Version = r.FullVersion
	}
	s.note(line)
}

// noteAct records the audit line of an action of a person.
func (s *State) noteAct(kind string, who entities.Who, r *Release, channel, text, reason string, now time.Time) {
	line := entities.AuditLine{At: now, Kind: kind, Who: &who, Channel: channel, Text: text, Reason: reason}
	if r != nil {
		line.Release, line.Version = r.ID, r.FullVersion
	}
	s.note(line)
}

// AnnounceWaiting records once for each release and channel that approvals are required; if every apply is approved, once for each
// request (C10). A nil release means that an apply of the current target waits.
func (s *State) AnnounceWaiting(channel string, r *Release, conditions []string, now time.Time) {
	line := entities.AuditLine{At: now, Kind: entities.EventWaiting, Channel: channel}
	what := ""
	if r != nil {
		line.Release, line.Version, what = r.ID, r.FullVersion, r.ID
	}
	for _, i := range s.In(channel) {
		if !i.Approval.Asked.IsZero() {
			line.Release, line.Version, what = "", i.present(), "apply "+i.Approval.Asked.UTC().Format(time.RFC3339)
			break
		}
	}
	c := s.Channel(channel)
	if what == "" || c.Announced == what {
		return
	}
	c.Announced = what
	line.Text = fmt.Sprintf("%s waits for %s", line.Version, strings.Join(conditions, ", "))
	s.note(line)
}

// NoteLoosened records which requirements an incarnation loosens for waiting releases, before it takes effect: a line for each channel
// with fewer requirements, and one for requirements of all channels. by is the publisher.
func (s *State) NoteLoosened(incarnation int64, by entities.Who, all []entities.Loosening, now time.Time) {
	var in []string // channels, in order; "" is all of them
	texts := map[string][]string{}
	for _, l := range all {
		if texts[l.Channel] == nil {
			in = append(in, l.Channel)
		}
		texts[l.Channel] = append(texts[l.Channel], l.Text)
	}
	for _, channel := range in {
		r := s.waitingAnywhere(channel)
		if r == nil {
			continue
		}
		line := entities.AuditLine{
			At: now, Kind: entities.EventRules, Channel: channel, Release: r.ID, Version: r.FullVersion,
			Text: fmt.Sprintf("incarnation %d relaxes requirements: %s", incarnation, strings.Join(texts[channel], ", ")),
		}
		if by.Name != "" {
			line.Who = &by
		}
		s.note(line)
	}
}

// waitingAnywhere is the oldest release that waits in a channel, or, if channel is empty, in any.
func (s *State) waitingAnywhere(channel string) *Release {
	if channel != "" {
		return s.Waiting(channel)
	}
	for _, c := range s.Spec.ChannelNames() {
		if r := s.Waiting(c); r != nil {
			return r
		}
	}
	return nil
}

// Waits reports whether a release waits in any channel.
func (s *State) Waits() bool { return s.Spec != nil && s.waitingAnywhere("") != nil }
