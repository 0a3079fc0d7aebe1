package state

import (
	"slices"

	"github.com/converge-engine/converge/entities"
)

// Outbox is the queue of notifications of a service or of an application. Each notification sends its entries in order, independent of the
// others.
type Outbox struct {
	// Announcements are audit entries that some notification has not sent yet. Announced is the number of the last entry that each
	// notification has sent, by its name, while more are queued.
	Announcements []entities.AuditEntry `json:"announcements,omitempty"`
	Announced     map[string]int64      `json:"announced,omitempty"`
}

// Announce queues an entry if a notification includes its kind.
func (o *Outbox) Announce(all []entities.Notification, entry entities.AuditEntry) {
	entry.Prev = "" // a receiver could not verify it
	if slices.ContainsFunc(all, func(n entities.Notification) bool { return slices.Contains(n.Events, entry.Kind) }) {
		o.Announcements = entities.KeepLast(append(o.Announcements, entry), MaxAnnouncements)
	}
}

// NextAnnouncement is the oldest entry that a notification includes and has not sent yet.
func (o *Outbox) NextAnnouncement(n entities.Notification) (entities.AuditEntry, bool) {
	for _, l := range o.Announcements {
		if l.N > o.Announced[n.Name] && slices.Contains(n.Events, l.Kind) {
			return l, true
		}
	}
	return entities.AuditEntry{}, false
}

// MarkSent records that a notification has sent an entry, and so all before it.
func (o *Outbox) MarkSent(all []entities.Notification, notification string, number int64) {
	if o.Announced == nil {
		o.Announced = map[string]int64{}
	}
	o.Announced[notification] = number
	o.PruneSent(all)
}

// PruneSent removes the announcements that no notification needs any more.
func (o *Outbox) PruneSent(all []entities.Notification) {
	o.Announcements = slices.DeleteFunc(o.Announcements, func(l entities.AuditEntry) bool {
		return !slices.ContainsFunc(all, func(n entities.Notification) bool {
			return l.N > o.Announced[n.Name] && slices.Contains(n.Events, l.Kind)
		})
	})
	if len(o.Announcements) == 0 {
		o.Announcements, o.Announced = nil, nil
	}
}
