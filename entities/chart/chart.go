// Package chart draws timelines: a row per item, a bar per span, as SVG and as text for a terminal. The same input gives the same bytes. It
// reads no clock. It imports package entities only.
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

// Kind is the activity during a span.
type Kind string

// The kinds of span.
const (
	Waits   Kind = "waits"
	Deploys Kind = "deploys"
	Soaks   Kind = "soaks"
	Runs    Kind = "runs"  // at the version
	Fails   Kind = "fails" // ended without the version
)

// Span is one activity over a time. To is zero if the activity has no end, or has not ended yet.
type Span struct {
	Kind    Kind      `json:"kind"`
	From    time.Time `json:"from"`
	To      time.Time `json:"to,omitzero"`
	Reasons []string  `json:"reasons,omitempty"` // why it waits, most important first
}

// Row is one item with its spans, in order of time.
type Row struct {
	Name  string
	Spans []Span
	Note  string // under the bar, in an SVG
}

// Chart is a set of rows over a common time.
type Chart struct {
	Title    string
	From, To time.Time
	// End is the end of the axis. It is after To if spans without an end need space.
	End  time.Time
	Rows []Row
}

// Sizes in pixels.
const (
	chartWidth   = 900 // width of the time axis
	rowHeight    = 34
	barHeight    = 20
	noteHeight   = 16
	chartTop     = 64
	titleHeight  = 24 // less without a title
	rightSpace   = 44
	letterWidth  = 7
	maxNameWidth = 320 // maximum width of names
)

// style follows the reader's preference for a light or dark page.
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

// SVG draws the chart in a time zone. The reasons of a span are its tooltip. All texts are escaped.
func (c *Chart) SVG(zone *time.Location) string { return c.draw(zone, "", style) }

// Figure is SVG without a style of its own, for a page that has one. name says to those who do not see it what it shows.
func (c *Chart) Figure(name string, zone *time.Location) string {
	return c.draw(zone, ` class="chart" role="img" aria-label="`+escape(name)+`"`, "")
}

func (c *Chart) draw(zone *time.Location, attributes, style string) string {
	d := drawing{Chart: c, zone: zone, left: 40}
	for _, r := range c.Rows {
		d.left = max(d.left, min(len([]rune(r.Name))*letterWidth+28, maxNameWidth))
	}
	d.top = chartTop
	if c.Title == "" {
		d.top -= titleHeight
	}
	bottom := d.top
	for _, r := range c.Rows {
		bottom += r.height()
	}
	height := bottom + 44
	width := d.left + chartWidth + rightSpace
	fmt.Fprintf(&d.b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d"%s>`+"\n", width, height, width, height, attributes)
	d.b.WriteString(style)
	d.b.WriteString(`<rect class="paper" width="100%" height="100%"/>` + "\n")
	d.text(12, 22, "start", "", c.Title)
	d.axis(bottom)
	y := d.top
	for _, r := range c.Rows {
		d.text(12, y+15, "start", "", fit(r.Name, (d.left-20)/letterWidth))
		for _, n := range longestFirst(r.Spans) {
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

// drawing is the state while an SVG is written.
type drawing struct {
	*Chart
	b    strings.Builder
	zone *time.Location
	left int // start of the axis
	top  int // of the rows
}

// longestFirst orders spans by length. A short span is drawn over adjacent long ones, so it stays visible.
func longestFirst(spans []Span) []int {
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
	label, class := cmp.Or(longestReason(spans, n), string(s.Kind)), "on"
	if s.Kind == Waits {
		class = "on-waits"
	}
	if label = fit(label, width/letterWidth-1); label != "" {
		d.text(from+5, y+14, "start", class, label)
	}
}

// longestReason returns the reason that holds a span for the longest total time: a day of freeze says more than the second before it.
func longestReason(spans []Span, n int) string {
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

// fit shortens text to a number of letters. With too few letters it returns "".
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
		fmt.Fprintf(&d.b, `<line class="line" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", x, d.top-8, x, bottom)
		d.text(x, d.top-14, "middle", "faint", at.In(d.zone).Format(layout))
	}
}

// midnight returns the start of the day of t in the zone of t, so that marks are at round local times.
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

// escape escapes markup, and invisible characters, which XML does not allow.
func escape(text string) string { return html.EscapeString(entities.Visible(text)) }

func (c *Chart) moment(at time.Time, zone *time.Location) string { return Moment(at, c.From, zone) }

func (d *drawing) moment(at time.Time) string { return d.Chart.moment(at, d.zone) }

// Moment formats a time in a zone. It includes the year if it differs from the year of another time that is shown with it.
func Moment(at, reference time.Time, zone *time.Location) string {
	switch at = at.In(zone); {
	case at.IsZero():
		return "-"
	case at.Year() != reference.In(zone).Year():
		return at.Format("Mon 2 Jan 2006 15:04 MST")
	}
	return at.Format("Mon 2 Jan 15:04 MST")
}

// blocks are the characters of the span kinds in a line of text.
var blocks = map[Kind]rune{Waits: '░', Deploys: '▒', Soaks: '▓', Runs: '█', Fails: '×'}

// Legend explains the characters of a TextRow.
const Legend = "░ waits  ▒ deploys  ▓ soaks  █ runs  × fails"

// TextRow draws a row as text with a number of columns. In a shared column the shortest span wins.
func (c *Chart) TextRow(r Row, columns int) string {
	line := []rune(strings.Repeat("·", columns))
	column := func(at time.Time) int {
		return int(float64(at.Sub(c.From)) / float64(max(c.End.Sub(c.From), 1)) * float64(columns))
	}
	for _, n := range longestFirst(r.Spans) {
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
