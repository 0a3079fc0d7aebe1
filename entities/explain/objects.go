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

const maxHealthyShown = 3 // healthy objects shown per channel

// objects lists the reported objects, unhealthy ones first with their latest events.
func (w *writer) objects(c protocol.ChannelStatus) {
	var healthy []entities.Object
	for _, o := range c.Objects {
		if !o.Orphaned && c.Unread == nil && c.Status != string(entities.StatusUnknown) && objectHealthy(o, c.Target) {
			healthy = append(healthy, o)
			continue
		}
		w.object(o)
	}
	w.healthyObjects(healthy, c)
	if c.Omitted > 0 {
		w.printf(" and %s not shown", plural(c.Omitted, "object"))
	}
}

// healthyObjects lists some of the healthy objects if the channel is converged. Otherwise it only counts them.
func (w *writer) healthyObjects(healthy []entities.Object, c protocol.ChannelStatus) {
	shown, noun := 0, "object"
	if c.Status == string(entities.StatusConverged) {
		shown, noun = min(len(healthy), maxHealthyShown), "more object"
	}
	for _, o := range healthy[:shown] {
		o.Events = nil // history only
		w.object(o)
	}
	if more := len(healthy) - shown; more > 0 {
		w.printf(" %-9s %s at %s", entities.ObjectSucceeded, plural(more, noun), cmp.Or(c.Target, "its version"))
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
	w.printf(" %-9s %s", status, joined(": ", oneLine(o.Type+"/"+o.Name, textLimit)+versionsText(o), oneLine(message, textLimit)))
	for _, field := range o.Foreign {
		w.printf("      foreign: %s", oneLine(field, textLimit))
	}
	for _, e := range lastEvents(o.Events) {
		w.printf("      %s %s", clock(e.Timestamp, w.now, true), oneLine(e.Message, textLimit))
	}
	for _, l := range o.Links {
		w.printf("      %s: %s", linkName(l), oneLine(l.URL, urlLimit))
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
		w.printf(" and %s not shown", plural(c.Omitted, "object"))
	}
	return w.lines
}

// markdownObjects lists the reported objects for the Temporal UI, with working links, as far as they fit.
func markdownObjects(channels []protocol.ChannelStatus, limit int) string {
	var b strings.Builder
	for _, c := range channels {
		for _, o := range c.Objects {
			line := fmt.Sprintf("- %s: %s %s%s\n", markdownText(c.Name, 80), cmp.Or(o.Status, entities.ObjectPending),
				markdownText(o.Type+"/"+o.Name+versionsText(o), 300), prefixed(": ", markdownText(o.Message, 200)))
			for _, l := range o.Links {
				line = strings.TrimSuffix(line, "\n") + prefixed(" ", markdownLink(l)) + "\n"
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
	target, err := url.Parse(l.URL)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" || target.User != nil {
		return ""
	}
	address := strings.NewReplacer("(", "%28", ")", "%29", "<", "%3C", ">", "%3E", " ", "%20", "\\", "%5C").Replace(target.String())
	if len(address) > 500 || entities.Visible(address) != address {
		return ""
	}
	return fmt.Sprintf("[%s](%s)", markdownText(linkName(l), 100), address)
}

func objectHealthy(o entities.Object, target string) bool {
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

// versionsText writes " v9 1/2 drifted, v8 1/1" of an object's versions.
func versionsText(o entities.Object) string {
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
	return prefixed(" ", strings.Join(parts, ", "))
}

func lastEvents(events []entities.Event) []entities.Event {
	sorted := slices.SortedStableFunc(slices.Values(events), func(a, b entities.Event) int { return a.Timestamp.Compare(b.Timestamp) })
	return sorted[max(0, len(sorted)-eventTail):]
}
