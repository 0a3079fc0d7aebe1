// Package chart draws what goes on over time: a row for each thing, a bar for each span, as SVG and as text for a terminal. It
// draws what it is given, the same bytes for the same input, and refuses clocks; it imports entities alone.
package chart

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Kind is what goes on over a span of time.
type Kind string

// The kinds of span.
const (
	Waits   Kind = "waits"
	Deploys Kind = "deploys"
	Soaks   Kind = "soaks"
	Runs    Kind = "runs"  // at the version
	Fails   Kind = "fails" // over, without the version
)

// Span is what goes on from one moment to another. To is zero when it goes on for ever, or is not over yet.
type Span struct {
	Kind    Kind      `json:"kind"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to,omitzero"`
	Reasons []string  `json:"reasons,omitempty"` // what holds it, most telling first
}

// Row is one thing, and what goes on with it, in the order of time.
type Row struct {
	Name  string
	Spans []Span
	Note  string // under the bar, in an SVG
}

// Chart is rows over a time that they have in common.
type Chart struct {
	Title    string
	From, To time.Time
	// End is that of the axis: after To, where there is to be room for what goes on for ever.
	End  time.Time
	Rows []Row
}

// Sizes in pixels.
const (
	chartWidth = 900 // of the time axis
	rowHeight  = 34
	barHeight  = 20
	noteHeight = 16
	chartTop   = 64
	rightSpace = 44
	perLetter  = 7
	leftMost   = 320 // for names
)

// style is that of a page, light or dark, as whoever reads has it.
const style = `<style>
 text { font: 12px sans-serif; fill: #1f2328 }
 .paper { fill: #fff } .line { stroke: #d8dce0 } .faint { fill: #57606a }
 .waits { fill: #f2b84b } .deploys { fill: #2f6fde } .soaks { fill: #7c4ddb } .runs { fill: #1a7f4f } .fails { fill: #c93c3c }
 .on { fill: #fff } .on-waits { fill: #1f2328 }
 @media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .paper { fill: #0d1117 } .line { stroke: #30363d } .faint { fill: #9aa4af }
 }
</style>
`

// SVG draws the chart in a time zone, with the reasons of each span as a tooltip. Whatever a text holds, it is text.
func (c *Chart) SVG(zone *time.Location) string {
	d := drawing{Chart: c, zone: zone, left: 40}
	for _, r := range c.Rows {
		d.left = max(d.left, min(len([]rune(r.Name))*perLetter+28, leftMost))
	}
	bottom := chartTop
	for _, r := range c.Rows {
		bottom += r.height()
	}
	height := bottom + 44
	width := d.left + chartWidth + rightSpace
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">`+"\n", width, height, width, height)
	d.b.WriteString(style)
	d.b.WriteString(`<rect class="paper" width="100%" height="100%"/>` + "\n")
	d.text(12, 22, "start", "", c.Title)
	d.axis(bottom)
	y := chartTop
	for _, r := range c.Rows {
		d.text(12, y+15, "start", "", fit(r.Name, (d.left-20)/perLetter))
		for _, n := range shortLast(r.Spans) {
			d.bar(r.Spans, n, y)
		}
		if r.Note != "" {
			d.text(d.left, y+barHeight+noteHeight-2, "start", "faint", r.Note)
		}
		y += r.height()
	}
	d.legend(height - 14)
	d.b.WriteString("</svg>\n")
	return d.b.String()
}

func (r *Row) height() int {
	if r.Note != "" {
		return rowHeight + noteHeight
	}
	return rowHeight
}

// drawing is an SVG while it is written.
type drawing struct {
	*Chart
	b    strings.Builder
	zone *time.Location
	left int // where the axis begins
}

// shortLast orders spans so that a short one is drawn over the long ones beside it, and is seen.
func shortLast(spans []Span) []int {
	length := func(s Span) time.Duration {
		if s.To.IsZero() {
			return math.MaxInt64
		}
		return s.To.Sub(s.From)
	}
	order := make([]int, len(spans))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(length(spans[b]), length(spans[a])) })
	return order
}

func (d *drawing) x(at time.Time) int {
	return d.left + int(float64(at.Sub(d.From))/float64(max(d.End.Sub(d.From), 1))*chartWidth)
}

