package activities

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a command prints is read as an object or as lines; what is wrong is said without any of it.
func TestParseCaptured_E2_G5(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		printed string
		want    map[string]string
		err     string
	}{
		"object":       {printed: `{"apiKey": "hunter2", "user": "a=b"}` + "\n", want: map[string]string{"apiKey": "hunter2", "user": "a=b"}},
		"lines":        {printed: "# made at first boot\r\napiKey=hunter2==\r\n\nuser= a b \n", want: map[string]string{"apiKey": "hunter2==", "user": " a b"}},
		"nothing":      {err: "it did not print apiKey"},
		"no line":      {printed: "apiKey=hunter2\nhunter3", err: "line 2 of what it printed is no NAME=TEXT, and all of it is no JSON object"},
		"twice":        {printed: "apiKey=hunter2\napiKey=hunter3", err: "line 2 of what it printed has a name that was there before"},
		"missing":      {printed: "apiKey=hunter2", err: "it did not print user"},
		"empty":        {printed: "apiKey=hunter2\nuser=", err: "it did not print user"},
		"another":      {printed: "apiKey=hunter2\nuser=hunter3\nhunter4=hunter5", err: "it printed 3 secrets; expected apiKey, user and nothing else"},
		"no texts":     {printed: `{"apiKey": {"hunter2": 1}}`, err: "it printed no JSON object of texts"},
		"cut off":      {printed: `{"apiKey": "hunter2"`, err: "it printed no JSON object of texts"},
		"bytes":        {printed: "apiKey=hunter2\xff\nuser=a", err: "it printed what is no text"},
		"zero":         {printed: "apiKey=hunter2\x00\nuser=a", err: "it printed what is no text"},
		"far too much": {printed: "apiKey=" + strings.Repeat("hunter2", maxCaptured/7), err: "it printed 262150 bytes; expected at most 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseCaptured([]byte(c.printed), []string{"apiKey", "user"})
			if c.err == "" {
				require.NoError(t, err)
				require.Equal(t, c.want, got)
				return
			}
			require.ErrorContains(t, err, c.err)
			require.NotContains(t, err.Error(), "hunter")
		})
	}
}
