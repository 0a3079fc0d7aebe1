// Package show formats the output of the CLI: tables that are aligned on a terminal and tab-separated when piped, JSON, YAML, and frames that
// replace each other while watching. Colour marks only statuses, only on a terminal, and never if NO_COLOR is set.
//
// It does not depend on services. It may import entities for the meaning of a status, and the terminal library.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/converge-engine/converge/entities"
)

// Screen is the destination of the output and its capabilities.
type Screen struct {
	Out    io.Writer
	TTY    bool
	Colour bool
	YAML   bool // documents are YAML instead of JSON
	// Size returns columns and rows; nil or zero values: unlimited.
	Size func() (width, height int)
}

// NewScreen detects the capabilities of out. It reads NO_COLOR and TERM from the environment.
func NewScreen(out io.Writer, env func(string) string) Screen {
	if safe, ok := out.(*safe); ok {
		out = safe.Writer // a screen writes only text that it checked
	}
	s := Screen{Out: out}
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return s
	}
	s.TTY = env("TERM") != "dumb"
	s.Colour = s.TTY && env("NO_COLOR") == ""
	s.Size = func() (int, int) {
		width, height, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0, 0
		}
		return width, height
	}
	return s
}

// Safe returns a writer that makes all invisible characters except line ends and tabs visible (entities.VisibleLines). Only a Screen
// writes colours and cursor movements.
func Safe(out io.Writer) io.Writer { return &safe{out} }

type safe struct{ io.Writer }

func (s *safe) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.Writer, entities.VisibleLines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Table is rows under a header. Invisible characters of a cell, including tabs and line ends, are made visible.
type Table struct {
	Header []string
	Rows   [][]string
	Right  int  // 1-based column whose values are aligned to the right (ages); 0 for none
	Status int  // 1-based column that is coloured as a status; 0 for none
	Phases bool // colour phases of a release and states of a plan's node in any column
	// Below: on a terminal, a text of the last column that does not fit is shown below its row: its beginning, or, with Wide, all of it.
	Below, Wide bool
}

// String formats the table for the screen: aligned on a terminal, with tabs and no header when piped.
func (s Screen) String(t Table) string {
	t = visible(t)
	if !s.TTY {
		return tabs(t)
	}
	return s.aligned(t)
}

// Table writes the table.
func (s Screen) Table(t Table) error {
	_, err := io.WriteString(s.Out, s.String(t))
	return err
}

// visible returns a table without invisible characters.
func visible(t Table) Table {
	rows := make([][]string, 0, len(t.Rows))
	for _, row := range t.Rows {
		cells := make([]string, 0, len(row))
		for _, cell := range row {
			cells = append(cells, entities.Visible(cell))
		}
		rows = append(rows, cells)
	}
	t.Rows = rows
	return t
}

// WriteText writes the output of String, Paint and Sign unchanged.
func (s Screen) WriteText(text string) error {
	_, err := io.WriteString(s.Out, text)
	return err
}

// Lines writes lines. A line with line ends stays one line.
func (s Screen) Lines(lines ...string) error {
	for _, l := range lines {
		if _, err := fmt.Fprintln(s.Out, entities.Visible(l)); err != nil {
			return err
		}
	}
	return nil
}

// Document writes v as indented JSON and a newline, or as YAML.
func (s Screen) Document(v any) error { return s.encode(v, "  ") }

// StreamDocument writes v as one of several documents: as one line of JSON, or as a document of YAML that begins with "---".
func (s Screen) StreamDocument(v any) error { return s.encode(v, "") }

// encode writes JSON without terminal control characters. The standard library leaves some of them unescaped, but only inside strings,
// where the escaped form has the same meaning.
func (s Screen) encode(v any, indent string) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	var escaped strings.Builder
	for _, r := range b.String() {
		if unicode.IsPrint(r) || r == '\n' {
			escaped.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&escaped, `\u%04x`, unit)
		}
	}
	if s.YAML {
		return s.writeYAML(escaped.String(), indent == "")
	}
	_, err := io.WriteString(s.Out, escaped.String())
	return err
}

// writeYAML writes a JSON document as YAML, whose keys are sorted. It makes invisible characters visible: YAML leaves some of them in plain texts.
func (s Screen) writeYAML(document string, oneOfSeveral bool) error {
	text, err := yaml.JSONToYAML([]byte(document))
	if err != nil {
		return err
	}
	if oneOfSeveral {
		text = append([]byte("---\n"), text...)
	}
	_, err = io.WriteString(s.Out, entities.VisibleLines(string(text)))
	return err
}

func tabs(t Table) string {
	var b strings.Builder
	for _, row := range t.Rows {
		b.WriteString(strings.Join(row, "\t") + "\n")
	}
	return b.String()
}

