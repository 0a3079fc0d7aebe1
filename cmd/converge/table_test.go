package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// sentByWorkflows are the verbs that no person sends.
var sentByWorkflows = map[string][]string{
	"service": {protocol.Reserve, protocol.Conclude},
	"runtime": {protocol.SignalLease, protocol.SignalKeep, protocol.SignalGive, protocol.Grant},
}

// Each verb that people send has a command, which the table of docs/howto.md names, and no other has one there.
func TestEveryVerbHasACommand(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "howto.md"))
	require.NoError(t, err)
	kinds := []string{"service", "application", "runtime", "installation"}
	_, text, found := strings.Cut(string(page), "| verb | of a service | of an application | of a runtime | of the installation |\n|---|---|---|---|---|\n")
	require.True(t, found)
	listed := map[string]map[string]string{}
	for _, kind := range kinds {
		listed[kind] = map[string]string{}
	}
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if !strings.HasPrefix(line, "|") {
			break
		}
		require.Len(t, cells, 5, line)
		rows++
		for n, kind := range kinds {
			if cell := strings.Trim(strings.TrimSpace(cells[n+1]), "`"); cell != "" {
				listed[kind][strings.Trim(strings.TrimSpace(cells[0]), "`")] = cell
			}
		}
	}
	require.LessOrEqual(t, rows, 40)
	for kind, table := range map[string][]verb.Row{"service": verb.Service(), "application": verb.Application(), "runtime": verb.Runtime(), "installation": verb.Installation()} {
		for _, row := range table {
			line, ok := listed[kind][row.Name]
			require.NotEqual(t, slices.Contains(sentByWorkflows[kind], row.Name), ok, "docs/howto.md has no command for %s of the %s, or should have none", row.Name, kind)
			delete(listed[kind], row.Name)
			if !ok {
				continue
			}
			words := strings.Fields(line)
			require.Equal(t, "converge", words[0], line)
			c, _, err := newRoot(newFactory()).Find(words[1:])
			require.NoError(t, err, line)
			require.True(t, c.HasParent() && !c.HasSubCommands(), "%s names no command", line)
		}
		require.Empty(t, listed[kind], "docs/howto.md lists verbs that a %s does not have", kind)
	}
}
