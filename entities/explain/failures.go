package explain

import (
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Failures follows what fails in a service and is tried again: applies, readings, checks and extensions. The zero value is ready to use.
type Failures struct {
	present map[string]bool // those of the last status
	last    string
}

// New returns those that the last status did not have, as entries of a journal at this time. A failure that repeats in the same words, such
// as that of a check, is one failure; each failed attempt of an apply is another one.
func (f *Failures) New(s protocol.Status, now time.Time) (entries []entities.JournalEntry) {
	present := map[string]bool{}
	f.last = ""
	for _, c := range s.Channels {
		for _, one := range failuresOf(c) {
			text := one.text
			if f.last == "" {
				f.last = c.Name + ": " + text
			}
			key := c.Name + " " + text
			if present[key] = true; f.present[key] {
				continue
			}
			if one.next.After(now) {
				text += "; next attempt in " + Duration(one.next.Sub(now))
			}
			entries = append(entries, entities.JournalEntry{At: now, Channel: c.Name, Text: text})
		}
	}
	f.present = present
	return entries
}

// Last is the first failure of the last status, or "".
func (f *Failures) Last() string { return f.last }

// failure is a failure, and when it is tried again, if that is known.
type failure struct {
	text string
	next time.Time
}

// failuresOf are the failures in a channel that is not settled. A settled one shows its failure in its status.
func failuresOf(c protocol.ChannelStatus) (all []failure) {
	if entities.Status(c.Status).Row().Exit != entities.ExitWaiting {
		return nil
	}
	for _, r := range c.Reasons {
		if r.Code == "failure" {
			all = append(all, failure{strings.Join(strings.Fields(r.Text), " "), c.NextChange})
		}
	}
	if hiddenUnread(c) {
		all = append(all, failure{text: "the running version cannot be read: " + oneLine(c.Unread.Text(), textLimit)})
	}
	for _, k := range c.Conditions {
		if k.Verdict == "ERROR" {
			all = append(all, failure{k.ID + " cannot be evaluated: " + oneLine(k.Reason, textLimit), k.NextCheck})
		}
	}
	return all
}