func (s Screen) aligned(t Table) string {
	widths, ages := measure(t)
	var b strings.Builder
	b.WriteString(s.row(t.Header, widths, none))
	for _, row := range t.Rows {
		cells := append([]string(nil), row...)
		if i := t.Right - 1; i >= 0 && i < len(cells) {
			cells[i] = strings.Repeat(" ", ages-utf8.RuneCountInString(cells[i])) + cells[i]
		}
		var below string
		if last := len(cells) - 1; t.Below && s.doesNotFit(cells[last], widths[:last]) {
			below, cells[last] = s.belowRow(cells[last], t.Wide), ""
		}
		b.WriteString(s.row(cells, widths, func(column int, cell string) string {
			switch {
			case column == t.Status-1:
				return s.Paint(cell)
			case t.Phases && column > 0:
				return s.phase(cell)
			}
			return cell
		}))
		b.WriteString(below)
	}
	return b.String()
}

// width is the number of columns of the terminal; 0: unlimited.
func (s Screen) width() int {
	if s.Size == nil {
		return 0
	}
	width, _ := s.Size()
	return width
}

// doesNotFit reports whether a text is too long for the rest of a line, after columns of these widths.
func (s Screen) doesNotFit(text string, widths []int) bool {
	used := utf8.RuneCountInString(text)
	for _, w := range widths {
		used += w + 1
	}
	width := s.width()
	return width > 0 && used > width
}

// indentBelow is the indentation of text below a row.
const indentBelow = "    "

// belowRow returns a text as lines below a row: one that is cut, or as many as it needs.
func (s Screen) belowRow(text string, wide bool) string {
	room := max(s.width()-len(indentBelow), minRoom)
	if !wide {
		return indentBelow + cutTo(text, room) + "\n"
	}
	lines := ""
	for line := ""; text != ""; lines += indentBelow + line + "\n" {
		line, text = splitAt(text, room)
	}
	return lines
}

// minRoom is the width of text below a row on a terminal that is narrower.
const minRoom = 20

// splitAt splits a text at the last space before width, or at width.
func splitAt(text string, width int) (line, rest string) {
	runes := []rune(text)
	if len(runes) <= width {
		return text, ""
	}
	if space := strings.LastIndexByte(string(runes[:width+1]), ' '); space > 0 {
		return text[:space], text[space+1:]
	}
	return string(runes[:width]), string(runes[width:])
}

// measure returns each column's width, including the header, and the width of the right-aligned values alone.
func measure(t Table) (widths []int, ages int) {
	widths = make([]int, len(t.Header))
	for i, h := range t.Header {
		widths[i] = utf8.RuneCountInString(h)
	}
	for _, row := range t.Rows {
		for i, cell := range row {
			n := utf8.RuneCountInString(cell)
			widths[i] = max(widths[i], n)
			if i == t.Right-1 {
				ages = max(ages, n)
			}
		}
	}
	return widths, ages
}

// none leaves a header uncoloured.
func none(_ int, cell string) string { return cell }

func (s Screen) row(cells []string, widths []int, paint func(column int, cell string) string) string {
	var b strings.Builder
	last := 0
	for i, cell := range cells {
		if cell != "" {
			last = i
		}
	}
	for i, cell := range cells[:last+1] {
		b.WriteString(paint(i, cell))
		if i < last {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+1))
		}
	}
	return b.String() + "\n"
}

// Paint colours a status by the result of waiting for it: green done, red failed, yellow needs a person, cyan in progress.
func (s Screen) Paint(status string) string {
	if !s.Colour || status == "" {
		return status
	}
	colour := "36"
	switch entities.Status(status).Row().Exit {
	case entities.ExitConverged:
		colour = "32"
	case entities.ExitFailed:
		colour = "31"
	case entities.ExitNeedsPerson:
		colour = "33"
	}
	return coloured(colour, status)
}

// phase colours the phase of a release in the same way. It leaves a waiting phase uncoloured.
func (s Screen) phase(of string) string {
	colours := map[string]string{
		"succeeded": "32", "in progress": "36", "failed": "31", "rolled back": "31",
		"done": "32", "running": "36", "held": "33", "blocked": "31", // nodes of a plan
	}
	if colour := colours[of]; s.Colour && colour != "" {
		return coloured(colour, of)
	}
	return of
}

// Sign colours text by the sign of its change: + created, ~ changed, - removed, -/+ replaced, ! refused, o left in place. Any other
// sign leaves it uncoloured.
func (s Screen) Sign(sign, text string) string {
	colours := map[string]string{"+": "32", "~": "33", "-": "31", "-/+": "31", "!": "31", "o": "36"}
	colour, known := colours[sign]
	if !s.Colour || !known {
		return text
	}
	return coloured(colour, text)
}

func coloured(colour, text string) string { return "\x1b[" + colour + "m" + text + "\x1b[0m" }
