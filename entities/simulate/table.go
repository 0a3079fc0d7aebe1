package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Table is the timeline for a terminal, in a time zone: a line for each channel, and below it what
// holds it, from when to when.
func (t *Timeline) Table(zone *time.Location) []string {
	width := len("CHANNEL")
	for _, c := range t.Channels {
		width = max(width, len(c.Name))
	}
	lines := []string{fmt.Sprintf("%-*s  %-16s  %-16s  %s", width, "CHANNEL", "ENTERS", "DONE", "HELD BY")}
	for _, c := range t.Channels {
		held := t.held(c, zone)
		for n := range max(len(held), 1) {
			name, enters, done, by := "", "", "", ""
			if n == 0 {
				name, enters, done = c.Name, moment(c.Entered, zone), moment(c.Succeeded, zone)
			}
			if n < len(held) {
				by = held[n]
			}
			lines = append(lines, strings.TrimRight(fmt.Sprintf("%-*s  %-16s  %-16s  %s", width, name, enters, done, by), " "))
		}
	}
	return append(lines, t.end(zone))
}

// held lists what holds a channel: each reason once, with the time from which it no longer does.
func (t *Timeline) held(c Channel, zone *time.Location) []string {
	type reason struct {
		text  string
		until time.Time
		ever  bool
	}
	var all []reason
	for _, s := range c.Spans {
		for _, text := range s.Reasons {
			at := slices.IndexFunc(all, func(r reason) bool { return r.text == text })
			if at < 0 {
				all = append(all, reason{text: text})
				at = len(all) - 1
			}
			all[at].until, all[at].ever = s.To, s.To.IsZero()
		}
	}
	var out []string
	for _, r := range all {
		if r.ever {
			out = append(out, r.text)
		} else {
			out = append(out, r.text+" (until "+moment(r.until, zone)+")")
		}
	}
	return out
}

// end says how it ends.
func (t *Timeline) end(zone *time.Location) string {
	switch {
	case t.CutOff:
		return "not over by " + moment(t.To, zone)
	case slices.ContainsFunc(t.Channels, func(c Channel) bool { return c.Succeeded.IsZero() }):
		return "from " + moment(t.To, zone) + " on nothing moves by itself"
	}
	return fmt.Sprintf("%s is everywhere at %s, after %s", t.Version, moment(t.To, zone), span(t.To.Sub(t.From)))
}

func moment(at time.Time, zone *time.Location) string {
	if at.IsZero() {
		return "-"
	}
	return at.In(zone).Format("Mon 2 Jan 15:04")
}

// span is a duration in the two largest units that it has.
func span(d time.Duration) string {
	d = d.Round(time.Second)
	days, rest := int(d/(24*time.Hour)), d%(24*time.Hour)
	if days > 0 {
		return strings.TrimSuffix(fmt.Sprintf("%dd %s", days, strings.TrimSuffix(rest.Truncate(time.Hour).String(), "0m0s")), " 0s")
	}
	text := d.String()
	if d >= time.Minute {
		text = strings.TrimSuffix(text, "0s")
	}
	return text
}
