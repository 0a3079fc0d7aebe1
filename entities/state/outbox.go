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
	// NotTaken are the errors of the notifications that did not take their next entry, by name.
	NotTaken map[string]string `json:"notTaken,omitempty"`
}

// Undelivered lists the notifications that did not take their next entry, by name.
func (o *Outbox) Undelivered(all []entities.Notification) (out []entities.Undelivered) {
	for _, n := range all {
		next, waits := o.NextAnnouncement(n)
		why, refused := o.NotTaken[n.Name]
		if !waits || !refused {
			continue
		}
		out = append(out, entities.Undelivered{Notification: n.Name, Since: next.At, Error: why, Entries: o.queued(n)})
	}
	return out
}

// queued counts the entries that a notification has not sent yet.
func (o *Outbox) queued(n entities.Notification) (count int) {
	for _, l := range o.Announcements {
		if l.N > o.Announced[n.Name] && slices.Contains(n.Events, l.Kind) {
			count++
		}
	}
	return count
}

// MarkNotTaken records that a notification did not take its next entry, after several attempts. It reports whether that is news.
func (o *Outbox) MarkNotTaken(notification, why string) bool {
	_, known := o.NotTaken[notification]
	if o.NotTaken == nil {
		o.NotTaken = map[string]string{}
	}
	o.NotTaken[notification] = why
	return !known
}

// Announce queues an entry if a notification includes its kind. That a release waits for what several channels share is queued once.
func (o *Outbox) Announce(all []entities.Notification, entry entities.AuditEntry) {
	entry.Prev = "" // a receiver could not verify it
	if entry.Kind == entities.EventWaiting && slices.ContainsFunc(o.Announcements, func(l entities.AuditEntry) bool {
		return l.Kind == entry.Kind && l.Release == entry.Release && l.Text == entry.Text
	}) {
		return
	}
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
	delete(o.NotTaken, notification)
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
		o.Announcements, o.Announced, o.NotTaken = nil, nil, nil
	}
}
