package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func whole() Document {
	return Document{
		Schema: Schema, Command: []string{"deploy", "<web>"}, ExitCode: 143, Signal: "terminated", TimedOut: true,
		StartedAt: time.Date(2026, 11, 21, 10, 0, 0, 5, time.UTC), Duration: Duration(1500 * time.Millisecond),
		Stdout: Stream{Data: []byte("a\n\xffb"), Bytes: 4}, Stderr: Stream{Data: []byte("é\n"), Bytes: 300},
	}
}

// One line, both streams, exit code, start and duration; no byte is lost that is not UTF-8.
func TestDocument_C8(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, whole().Write(&b))
	require.Equal(t, `{"schema":"converge.command/v1","command":["deploy","<web>"],"exitCode":143,"signal":"terminated","timedOut":true,`+
		`"startedAt":"2026-11-21T10:00:00.000000005Z","duration":"1.5s",`+
		`"stdout":{"base64":"YQr/Yg==","bytes":4,"truncated":false},"stderr":{"text":"é\n","bytes":300,"truncated":true}}`+"\n", b.String())
	read, ok := Find(b.Bytes())
	require.True(t, ok)
	require.Equal(t, whole(), read)
}

func TestFind(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Document{Command: []string{"x"}, ExitCode: 3, Stdout: Stream{Data: []byte("1"), Bytes: 1}}.Write(&b))
	line := b.String()
	for _, row := range []struct {
		name, log string
		found     bool
	}{
		{"alone", line, true},
		{"without a newline", strings.TrimSpace(line), true},
		{"after output past the wrapper", "hello\n" + line + "\n\n", true},
		{"after output without a newline", "hello" + line, true},
		{"nothing", "", false},
		{"the last line of another program", line + "bye\n", false},
		{"cut", line[:len(line)-20], false},
		{"with more behind it", strings.TrimSpace(line) + "x", false},
		{"of another schema", strings.Replace(line, "/v1", "/v2", 1), false},
		{"that does not add up", strings.Replace(line, `"bytes":1`, `"bytes":7`, 1), false},
		{"with fewer bytes than there are", strings.Replace(line, `"bytes":1`, `"bytes":0`, 1), false},
		{"with a later field", strings.Replace(line, `"exitCode"`, `"later":{},"exitCode"`, 1), true},
		{"no base64", strings.Replace(line, `"text":"1"`, `"base64":"?"`, 1), false},
	} {
		doc, ok := Find([]byte(row.log))
		require.Equal(t, row.found, ok, row.name)
		if ok {
			require.Equal(t, 3, doc.ExitCode, row.name)
		}
	}
}

// Whatever a log holds, looking for the document does not panic, and what is found is written
// and found again.
func FuzzFind_C6_C8(f *testing.F) {
	var b bytes.Buffer
	if err := whole().Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"schema":"converge.command/v1"}`))
	f.Add([]byte(`{"schema":"converge.command/v1","stdout":{"base64":"AA==","text":"x","bytes":1},"duration":"-1h"}`))
	f.Add([]byte("\xff\n{"))
	f.Fuzz(func(t *testing.T, log []byte) {
		doc, ok := Find(log)
		if !ok {
			return
		}
		var again bytes.Buffer
		require.NoError(t, doc.Write(&again))
		found, ok := Find(again.Bytes())
		require.True(t, ok, again.String())
		var third bytes.Buffer
		require.NoError(t, found.Write(&third))
		require.Equal(t, again.String(), third.String())
	})
}
