package show

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Live shows a sequence of texts: on a terminal each replaces the last one; when piped it appends only the lines that the last one did
// not contain.
type Live struct {
	screen Screen
	drawn  []string        // lines on the terminal
	seen   map[string]bool // lines of the last frame, when piped
}

// NewLive returns a Live with an empty screen.
func NewLive(s Screen) *Live { return &Live{screen: s, seen: map[string]bool{}} }

// Below leaves the last frame on the screen, because other output follows it. The next frame is drawn below.
func (l *Live) Below() { l.drawn = nil }

// Frame shows the text. It cuts a frame that is taller than the terminal, and adds the number of missing lines. It also cuts lines that
// are too wide: a wrapped line would leave remains on the screen. It overwrites each line and clears only its rest, so that nothing
// flickers.
func (l *Live) Frame(text string) error {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if !l.screen.TTY {
		return l.append(lines)
	}
	width, height := l.size()
	lines = fit(lines, width, height)
	var b strings.Builder
	if up := terminalRows(l.drawn, width); up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", up)
	}
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	l.drawn = lines
	_, err := io.WriteString(l.screen.Out, b.String())
	return err
}

func (l *Live) size() (width, height int) {
	if l.screen.Size == nil {
		return 0, 0
	}
	return l.screen.Size()
}

// terminalRows returns the current number of rows of some lines: a terminal that became narrower has wrapped them.
func terminalRows(lines []string, width int) int {
	n := 0
	for _, line := range lines {
		n++
		if long := visibleLength(line); width > 0 && long > width {
			n += (long - 1) / width
		}
	}
	return n
}

func (l *Live) append(lines []string) error {
	next := make(map[string]bool, len(lines))
	for _, line := range lines {
		next[line] = true
		if line == "" || l.seen[line] {
			continue
		}
		if _, err := io.WriteString(l.screen.Out, line+"\n"); err != nil {
			return err
		}
	}
	l.seen = next
	return nil
}

func fit(lines []string, width, height int) []string {
	if height > 1 && len(lines) > height-1 {
		cut := len(lines) - (height - 2)
		lines = append(append([]string(nil), lines[:height-2]...), fmt.Sprintf("… %d more lines", cut))
	}
	if width > 0 {
		for i, line := range lines {
			lines[i] = cutTo(line, width)
		}
	}
	return lines
}

var escape = regexp.MustCompile("\x1b\\[[0-9;]*m")

func visibleLength(line string) int { return utf8.RuneCountInString(escape.ReplaceAllString(line, "")) }

// cutTo keeps the first width visible characters. Escape sequences have no width, and an open colour is closed.
func cutTo(line string, width int) string {
	if visibleLength(line) <= width {
		return line
	}
	var b strings.Builder
	for visible := 0; line != ""; {
		if at := escape.FindStringIndex(line); at != nil && at[0] == 0 {
			b.WriteString(line[:at[1]])
			line = line[at[1]:]
			continue
		}
		if visible == width-1 {
			break
		}
		r, n := utf8.DecodeRuneInString(line)
		b.WriteRune(r)
		line = line[n:]
		visible++
	}
	if strings.Contains(b.String(), "\x1b") {
		b.WriteString("\x1b[0m")
	}
	return b.String() + "…"
}
