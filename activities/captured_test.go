package activities

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The output of a command is parsed as an object or as lines. Errors do not contain any of it.
func TestParseCaptured_E2_G5(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		printed string
		want    map[string]string
		err     string
	}{
		"object":     {printed: `{"apiKey": "hunter2", "user": "a=b"}` + "\n", want: map[string]string{"apiKey": "hunter2", "user": "a=b"}},
		"lines":      {printed: "# made at first boot\r\napiKey=hunter2==\r\n\nuser= a b \n", want: map[string]string{"apiKey": "hunter2==", "user": " a b"}},
		"nothing":    {err: "the output lacks apiKey"},
		"no line":    {printed: "apiKey=hunter2\nhunter3", err: "line 2 of the output is not NAME=TEXT, and the output is not a JSON object"},
		"twice":      {printed: "apiKey=hunter2\napiKey=hunter3", err: "line 2 of the output repeats a name"},
		"missing":    {printed: "apiKey=hunter2", err: "the output lacks user"},
		"empty":      {printed: "apiKey=hunter2\nuser=", err: "the output lacks user"},
		"another":    {printed: "apiKey=hunter2\nuser=hunter3\nhunter4=hunter5", err: "the output has 3 secrets; expected only apiKey, user"},
		"no strings": {printed: `{"apiKey": {"hunter2": 1}}`, err: "the output is not a JSON object of strings"},
		"incomplete": {printed: `{"apiKey": "hunter2"`, err: "the output is not a JSON object of strings"},
		"bytes":      {printed: "apiKey=hunter2\xff\nuser=a", err: "the output is not text"},
		"zero":       {printed: "apiKey=hunter2\x00\nuser=a", err: "the output is not text"},
		"too large":  {printed: "apiKey=" + strings.Repeat("hunter2", maxCaptured/7), err: "the output has 262150 bytes; expected at most 262144"},
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
