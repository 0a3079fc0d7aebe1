package simulate

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"
)

// Sizes of the chart in pixels.
const (
	chartLeft  = 140 // names of channels
	chartWidth = 900 // of the time axis
	rowHeight  = 34
	barHeight  = 20
	chartTop   = 64
	rightSpace = 24
)

var colours = map[Kind]string{Waits: "#f2b84b", Deploys: "#3b82f6", Soaks: "#8b5cf6", Runs: "#22a06b", Fails: "#d64545"}

// SVG draws the timeline as a Gantt chart in a time zone: a row for each channel, a bar for each span
// with its reasons as a tooltip, and an axis of times.
func (t *Timeline) SVG(zone *time.Location) string {
	end := t.axisEnd()
	var b strings.Builder
	height := chartTop + rowHeight*len(t.Channels) + 44
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		chartLeft+chartWidth+rightSpace, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	text(&b, 12, 22, "start", "#111", fmt.Sprintf("%s/%s %s, released %s", t.Application, t.Service, t.Version, t.From.In(zone).Format("Mon 2 Jan 2006 15:04 MST")))
	t.axis(&b, end, zone)
	for n, c := range t.Channels {
		y := chartTop + n*rowHeight
		text(&b, 12, y+15, "start", "#111", c.Name)
		for _, s := range shortLast(c.Spans) {
			t.bar(&b, s, y, end, zone)
		}
	}
	legend(&b, height-14)
	b.WriteString("</svg>\n")
	return b.String()
}

// shortLast orders spans so that a short one is drawn over the long ones beside it, and is seen.
func shortLast(spans []Span) []Span {
	length := func(s Span) time.Duration {
		if s.To.IsZero() {
			return math.MaxInt64
		}
		return s.To.Sub(s.From)
	}
	out := slices.Clone(spans)
	slices.SortStableFunc(out, func(a, b Span) int { return cmp.Compare(length(b), length(a)) })
	return out
}

// axisEnd leaves room behind the last move, so that what goes on for ever is seen.
func (t *Timeline) axisEnd() time.Time {
	return t.To.Add(max(t.To.Sub(t.From)/12, time.Minute))
}

func (t *Timeline) x(at, end time.Time) int {
	return chartLeft + int(float64(at.Sub(t.From))/float64(end.Sub(t.From))*chartWidth)
}

func (t *Timeline) bar(b *strings.Builder, s Span, y int, end time.Time, zone *time.Location) {
	to := s.To
	if to.IsZero() {
		to = end
	}
	from, width := t.x(s.From, end), max(t.x(to, end)-t.x(s.From, end), 3)
	title := string(s.Kind) + " from " + s.From.In(zone).Format("Mon 2 Jan 15:04")
	if !s.To.IsZero() {
		title += " to " + s.To.In(zone).Format("Mon 2 Jan 15:04")
	}
	if len(s.Reasons) > 0 {
		title += ": " + strings.Join(s.Reasons, "; ")
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="%s"><title>%s</title></rect>`+"\n",
		from, y, width, barHeight, colours[s.Kind], html.EscapeString(title))
	const perLetter = 7
	label, colour := string(s.Kind), "white"
	if len(s.Reasons) > 0 {
		label = s.Reasons[0]
	}
	if s.Kind == Waits {
		colour = "#222" // which can be read on its bar
	}
	if label = fit(label, width/perLetter-1); label != "" {
		text(b, from+5, y+14, "start", colour, label)
	}
}

// fit shortens text to so many letters; too few are none.
func fit(label string, letters int) string {
	runes := []rune(label)
	switch {
	case len(runes) <= letters:
		return label
	case letters < 5:
		return ""
	}
	return string(runes[:letters-1]) + "…"
}

// axis draws six to twelve marks at round times.
func (t *Timeline) axis(b *strings.Builder, end time.Time, zone *time.Location) {
	step, layout := markStep(end.Sub(t.From))
	bottom := chartTop + rowHeight*len(t.Channels)
	for at := midnight(t.From.In(zone)); !at.After(end); at = at.Add(step) {
		if at.Before(t.From) {
			continue
		}
		x := t.x(at, end)
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#ddd"/>`+"\n", x, chartTop-8, x, bottom)
		text(b, x, chartTop-14, "middle", "#555", at.In(zone).Format(layout))
	}
}

// midnight before t, where t is: marks are at round times of the people who read them.
func midnight(t time.Time) time.Time {
	year, month, day := t.Date()
	return time.Date(year, month, day, 0, 0, 0, 0, t.Location())
}

func markStep(span time.Duration) (time.Duration, string) {
	const day = 24 * time.Hour
	for _, s := range []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour} {
		if span/s <= 12 {
			if span > day {
				return s, "Mon 15:04"
			}
			return s, "15:04"
		}
	}
	step := day
	for span/step > 12 {
		step += day
	}
	return step, "Mon 2 Jan"
}

func legend(b *strings.Builder, y int) {
	x := chartLeft
	for _, k := range []Kind{Waits, Deploys, Soaks, Runs, Fails} {
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="12" height="12" rx="2" fill="%s"/>`+"\n", x, y-10, colours[k])
		text(b, x+17, y, "start", "#333", string(k))
		x += 90
	}
}

func text(b *strings.Builder, x, y int, anchor, colour, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour, html.EscapeString(s))
}

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
