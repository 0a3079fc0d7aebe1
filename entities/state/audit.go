package state

import (
	"fmt"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file keeps the audit trail: an entry for every change of a target, every action of a person, every bypass and every outcome. The
// state is only its outbox; the complete trail is in the store.

// recordAudit records an audit entry, and announces it if a notification includes its kind.
func (s *State) recordAudit(entry entities.AuditEntry) {
	s.Announce(s.notifications(), s.AppendAudit(entry))
}

// notifications are the notifications that the service declares.
func (s *State) notifications() []entities.Notification {
	if s.Spec == nil {
		return nil
	}
	return s.Spec.Notifications
}

// NotificationSent records that a notification has sent an entry, and so all before it.
func (s *State) NotificationSent(notification string, number int64) {
	s.MarkSent(s.notifications(), notification, number)
}

// PruneAnnouncements removes the announcements that no notification needs any more.
func (s *State) PruneAnnouncements() { s.PruneSent(s.notifications()) }

// recordChange records the audit entry of a change that concerns a target.
func (s *State) recordChange(c Change, kind, text string, now time.Time) {
	entry := entities.AuditEntry{At: now, Kind: kind, Channel: c.Channel, Release: c.Release, Text: text, Reason: c.Cause}
	switch r := s.ReleaseByID(c.Release); {
	case c.Target != nil:
		entry.Version = c.Target.FullVersion
	case len(c.Moves) > 0:
		entry.Version = c.Moves[0].Target.FullVersion
	case r != nil:
		entry.Version = r.FullVersion
	}
	s.recordAudit(entry)
}

// recordAction records the audit entry of an action of a person.
func (s *State) recordAction(kind string, who entities.Who, r *Release, channel, text, reason string, now time.Time) {
	entry := entities.AuditEntry{At: now, Kind: kind, Who: &who, Channel: channel, Text: text, Reason: reason}
	if r != nil {
		entry.Release, entry.Version = r.ID, r.FullVersion
	}
	s.recordAudit(entry)
}

// AnnounceWaiting records once for each release and channel that approvals are required; if every apply is approved, once for each
// request (C10). A nil release means that an apply of the current target waits.
func (s *State) AnnounceWaiting(channel string, r *Release, conditions []string, now time.Time) {
	entry := entities.AuditEntry{At: now, Kind: entities.EventWaiting, Channel: channel}
	what := ""
	if r != nil {
		entry.Release, entry.Version, what = r.ID, r.FullVersion, r.ID
	}
	for _, i := range s.InstancesIn(channel) {
		if !i.Approval.WaitingSince.IsZero() {
			entry.Release, entry.Version, what = "", i.currentVersion(), "apply "+i.Approval.WaitingSince.UTC().Format(time.RFC3339)
			break
		}
	}
	c := s.Channel(channel)
	if what == "" || c.AnnouncedWait == what {
		return
	}
	c.AnnouncedWait = what
	entry.Text = fmt.Sprintf("%s waits for %s", entry.Version, strings.Join(conditions, ", "))
	s.recordAudit(entry)
}

// RecordLoosened records which requirements an incarnation loosens for waiting releases, before it takes effect: an entry for each channel
// with fewer requirements, and one for requirements of all channels. by is the publisher.
func (s *State) RecordLoosened(incarnation int64, by entities.Who, all []entities.Loosening, now time.Time) {
	var in []string // channels, in order; "" is all of them
	texts := map[string][]string{}
	for _, l := range all {
		if texts[l.Channel] == nil {
			in = append(in, l.Channel)
		}
		texts[l.Channel] = append(texts[l.Channel], l.Text)
	}
	for _, channel := range in {
		r := s.firstWaiting(channel)
		if r == nil {
			continue
		}
		entry := entities.AuditEntry{
			At: now, Kind: entities.EventRules, Channel: channel, Release: r.ID, Version: r.FullVersion,
			Text: fmt.Sprintf("incarnation %d relaxes requirements: %s", incarnation, strings.Join(texts[channel], ", ")),
		}
		if by.Name != "" {
			entry.Who = &by
		}
		s.recordAudit(entry)
	}
}

// firstWaiting is the oldest release that waits in a channel, or, if channel is empty, in any.
func (s *State) firstWaiting(channel string) *Release {
	if channel != "" {
		return s.oldestPending(channel)
	}
	for _, c := range s.Spec.ChannelNames() {
		if r := s.oldestPending(c); r != nil {
			return r
		}
	}
	return nil
}

// HasWaitingRelease reports whether a release waits in any channel.
func (s *State) HasWaitingRelease() bool { return s.Spec != nil && s.firstWaiting("") != nil }
