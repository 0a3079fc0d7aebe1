package show

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

var table = Table{
	Header: []string{"SERVICE", "CHANNEL", "STATUS", "SINCE", "WAITS FOR"},
	Rows: [][]string{
		{"web", "staging", "CONVERGING", "20s", "1 of 2 replicas"},
		{"", "canary", "CONVERGED", "9m", ""},
		{"größe", "prod", "PAUSED", "2d 22h", "vacances à la mer"},
	},
	Right: 4, Status: 3,
}

func TestTable(t *testing.T) {
	for _, tt := range []struct {
		name   string
		screen Screen
		want   string
	}{
		{"terminal", Screen{TTY: true}, `SERVICE CHANNEL STATUS     SINCE  WAITS FOR
web     staging CONVERGING    20s 1 of 2 replicas
        canary  CONVERGED      9m
größe   prod    PAUSED     2d 22h vacances à la mer
`},
		{"colour", Screen{TTY: true, Colour: true}, "SERVICE CHANNEL STATUS     SINCE  WAITS FOR\n" +
			"web     staging \x1b[36mCONVERGING\x1b[0m    20s 1 of 2 replicas\n" +
			"        canary  \x1b[32mCONVERGED\x1b[0m      9m\n" +
			"größe   prod    \x1b[33mPAUSED\x1b[0m     2d 22h vacances à la mer\n"},
		{"piped", Screen{}, "web\tstaging\tCONVERGING\t20s\t1 of 2 replicas\n" +
			"\tcanary\tCONVERGED\t9m\t\n" +
			"größe\tprod\tPAUSED\t2d 22h\tvacances à la mer\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			tt.screen.Out = &out
			require.NoError(t, tt.screen.Table(table))
			require.Equal(t, tt.want, out.String())
		})
	}
}

func TestNewScreenOfAPipeIsPlain(t *testing.T) {
	s := NewScreen(&bytes.Buffer{}, func(string) string { return "" })
	require.False(t, s.TTY)
	require.False(t, s.Colour)
}

func TestLive(t *testing.T) {
	frames := func(s Screen, texts ...string) string {
		var out bytes.Buffer
		s.Out = &out
		l := NewLive(s)
		for _, text := range texts {
			require.NoError(t, l.Frame(text))
		}
		return out.String()
	}
	size := func(w, h int) func() (int, int) { return func() (int, int) { return w, h } }

	require.Equal(t, "a\x1b[K\nb\x1b[K\n\x1b[J\x1b[2A\rc\x1b[K\n\x1b[J\x1b[1A\rd\x1b[K\n\x1b[J", frames(Screen{TTY: true}, "a\nb\n", "c\n", "d"), "a frame replaces the one before")
	require.Equal(t, "a\nb\nc\na\n", frames(Screen{}, "a\nb", "b\nc", "c", "a"), "a pipe gets new lines only")
	require.Equal(t, "a\x1b[K\n… 3 more lines\x1b[K\n\x1b[J", frames(Screen{TTY: true, Size: size(80, 3)}, "a\nb\nc\nd"), "cut to the height")
	require.Equal(t, "abc…\x1b[K\n\x1b[J", frames(Screen{TTY: true, Size: size(4, 0)}, "abcdefg"), "cut to the width")
	require.Equal(t, "\x1b[31mabc\x1b[0m…\x1b[K\n\x1b[J", frames(Screen{TTY: true, Size: size(4, 0)}, "\x1b[31mabcdefg\x1b[0m"), "colour has no width and is reset")
	require.Equal(t, "abcd\x1b[K\n\x1b[J", frames(Screen{TTY: true, Size: size(4, 0)}, "abcd"))

	width := 10
	narrower := func() (int, int) { width -= 6; return width + 6, 0 }
	require.Equal(t, "abcdefghij\x1b[K\nx\x1b[K\n\x1b[J\x1b[4A\rabc…\x1b[K\nx\x1b[K\n\x1b[J",
		frames(Screen{TTY: true, Size: narrower}, "abcdefghij\nx", "abcdefghij\nx"), "a narrowed terminal has wrapped its lines")
}

// The last column is shown whole where it fits, and in a pipe. Otherwise it is below its row, cut to the terminal or in full.
func TestTextBelowItsRow(t *testing.T) {
	table := Table{
		Header: []string{"SERVICE", "STATUS", "WAITS FOR"}, Below: true,
		Rows: [][]string{{"web", "FAILED", "listen tcp 127.0.0.1:8080: bind: address already in use"}, {"api", "PAUSED", "short"}},
	}
	screen := Screen{TTY: true, Size: func() (int, int) { return 40, 20 }}
	require.Equal(t, "SERVICE STATUS WAITS FOR\nweb     FAILED\n    listen tcp 127.0.0.1:8080: bind: ad…\napi     PAUSED short\n", screen.String(table))
	table.Wide = true
	require.Equal(t, "SERVICE STATUS WAITS FOR\nweb     FAILED\n    listen tcp 127.0.0.1:8080: bind:\n    address already in use\napi     PAUSED short\n", screen.String(table))
	require.Equal(t, "web\tFAILED\tlisten tcp 127.0.0.1:8080: bind: address already in use\napi\tPAUSED\tshort\n", Screen{}.String(table))
	screen.Size = func() (int, int) { return 0, 0 }
	require.Contains(t, screen.String(table), "FAILED listen tcp 127.0.0.1:8080: bind: address already in use\n")
	line, rest := splitAt("aaaaaaaaaa bb", 5)
	require.Equal(t, []string{"aaaaa", "aaaaa bb"}, []string{line, rest})
}

func TestDocuments(t *testing.T) {
	doc := struct {
		Version string `json:"version"`
		Since   int64  `json:"since"`
		Text    string `json:"text,omitempty"`
	}{"1.10", 1<<53 + 1, "a\u202eb\x1b[31m: c"}
	print := func(s Screen, write func(Screen) error) string {
		var out bytes.Buffer
		s.Out = &out
		require.NoError(t, write(s))
		return out.String()
	}
	one := func(s Screen) error { return s.Document(doc) }
	several := func(s Screen) error { return s.StreamDocument(doc) }
	require.Equal(t, "{\n  \"version\": \"1.10\",\n  \"since\": 9007199254740993,\n  \"text\": \"a\\u202eb\\u001b[31m: c\"\n}\n", print(Screen{}, one))
	require.Equal(t, "{\"version\":\"1.10\",\"since\":9007199254740993,\"text\":\"a\\u202eb\\u001b[31m: c\"}\n", print(Screen{}, several))
	require.Equal(t, "since: 9007199254740993\ntext: \"a\\u202eb\\e[31m: c\"\nversion: \"1.10\"\n", print(Screen{YAML: true}, one), "a text that looks like a number is quoted")
	require.Equal(t, "---\n"+print(Screen{YAML: true}, one), print(Screen{YAML: true}, several))
}
