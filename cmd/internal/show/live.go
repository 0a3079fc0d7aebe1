package show

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Live shows one text after another: on a terminal each replaces the one before, when piped only
// the lines that were not in the last one are appended.
type Live struct {
	screen Screen
	drawn  int             // lines on the terminal
	seen   map[string]bool // lines of the last frame, when piped
}

// NewLive starts with an empty screen.
func NewLive(s Screen) *Live { return &Live{screen: s, seen: map[string]bool{}} }

// Below leaves the frame where it is, because something else was written after it: the next one is
// drawn underneath.
func (l *Live) Below() { l.drawn = 0 }

// Frame shows the text. A frame taller than the terminal is cut, with a count of what is missing,
// and lines wider than it are cut too: a wrapped line would leave a trace behind.
func (l *Live) Frame(text string) error {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if !l.screen.TTY {
		return l.append(lines)
	}
	lines = l.fit(lines)
	var b strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", l.drawn)
	}
	b.WriteString("\x1b[J")
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	l.drawn = len(lines)
	_, err := io.WriteString(l.screen.Out, b.String())
	return err
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

func (l *Live) fit(lines []string) []string {
	if l.screen.Size == nil {
		return lines
	}
	width, height := l.screen.Size()
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

// cutTo keeps the first width visible characters; escape sequences take no room, and a colour that
// was begun is ended.
func cutTo(line string, width int) string {
	if utf8.RuneCountInString(escape.ReplaceAllString(line, "")) <= width {
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
