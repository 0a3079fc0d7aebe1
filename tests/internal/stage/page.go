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
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	heading, fence := "", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		command, isCommand := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "```"):
			if fence == "" {
				fence = line
			} else {
				fence = ""
			}
			if fence == "```console" {
				blocks = append(blocks, Block{Heading: heading})
			}
		case fence == "" && strings.HasPrefix(line, "#"):
			heading = strings.TrimSpace(strings.TrimLeft(line, "#"))
		case fence == "```console" && isCommand:
			b := &blocks[len(blocks)-1]
			b.Commands = append(b.Commands, Command{Line: command})
		case fence == "```console":
			b := &blocks[len(blocks)-1]
			require.NotEmpty(t, b.Commands, "%s: output before a command: %s", path, line)
			last := &b.Commands[len(b.Commands)-1]
			last.Shown = append(last.Shown, line)
		}
	}
	require.NotEmpty(t, blocks, path)
	return blocks
}

// changing are times, ages, dates and hashes.
var changing = regexp.MustCompile(`\d{4}-\d\d-\d\d|\d\d:\d\d(:\d\d)?|\b\d+(\.\d+)?(ms|s|m|h)\b|\b[0-9a-f]{12,64}\b`)

// settled is a line without what changes from run to run.
func settled(line string) string {
	return strings.Join(strings.Fields(changing.ReplaceAllString(line, "#")), " ")
}

// Missing returns the first line of a page that an output does not have, in the order of the page. "…" ends a line that the page cuts
// off, and alone stands for any lines.
func (c Command) Missing(out string) string {
	rest := strings.Split(out, "\n")
	for _, line := range c.Shown {
		want := settled(strings.TrimSuffix(strings.TrimSpace(line), "…"))
		at := slices.IndexFunc(rest, func(each string) bool { return strings.Contains(settled(each), want) })
		if at < 0 {
			return line
		}
		rest = rest[at+1:]
	}
	return ""
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