func (d *drawing) bar(spans []Span, n, y int) {
	s := spans[n]
	to := s.To
	if to.IsZero() {
		to = d.End
	}
	from, width := d.x(s.From), max(d.x(to)-d.x(s.From), 3)
	title := string(s.Kind) + " from " + d.moment(s.From)
	if !s.To.IsZero() {
		title += " to " + d.moment(s.To)
	}
	title += entities.Because(strings.Join(s.Reasons, "; "))
	fmt.Fprintf(&d.b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="3"><title>%s</title></rect>`+"\n",
		s.Kind, from, y, width, barHeight, escape(title))
	label, class := cmp.Or(longest(spans, n), string(s.Kind)), "on"
	if s.Kind == Waits {
		class = "on-waits"
	}
	if label = fit(label, width/perLetter-1); label != "" {
		d.text(from+5, y+14, "start", class, label)
	}
}

// longest is the reason of a span that goes on holding the longest: a day of freeze says more than the second before.
func longest(spans []Span, n int) string {
	best, most := "", -1
	for _, reason := range spans[n].Reasons {
		last := n
		for last+1 < len(spans) && slices.Contains(spans[last+1].Reasons, reason) {
			last++
		}
		if last > most {
			best, most = reason, last
		}
	}
	return best
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
func (d *drawing) axis(bottom int) {
	step, layout := markStep(d.End.Sub(d.From))
	for at := midnight(d.From.In(d.zone)); !at.After(d.End); at = at.Add(step) {
		if at.Before(d.From) {
			continue
		}
		x := d.x(at)
		fmt.Fprintf(&d.b, `<line class="line" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", x, chartTop-8, x, bottom)
		d.text(x, chartTop-14, "middle", "faint", at.In(d.zone).Format(layout))
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

func (d *drawing) legend(y int) {
	x := d.left
	for _, k := range []Kind{Waits, Deploys, Soaks, Runs, Fails} {
		fmt.Fprintf(&d.b, `<rect class="%s" x="%d" y="%d" width="12" height="12" rx="2"/>`+"\n", k, x, y-10)
		d.text(x+17, y, "start", "", string(k))
		x += 90
	}
	d.text(d.left+chartWidth, y, "end", "faint", "times are "+d.From.In(d.zone).Format("MST"))
}

func (d *drawing) text(x, y int, anchor, class, s string) {
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(&d.b, `<text x="%d" y="%d" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, class, escape(s))
}

// escape keeps text what it is: no markup, and nothing that cannot be seen, which XML has no room for.
func escape(text string) string { return html.EscapeString(entities.Visible(text)) }

func (c *Chart) moment(at time.Time, zone *time.Location) string { return Moment(at, c.From, zone) }

func (d *drawing) moment(at time.Time) string { return d.Chart.moment(at, d.zone) }

// Moment writes a time in a zone, with the year where it is not that of another time that is shown beside it.
func Moment(at, beside time.Time, zone *time.Location) string {
	switch at = at.In(zone); {
	case at.IsZero():
		return "-"
	case at.Year() != beside.In(zone).Year():
		return at.Format("Mon 2 Jan 2006 15:04 MST")
	}
	return at.Format("Mon 2 Jan 15:04 MST")
}

// blocks are the kinds of span in a line of text.
var blocks = map[Kind]rune{Waits: '░', Deploys: '▒', Soaks: '▓', Runs: '█', Fails: '×'}

// Legend says what the blocks of a Line stand for.
const Legend = "░ waits  ▒ deploys  ▓ soaks  █ runs  × fails"

// Line draws a row in so many columns of text. Of what shares a column the shortest is seen.
func (c *Chart) Line(r Row, columns int) string {
	line := []rune(strings.Repeat("·", columns))
	column := func(at time.Time) int {
		return int(float64(at.Sub(c.From)) / float64(max(c.End.Sub(c.From), 1)) * float64(columns))
	}
	for _, n := range shortLast(r.Spans) {
		s := r.Spans[n]
		to := columns
		if !s.To.IsZero() {
			to = column(s.To)
		}
		from := min(max(column(s.From), 0), columns-1)
		for at := from; at < min(max(to, from+1), columns); at++ {
			line[at] = blocks[s.Kind]
		}
	}
	return string(line)
}
