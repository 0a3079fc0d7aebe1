// Package show writes what the CLI has to say: tables that are aligned on a terminal and
// tab-separated when piped, JSON, and frames that replace each other while watching. Colour marks
// statuses only, on a terminal only, and never against NO_COLOR.
//
// It knows nothing of services; it may import entities for the meaning of a status, and the
// terminal library.
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

	"github.com/converge-engine/converge/entities"
)

// Screen is where data goes and what that place can do.
type Screen struct {
	Out    io.Writer
	TTY    bool
	Colour bool
	// Size gives columns and rows; nil or zero values: unlimited.
	Size func() (width, height int)
}

// NewScreen looks at what out is. The environment is asked for NO_COLOR and TERM.
func NewScreen(out io.Writer, env func(string) string) Screen {
	if safe, ok := out.(*safe); ok {
		out = safe.Writer // a screen writes nothing that it did not look at
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

// Safe is a writer that shows what cannot be seen instead of doing it, whatever it is given: all but lines and tabs
// (entities.VisibleLines). What has colours or moves on the screen is written by a Screen.
func Safe(out io.Writer) io.Writer { return &safe{out} }

type safe struct{ io.Writer }

func (s *safe) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.Writer, entities.VisibleLines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Table is rows under a header. What of a cell cannot be seen, tabs and line ends too, is shown.
type Table struct {
	Header []string
	Rows   [][]string
	Right  int  // 1-based column whose values are aligned to the right (ages); 0 for none
	Status int  // 1-based column that is coloured as a status; 0 for none
	Phases bool // what is a phase of a release, or a state of a plan's node, is coloured, wherever it stands
}

// String lays the table out for the screen: aligned on a terminal, tabs and no header when piped.
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

// visible is a table in which all can be seen.
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

// Laid writes text that String, Paint and Sign made, as it is.
func (s Screen) Laid(text string) error {
	_, err := io.WriteString(s.Out, text)
	return err
}

// Lines writes lines: each is one, whatever it holds.
func (s Screen) Lines(lines ...string) error {
	for _, l := range lines {
		if _, err := fmt.Fprintln(s.Out, entities.Visible(l)); err != nil {
			return err
		}
	}
	return nil
}

// JSON writes v as an indented document and a newline.
func (s Screen) JSON(v any) error { return s.encode(v, "  ") }

// JSONLine writes v as one line: a stream of them is what `--watch --output json` gives.
func (s Screen) JSONLine(v any) error { return s.encode(v, "") }

// encode writes JSON in which nothing does anything to a terminal: what the standard library leaves as it is stands in
// texts alone, and means the same there when it is escaped.
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
	_, err := io.WriteString(s.Out, escaped.String())
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
		b.WriteString(s.row(cells, widths, func(column int, cell string) string {
			switch {
			case column == t.Status-1:
				return s.Paint(cell)
			case t.Phases && column > 0:
				return s.phase(cell)
			}
			return cell
		}))
	}
	return b.String()
}

// measure gives each column's width, header included, and that of the right-aligned values alone.
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

// none is how a header is painted.
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

// Paint colours a status by what waiting for it would end with: green done, red failed, yellow a
// person, cyan on its way.
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
	case entities.ExitPerson:
		colour = "33"
	}
	return coloured(colour, status)
}

// phase colours the phase of a release likewise: what waits is left as it is.
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

// Sign colours text by the sign of a change that it stands for: + made, ~ changed, - removed, -/+
// made anew, ! refused, o left in place. Any other sign leaves it as it is.
func (s Screen) Sign(sign, text string) string {
	colours := map[string]string{"+": "32", "~": "33", "-": "31", "-/+": "31", "!": "31", "o": "36"}
	colour, known := colours[sign]
	if !s.Colour || !known {
		return text
	}
	return coloured(colour, text)
}

func coloured(colour, text string) string { return "\x1b[" + colour + "m" + text + "\x1b[0m" }
