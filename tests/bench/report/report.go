// Package report holds what a benchmark found, compares it with its goal, and prints it for people
// and for programs. It measures nothing itself and imports nothing of ours, so that its tests do not
// link a Temporal server.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Value is a number and what it counts.
type Value struct {
	Number float64 `json:"number"`
	Unit   string  `json:"unit"` // one of the units below, or any noun: "events"
}

// The units that are printed in a way of their own.
const (
	Seconds = "s"
	Bytes   = "B"
	Cores   = "cores" // of CPU, over a window
	Times   = "×"
)

// Line is one thing measured: a line of the table.
type Line struct {
	Row      string `json:"row"` // the row of -run that gave it
	What     string `json:"what"`
	Measured Value  `json:"measured"`
	// Spread is how far to trust the number: p95, or an interval. Free text.
	Spread string `json:"spread,omitempty"`
	// Reference is the same thing without Converge, measured in the same run.
	Reference *Value `json:"reference,omitempty"`
	Against   string `json:"against,omitempty"` // what the reference is
	// Ratio is Measured / Reference where that says something.
	Ratio float64 `json:"ratio,omitempty"`
	// Goal bounds the ratio when its unit is Times, else the number measured.
	Goal *Value `json:"goal,omitempty"`
	Met  *bool  `json:"met,omitempty"`
}

// Report is a whole run.
type Report struct {
	Machine string            `json:"machine"` // what it ran on, in words
	Lines   []Line            `json:"lines"`
	Notes   map[string]Notes  `json:"notes,omitempty"`  // by row: where it comes from, in sentences
	Failed  map[string]string `json:"failed,omitempty"` // by row: why it could not be measured
	// Skipped are rows that are not expected to be measured here, and why.
	Skipped map[string]string `json:"skipped,omitempty"`
}

// Notes are sentences that explain a row's lines.
type Notes []string

// Evaluate fills in ratio and verdict.
func (l *Line) Evaluate() {
	if l.Reference != nil && l.Reference.Number > 0 && l.Reference.Unit == l.Measured.Unit {
		l.Ratio = l.Measured.Number / l.Reference.Number
	}
	if l.Goal == nil {
		return
	}
	compared := l.Measured.Number
	if l.Goal.Unit == Times {
		compared = l.Ratio
	}
	met := compared <= l.Goal.Number
	l.Met = &met
}

// Add evaluates a line and appends it.
func (r *Report) Add(l Line) {
	l.Evaluate()
	r.Lines = append(r.Lines, l)
}

// Note appends a sentence to a row.
func (r *Report) Note(row, format string, args ...any) {
	if r.Notes == nil {
		r.Notes = map[string]Notes{}
	}
	r.Notes[row] = append(r.Notes[row], fmt.Sprintf(format, args...))
}

// Fail says why a row could not be measured.
func (r *Report) Fail(row string, err error) {
	if r.Failed == nil {
		r.Failed = map[string]string{}
	}
	r.Failed[row] = err.Error()
}

// Skip says why a row was left out, which is no failure.
func (r *Report) Skip(row string, why error) {
	if r.Skipped == nil {
		r.Skipped = map[string]string{}
	}
	r.Skipped[row] = why.Error()
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

var header = []string{"what", "measured", "spread", "reference", "ratio", "goal", "met"}

// Table lays the lines out for people: a block for each row, its notes below.
func (r *Report) Table() string {
	cells := [][]string{header}
	for _, l := range r.Lines {
		cells = append(cells, l.cells())
	}
	widths := make([]int, len(header))
	for _, row := range cells {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	b.WriteString(layOut(header, widths))
	b.WriteString(layOut(rules(widths), widths))
	for i, l := range r.Lines {
		if i > 0 && l.Row != r.Lines[i-1].Row {
			b.WriteString("\n")
		}
		b.WriteString(layOut(cells[i+1], widths))
	}
	return b.String() + r.notes()
}

// notes prints the notes of every row in the order of the lines, and what failed.
func (r *Report) notes() string {
	var b strings.Builder
	last := ""
	for _, l := range r.Lines {
		if l.Row == last {
			continue
		}
		last = l.Row
		for i, n := range r.Notes[l.Row] {
			if i == 0 {
				fmt.Fprintf(&b, "\n%s\n", l.Row)
			}
			fmt.Fprintf(&b, "  %s\n", n)
		}
	}
	for _, without := range []map[string]string{r.Skipped, r.Failed} {
		for _, row := range sortedKeys(without) {
			fmt.Fprintf(&b, "\n%s: not measured: %s\n", row, without[row])
		}
	}
	return b.String()
}

func (l Line) cells() []string {
	out := []string{l.What, l.Measured.String(), l.Spread, "", "", "", ""}
	if l.Reference != nil {
		out[3] = strings.TrimSpace(l.Reference.String() + " " + l.Against)
	}
	if l.Ratio > 0 {
		out[4] = fmt.Sprintf("%.2f×", l.Ratio)
		if l.Ratio >= 10 {
			out[4] = fmt.Sprintf("%.0f×", l.Ratio)
		}
	}
	if l.Goal != nil {
		out[5] = l.Goal.String()
		if l.Goal.Number > 0 {
			out[5] = "≤ " + out[5]
		}
	}
	if l.Met != nil {
		out[6] = map[bool]string{true: "yes", false: "NO"}[*l.Met]
	}
	return out
}

func layOut(cells []string, widths []int) string {
	var b strings.Builder
	for i, c := range cells {
		b.WriteString(c)
		b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

func rules(widths []int) []string {
	out := make([]string, len(widths))
	for i, w := range widths {
		out[i] = strings.Repeat("─", w)
	}
	return out
}
