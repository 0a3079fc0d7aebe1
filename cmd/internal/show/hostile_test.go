package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// hostile is text that would clear the screen, change its colours, fake a line, reverse the following text, or hide.
const hostile = "v1\x1b[2J\x1b]0;title\a\r\nPASS approval/go-live\u202e\u200b\u009b31m\ttab"

const hostileShown = `v1\x1b[2J\x1b]0;title\a\r\nPASS approval/go-live\u202e\u200b\u009b31m\ttab`

// External text never controls a terminal: on every path to a terminal or a pipe its control characters are made visible.
func TestNothingReachesATerminalUnescaped(t *testing.T) {
	for name, write := range map[string]func(s Screen) error{
		"lines": func(s Screen) error { return s.Lines("a " + hostile) },
		"table": func(s Screen) error {
			return s.Table(Table{Header: []string{"A", "B"}, Rows: [][]string{{"a", hostile}}, Right: 1})
		},
		"frame": func(s Screen) error {
			return NewLive(Screen{Out: s.Out}).Frame(s.String(Table{Header: []string{"A"}, Rows: [][]string{{hostile}}}))
		},
	} {
		for _, tty := range []bool{false, true} {
			var out bytes.Buffer
			require.NoError(t, write(Screen{Out: &out, TTY: tty}), name)
			require.Contains(t, out.String(), hostileShown, name)
			require.NotContains(t, strings.TrimSuffix(out.String(), "\n"), "\nPASS", name)
			require.NotContains(t, out.String(), "\x1b", name)
		}
	}
	for _, write := range []func(s Screen) error{
		func(s Screen) error { return s.Document(map[string]string{hostile: hostile}) },
		func(s Screen) error { return s.StreamDocument(map[string]string{hostile: hostile}) },
	} {
		var out bytes.Buffer
		require.NoError(t, write(Screen{Out: &out}))
		require.Equal(t, -1, strings.IndexFunc(strings.ReplaceAll(out.String(), "\n", ""), func(r rune) bool { return r < ' ' || r > '~' }), out.String())
		var back map[string]string
		require.NoError(t, json.Unmarshal(out.Bytes(), &back))
		require.Equal(t, map[string]string{hostile: hostile}, back)
	}
	var out bytes.Buffer
	n, err := Safe(&out).Write([]byte(hostile + "\n"))
	require.NoError(t, err)
	require.Equal(t, len(hostile)+1, n)
	require.Equal(t, "v1\\x1b[2J\\x1b]0;title\\a\\r\nPASS approval/go-live\\u202e\\u200b\\u009b31m\ttab\n", out.String())
}
