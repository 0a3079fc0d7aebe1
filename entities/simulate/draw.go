package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/chart"
)

// SVG draws the timeline as a Gantt chart in a time zone: a row for each channel, a bar for each span with its reasons as a tooltip, and
// an axis of times.
func (t *Timeline) SVG(zone *time.Location) string { return t.chart(zone).SVG(zone) }

// Figure is SVG for a page that has a style of its own.
func (t *Timeline) Figure(zone *time.Location) string {
	c := t.chart(zone)
	return c.Figure(c.Title, zone)
}

func (t *Timeline) chart(zone *time.Location) *chart.Chart {
	c := &chart.Chart{
		Title: fmt.Sprintf("%s/%s %s, released %s", t.Application, t.Service, t.Version, t.From.In(zone).Format("Mon 2 Jan 2006 15:04 MST")),
		From:  t.From, To: t.To, End: t.To.Add(max(t.To.Sub(t.From)/12, time.Minute)), // room for spans without an end
	}
	for _, channel := range t.Channels {
		c.Rows = append(c.Rows, chart.Row{Name: channel.Name, Spans: channel.Spans})
	}
	return c
}

func (t *Timeline) moment(at time.Time, zone *time.Location) string {
	return chart.Moment(at, t.From, zone)
}

// Table formats the timeline for a terminal, in a time zone: a line for each channel, followed by the reasons that hold it, each with its
// end.
func (t *Timeline) Table(zone *time.Location) []string {
	width, times := len("CHANNEL"), len("ENTERS")
	for _, c := range t.Channels {
		width = max(width, len(c.Name))
		times = max(times, len(t.moment(c.Entered, zone)), len(t.moment(c.Succeeded, zone)))
	}
	lines := []string{fmt.Sprintf("%-*s  %-*s  %-*s  %s", width, "CHANNEL", times, "ENTERS", times, "DONE", "HELD BY")}
	for _, c := range t.Channels {
		reasons := t.holdTexts(c, zone)
		for n := range max(len(reasons), 1) {
			name, enters, done, reason := "", "", "", ""
			if n == 0 {
				name, enters, done = c.Name, t.moment(c.Entered, zone), t.moment(c.Succeeded, zone)
			}
			if n < len(reasons) {
				reason = reasons[n]
			}
			lines = append(lines, strings.TrimRight(fmt.Sprintf("%-*s  %-*s  %-*s  %s", width, name, times, enters, times, done, reason), " "))
		}
	}
	return append(lines, t.outcome(zone))
}

// holdTexts lists the reasons that hold a channel, each once, with the time when it ends.
func (t *Timeline) holdTexts(c Channel, zone *time.Location) []string {
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
			out = append(out, r.text+" (until "+t.moment(r.until, zone)+")")
		}
	}
	return out
}

// outcome describes how the timeline ends.
func (t *Timeline) outcome(zone *time.Location) string {
	switch {
	case t.CutOff:
		return "not finished by " + t.moment(t.To, zone)
	case slices.ContainsFunc(t.Channels, func(c Channel) bool { return c.Succeeded.IsZero() }):
		return "no automatic change after " + t.moment(t.To, zone)
	}
	return fmt.Sprintf("%s is in every channel at %s, after %s", t.Version, t.moment(t.To, zone), durationText(t.To.Sub(t.From)))
}

// durationText formats a duration in its two largest units.
func durationText(d time.Duration) string {
	d = d.Round(time.Second)
	days, rest := int(d/(24*time.Hour)), d%(24*time.Hour)
	if days > 0 {
		return strings.TrimSuffix(fmt.Sprintf("%dd %s", days, strings.TrimSuffix(rest.Truncate(time.Hour).String(), "0m0s")), " 0s")
	}
	text := d.String()
	if whole, ok := strings.CutSuffix(text, "m0s"); ok {
		text = whole + "m"
	}
	return text
}
