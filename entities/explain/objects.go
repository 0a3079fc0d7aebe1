package explain

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file shows what a runtime reports (C9): objects with their versions, replicas, links and events.

const fineShown = 3 // objects that are as they should be, of a channel

// objects lists what the runtime reports, what is not as wanted first and with its latest events.
func (w *writer) objects(c protocol.ChannelStatus) {
	var fine []entities.Object
	for _, o := range c.Objects {
		if !o.Orphaned && c.Unread == nil && c.Status != string(entities.StatusUnknown) && objectFine(o, c.Target) {
			fine = append(fine, o)
			continue
		}
		w.object(o)
	}
	w.fine(fine, c)
	if c.Omitted > 0 {
		w.line(" and %s not shown", plural(c.Omitted, "object"))
	}
}

// fine lists some of the objects that are as they should be, where all is: where something is not, they are only counted.
func (w *writer) fine(fine []entities.Object, c protocol.ChannelStatus) {
	shown, of := 0, "object"
	if c.Status == string(entities.StatusConverged) {
		shown, of = min(len(fine), fineShown), "more object"
	}
	for _, o := range fine[:shown] {
		o.Events = nil // history, by now
		w.object(o)
	}
	if more := len(fine) - shown; more > 0 {
		w.line(" %-9s %s at %s", entities.ObjectSucceeded, plural(more, of), cmp.Or(c.Target, "its version"))
	}
}

// object is one of them, with its links and its latest events.
func (w *writer) object(o entities.Object) {
	status, message := string(cmp.Or(o.Status, entities.ObjectPending)), o.Message
	if o.Suspended != "" && o.Until.IsZero() {
		status = string(entities.StatusSuspended)
	}
	if o.Orphaned {
		status, message = "ORPHANED", cmp.Or(o.Message, "no longer declared, left in place")
	}
	w.line(" %-9s %s", status, joined(": ", oneLine(o.Type+"/"+o.Name, textLimit)+versions(o), oneLine(message, textLimit)))
	for _, added := range o.Foreign {
		w.line("      foreign: %s", oneLine(added, textLimit))
	}
	for _, e := range lastEvents(o.Events) {
		w.line("      %s %s", clock(e.Timestamp, w.now, true), oneLine(e.Message, textLimit))
	}
	for _, l := range o.Links {
		w.line("      %s: %s", linkName(l), oneLine(l.URL, urlLimit))
	}
}

const urlLimit = 2000

// linkName is what a link is called, and what it leads to, where that is known (C4) and not said by its name.
func linkName(l entities.Link) string {
	name := oneLine(cmp.Or(l.Name, "link"), 80)
	kind := map[string]string{"LOG": "log", "DETAIL": "details"}[l.Type]
	if kind == "" || strings.Contains(strings.ToLower(name), kind) {
		return name
	}
	return name + " (" + kind + ")"
}

// Objects are the lines about what a runtime reports in a channel, all of it, with links and the latest events.
func Objects(c protocol.ChannelStatus, now time.Time) []string {
	w := &writer{now: now}
	for _, o := range c.Objects {
		w.object(o)
	}
	if c.Omitted > 0 {
		w.line(" and %s not shown", plural(c.Omitted, "object"))
	}
	return w.lines
}

// markdownObjects lists what the runtimes report for the Temporal UI, with links that a person can follow, as far as there is room.
func markdownObjects(channels []protocol.ChannelStatus, limit int) string {
	var b strings.Builder
	for _, c := range channels {
		for _, o := range c.Objects {
			line := fmt.Sprintf("- %s: %s %s%s\n", markdownText(c.Name, 80), cmp.Or(o.Status, entities.ObjectPending),
				markdownText(o.Type+"/"+o.Name+versions(o), 300), after(": ", markdownText(o.Message, 200)))
			for _, l := range o.Links {
				line = strings.TrimSuffix(line, "\n") + after(" ", markdownLink(l)) + "\n"
			}
			if b.Len()+len(line) > limit {
				return b.String()
			}
			b.WriteString(line)
		}
	}
	return b.String()
}

// markdownLink is a link to a page, and nothing else: what is no web address is left out.
func markdownLink(l entities.Link) string {
	at, err := url.Parse(l.URL)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
		return ""
	}
	address := strings.NewReplacer("(", "%28", ")", "%29", "<", "%3C", ">", "%3E", " ", "%20", "\\", "%5C").Replace(at.String())
	if len(address) > 500 || entities.Visible(address) != address {
		return ""
	}
	return fmt.Sprintf("[%s](%s)", markdownText(linkName(l), 100), address)
}

func objectFine(o entities.Object, target string) bool {
	if o.Status != entities.ObjectSucceeded || len(o.Foreign) > 0 {
		return false
	}
	for _, v := range o.Versions {
		if v.Drifted || v.Active && target != "" && v.Version != target {
			return false
		}
	}
	return true
}

// versions writes " v9 1/2 drifted, v8 1/1" of an object's versions.
func versions(o entities.Object) string {
	var parts []string
	for _, v := range o.Versions {
		text := cmp.Or(v.Version, "version unknown")
		if v.Replicas > 0 {
			text += fmt.Sprintf(" %d/%d", v.AvailableReplicas, v.Replicas)
		}
		if v.Drifted {
			text += " drifted"
		}
		if !v.Active {
			text += " inactive"
		}
		parts = append(parts, text)
	}
	return after(" ", strings.Join(parts, ", "))
}

func lastEvents(events []entities.Event) []entities.Event {
	sorted := slices.SortedStableFunc(slices.Values(events), func(a, b entities.Event) int { return a.Timestamp.Compare(b.Timestamp) })
	return sorted[max(0, len(sorted)-eventTail):]
}
