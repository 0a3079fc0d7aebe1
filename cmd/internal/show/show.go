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

// Table is rows under a header. Cells hold no tabs and no newlines.
type Table struct {
	Header []string
	Rows   [][]string
	Right  int // 1-based column whose values are aligned to the right (ages); 0 for none
	Status int // 1-based column that is coloured as a status; 0 for none
}

// String lays the table out for the screen: aligned on a terminal, tabs and no header when piped.
func (s Screen) String(t Table) string {
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

// Lines writes lines as they are.
func (s Screen) Lines(lines ...string) error {
	for _, l := range lines {
		if _, err := fmt.Fprintln(s.Out, l); err != nil {
			return err
		}
	}
	return nil
}

// JSON writes v as an indented document and a newline.
func (s Screen) JSON(v any) error {
	e := json.NewEncoder(s.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// JSONLine writes v as one line: a stream of them is what `--watch --output json` gives.
func (s Screen) JSONLine(v any) error {
	e := json.NewEncoder(s.Out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
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
	b.WriteString(s.row(t.Header, widths, 0))
	for _, row := range t.Rows {
		cells := append([]string(nil), row...)
		if i := t.Right - 1; i >= 0 && i < len(cells) {
			cells[i] = strings.Repeat(" ", ages-utf8.RuneCountInString(cells[i])) + cells[i]
		}
		b.WriteString(s.row(cells, widths, t.Status))
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

func (s Screen) row(cells []string, widths []int, status int) string {
	var b strings.Builder
	last := 0
	for i, cell := range cells {
		if cell != "" {
			last = i
		}
	}
	for i, cell := range cells[:last+1] {
		shown := cell
		if i == status-1 {
			shown = s.Paint(cell)
		}
		b.WriteString(shown)
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
