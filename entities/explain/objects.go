package explain

import (
	"fmt"
	"sort"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// objects lists what the runtime reports when it is not as wanted, with the latest events.
func (w *writer) objects(c protocol.ChannelStatus) {
	fine := 0
	for _, o := range c.Objects {
		if o.Orphaned {
			w.line(" %-9s %s", "ORPHANED", joined(": ", o.Type+"/"+o.Name+versions(o), oneLine(or(o.Message, "no longer declared, left in place"), textLimit)))
			continue
		}
		if c.Status != string(entities.StatusUnknown) && objectFine(o, c.Target) {
			fine++
			continue
		}
		w.line(" %-9s %s", or(string(o.Status), "PENDING"), joined(": ", o.Type+"/"+o.Name+versions(o), oneLine(o.Message, textLimit)))
		for _, e := range lastEvents(o.Events) {
			w.line("      %s %s", clock(e.Timestamp, w.now, true), oneLine(e.Message, textLimit))
		}
		for _, l := range o.Links {
			w.line("      %s: %s", or(l.Name, "link"), l.URL)
		}
	}
	if fine > 0 && c.Status != string(entities.StatusConverged) {
		w.line(" %-9s %s at %s", "SUCCEEDED", plural(fine, "object"), or(c.Target, "its version"))
	}
	if c.Omitted > 0 {
		w.line(" and %s not shown", plural(c.Omitted, "object"))
	}
}

func objectFine(o entities.Object, target string) bool {
	if o.Status != entities.ObjectSucceeded {
		return false
	}
	for _, v := range o.Versions {
		if v.Drifted || v.Active && target != "" && v.Version != target {
			return false
		}
	}
	return true
}

// versions writes " v9 1/2 drifted, v8 1/1" of an object's active versions.
func versions(o entities.Object) string {
	var parts []string
	for _, v := range o.Versions {
		text := or(v.Version, "version unknown")
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
	sorted := append([]entities.Event(nil), events...)
	sort.SliceStable(sorted, func(i, j int) bool { return sorted[i].Timestamp.Before(sorted[j].Timestamp) })
	return sorted[max(0, len(sorted)-eventTail):]
}
