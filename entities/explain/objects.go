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

// This file shows the report of a runtime (C9): objects with their versions, replicas, links and events.

const fineShown = 3 // healthy objects shown per channel

// objects lists the reported objects, unhealthy ones first with their latest events.
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

// fine lists some of the healthy objects if the channel is converged. Otherwise it only counts them.
func (w *writer) fine(fine []entities.Object, c protocol.ChannelStatus) {
	shown, of := 0, "object"
	if c.Status == string(entities.StatusConverged) {
		shown, of = min(len(fine), fineShown), "more object"
	}
	for _, o := range fine[:shown] {
		o.Events = nil // history only
		w.object(o)
	}
	if more := len(fine) - shown; more > 0 {
		w.line(" %-9s %s at %s", entities.ObjectSucceeded, plural(more, of), cmp.Or(c.Target, "its version"))
	}
}

// object writes one object, with its links and its latest events.
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

// linkName returns the name of a link and its type, if the type is known (C4) and not part of the name.
func linkName(l entities.Link) string {
	name := oneLine(cmp.Or(l.Name, "link"), 80)
	kind := map[string]string{"LOG": "log", "DETAIL": "details"}[l.Type]
	if kind == "" || strings.Contains(strings.ToLower(name), kind) {
		return name
	}
	return name + " (" + kind + ")"
}

// Objects returns lines about all objects that a runtime reports in a channel, with links and the latest events.
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

// markdownObjects lists the reported objects for the Temporal UI, with working links, as far as they fit.
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

// markdownLink formats a link. It omits everything that is not a web address.
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
