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
		for _, text := range failuresOf(c) {
			if f.last == "" {
				f.last = c.Name + ": " + text
			}
			key := c.Name + " " + text
			if present[key] = true; f.present[key] {
				continue
			}
			if c.NextChange.After(now) {
				text += "; next attempt in " + Duration(c.NextChange.Sub(now))
			}
			entries = append(entries, entities.JournalEntry{At: now, Channel: c.Name, Text: text})
		}
	}
	f.present = present
	return entries
}

// Last is the first failure of the last status, or "".
func (f *Failures) Last() string { return f.last }

// failuresOf are the failures in a channel that is not settled. A settled one shows its failure in its status.
func failuresOf(c protocol.ChannelStatus) (texts []string) {
	if entities.Status(c.Status).Row().Exit != entities.ExitWaiting {
		return nil
	}
	for _, r := range c.Reasons {
		if r.Code == "failure" {
			texts = append(texts, withoutSubject(strings.Join(strings.Fields(r.Text), " ")))
		}
	}
	if hiddenUnread(c) {
		texts = append(texts, "the running version cannot be read: "+oneLine(c.Unread.Text(), textLimit))
	}
	for _, k := range c.Conditions {
		if k.Verdict == "ERROR" {
			texts = append(texts, k.ID+" cannot be evaluated: "+oneLine(k.Reason, textLimit))
		}
	}
	return texts
}
