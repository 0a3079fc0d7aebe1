package stage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/temporaltest"
)

// Block is a `console` block of a page, below its heading.
type Block struct {
	Heading  string
	Commands []Command
}

// Command is a command line of a page, and the lines that the page shows as its output.
type Command struct {
	Line  string
	Shown []string
}

// Console returns the `console` blocks of a page: lines that begin with "$ " are commands, the others their output.
func Console(t *testing.T, path string) (blocks []Block) {
	t.Helper()
	for _, f := range fences(t, path) {
		if f.language == "console" {
			blocks = append(blocks, f.block(t, path))
		}
	}
	require.NotEmpty(t, blocks, path)
	return blocks
}

// Only returns the one `console` block below a heading of a page, for a test that runs no other of the page.
func Only(t *testing.T, path, heading string) Block {
	t.Helper()
	return only(t, path, "console", heading).block(t, path)
}

// Text returns the lines of the one `text` block below a heading: output without the command that prints it.
func Text(t *testing.T, path, heading string) Command {
	t.Helper()
	return Command{Shown: only(t, path, "text", heading).lines}
}

// Commands returns the lines of the blocks without a language below a heading of a page: commands alone.
func Commands(t *testing.T, path, heading string) (lines []string) {
	t.Helper()
	for _, f := range fences(t, path) {
		if f.language == "" && f.heading == heading {
			lines = append(lines, f.lines...)
		}
	}
	require.NotEmpty(t, lines, "commands of %s below %q", path, heading)
	return lines
}

func only(t *testing.T, path, language, heading string) fence {
	t.Helper()
	all := slices.DeleteFunc(fences(t, path), func(f fence) bool { return f.language != language || f.heading != heading })
	require.Len(t, all, 1, "%s blocks of %s below %q", language, path, heading)
	return all[0]
}

// fence is a fenced block of a page.
type fence struct {
	heading, language string
	lines             []string
}

// fences returns the fenced blocks of a page.
func fences(t *testing.T, path string) (all []fence) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	heading, open := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		language, fenced := strings.CutPrefix(line, "```")
		switch {
		case fenced && !open:
			all, open = append(all, fence{heading: heading, language: language}), true
		case fenced:
			open = false
		case open:
			all[len(all)-1].lines = append(all[len(all)-1].lines, line)
		case strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return all
}

// block is a fenced block as commands and their output.
func (f fence) block(t *testing.T, path string) Block {
	t.Helper()
	b := Block{Heading: f.heading}
	for _, line := range f.lines {
		if command, isCommand := strings.CutPrefix(line, "$ "); isCommand {
			b.Commands = append(b.Commands, Command{Line: command})
			continue
		}
		require.NotEmpty(t, b.Commands, "%s: output before a command: %s", path, line)
		last := &b.Commands[len(b.Commands)-1]
		last.Shown = append(last.Shown, line)
	}
	return b
}

// With is the block with other texts: names of a test in place of those of the page.
func (b Block) With(replacer *strings.Replacer) Block {
	all := make([]Command, len(b.Commands))
	for i, c := range b.Commands {
		all[i] = c.With(replacer)
	}
	b.Commands = all
	return b
}

// With is Block.With of one command.
func (c Command) With(replacer *strings.Replacer) Command {
	other := Command{Line: replacer.Replace(c.Line)}
	for _, line := range c.Shown {
		other.Shown = append(other.Shown, replacer.Replace(line))
	}
	return other
}

// changing are times, ages, dates, hashes and the ends of the names of pods.
var changing = regexp.MustCompile(`\d{4}-\d\d-\d\d|\d\d:\d\d(:\d\d)?|\b\d+(\.\d+)?(ms|s|m|h|d)\b|\b[0-9a-f]{12,64}\b|-[b-df-hj-np-tv-z2-9]{7,10}-[b-df-hj-np-tv-z2-9]{5}\b`)

// settled is a line without what changes from run to run.
func settled(line string) string {
	return strings.Join(strings.Fields(changing.ReplaceAllString(line, "#")), " ")
}

// Missing returns the first line of a page that an output does not have, in the order of the page. "…" stands for any text of a line,
// and alone for any lines.
func (c Command) Missing(out string) string {
	rest := strings.Split(out, "\n")
	for _, line := range c.Shown {
		at := slices.IndexFunc(rest, func(each string) bool { return shows(settled(each), settled(line)) })
		if at < 0 {
			return line
		}
		rest = rest[at+1:]
	}
	return ""
}

// shows reports whether a line has all parts of another one between "…", in their order.
func shows(line, want string) bool {
	for part := range strings.SplitSeq(want, "…") {
		_, rest, found := strings.Cut(line, strings.TrimSpace(part))
		if !found {
			return false
		}
		line = rest
	}
	return true
}

// reads are the verbs that change nothing, and are asked until they answer as the page has it.
var reads = regexp.MustCompile(`^(converge (status|explain|history|plan|wait|logs|approvals|admin doctor|config (diff|list|validate)) |kubectl [-a-z ]*get |curl -s '?http)`)

// RunPage runs the command lines of a page's block in the directory against the server, and fails where the output is not as the page shows
// it.
func (d *Dev) RunPage(b Block) {
	d.T.Helper()
	for _, c := range b.Commands {
		try := func() (bool, string) {
			out := d.shell(c.Line)
			missing := c.Missing(out)
			return missing == "", fmt.Sprintf("$ %s\n%s\nthe page has: %s", c.Line, out, missing)
		}
		if reads.MatchString(c.Line + " ") {
			temporaltest.WaitFor(d.T, Patience, try)
			continue
		}
		ok, said := try()
		require.True(d.T, ok, "%s: %s", b.Heading, said)
	}
}

// shell runs a line as a person would, and returns all that it prints.
func (d *Dev) shell(line string) string {
	ctx, cancel := context.WithTimeout(d.T.Context(), 2*Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = d.Dir
	cmd.Env = append(os.Environ(), "CONVERGE_BY=alice", fmt.Sprintf("TEMPORAL_ADDRESS=127.0.0.1:%d", d.Port),
		"PATH="+d.bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	cmd.Env = append(cmd.Env, d.Env...)
	out, _ := cmd.CombinedOutput() // a page shows commands that fail, too
	return string(out)
}
