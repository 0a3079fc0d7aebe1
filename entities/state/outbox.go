package state

import (
	"slices"

	"github.com/converge-engine/converge/entities"
)

// Outbox is what notifications are still to send: of a service, or of an application. Each sends its lines in order, whatever
// the others do.
type Outbox struct {
	// Announcements are audit lines that some notification is still to send; Announced is the number of the
	// last line that each has sent, by its name, while there are more.
	Announcements []entities.AuditLine `json:"announcements,omitempty"`
	Announced     map[string]int64     `json:"announced,omitempty"`
}

// Announce keeps a line that a notification asks for.
func (o *Outbox) Announce(all []entities.Notification, line entities.AuditLine) {
	line.Prev = "" // nobody who is notified could compare it
	if slices.ContainsFunc(all, func(n entities.Notification) bool { return slices.Contains(n.Events, line.Kind) }) {
		o.Announcements = entities.KeepLast(append(o.Announcements, line), MaxAnnouncements)
	}
}

// NextAnnouncement is the oldest line that a notification asks for and has not sent yet.
func (o *Outbox) NextAnnouncement(n entities.Notification) (entities.AuditLine, bool) {
	for _, l := range o.Announcements {
		if l.N > o.Announced[n.Name] && slices.Contains(n.Events, l.Kind) {
			return l, true
		}
	}
	return entities.AuditLine{}, false
}

// Sent notes that a notification has sent a line, and so all before it.
func (o *Outbox) Sent(all []entities.Notification, notification string, line int64) {
	if o.Announced == nil {
		o.Announced = map[string]int64{}
	}
	o.Announced[notification] = line
	o.ForgetSent(all)
}

// ForgetSent forgets the announcements that no notification is to send any more.
func (o *Outbox) ForgetSent(all []entities.Notification) {
	o.Announcements = slices.DeleteFunc(o.Announcements, func(l entities.AuditLine) bool {
		return !slices.ContainsFunc(all, func(n entities.Notification) bool {
			return l.N > o.Announced[n.Name] && slices.Contains(n.Events, l.Kind)
		})
	})
	if len(o.Announcements) == 0 {
		o.Announcements, o.Announced = nil, nil
	}
}
