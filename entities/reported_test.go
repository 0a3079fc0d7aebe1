package entities_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// The report of a command is at the end of its output. An error names a value that is missing or too large.
func TestParseReported_A21(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, printed, want string }{
		{"alone", `{"outputs": {"host": "a"}}`, "a"},
		{"after talk", "it is {there}\n{\"x\": 1}\n{\"outputs\": {\"host\": \"a\"}}\n\n", "a"},
		{"over several lines", "talk\n{\n  \"outputs\": {\n    \"host\": \"a\"\n  }\n}\n", "a"},
		{"a number", `{"outputs": {"host": 12345678901234567890}}`, "12345678901234567890"},
		{"a boolean", `{"outputs": {"host": true}}`, "true"},
		{"nothing", "", "it reported nothing"},
		{"talk", "talk", "it reported nothing"},
		{"talk after it", "{\"outputs\": {\"host\": \"a\"}}\ntalk", "it reported nothing"},
		{"something else", `{"outputs": ["a"]}`, "it reported nothing"},
		{"other names", `{"outputs": {"b": "1", "a": "2"}}`, "it did not report the output host; it reported a, b"},
		{"no names", `{}`, "it did not report the output host; it reported none"},
		{"an object", `{"outputs": {"host": {}}}`, "the reported output host is not text"},
		{"too large", `{"outputs": {"host": "` + strings.Repeat("a", entities.MaxReportedText+1) + `"}}`, "has 4097 bytes; expected at most 4096"},
		{"a zero", `{"outputs": {"host": "\u0000"}}`, "is not text"},
	} {
		r, err := entities.ParseReported(c.printed, []string{"host"}, nil)
		if err != nil {
			require.ErrorContains(t, err, c.want, c.name)
			continue
		}
		require.Equal(t, map[string]string{"host": c.want}, r.Outputs, c.name)
	}
	r, err := entities.ParseReported(`{"addresses": {"media": "192.0.2.7"}}`, nil, []string{"media"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"media": "192.0.2.7"}, r.Addresses)
}

// A text is filled in once: a reported value is not searched for references.
func TestWithReported_A21(t *testing.T) {
	t.Parallel()
	got := entities.WithReported("${{ outputs.a.b }} ${{ addresses.c }} ${{ version }}", func(name string) string { return "<${{ outputs.x.y }}" + name + ">" })
	require.Equal(t, "<${{ outputs.x.y }}outputs.a.b> <${{ outputs.x.y }}addresses.c> ${{ version }}", got)
	require.True(t, entities.HasReportedReference("x${{ outputs.a.b }}"))
	require.False(t, entities.HasReportedReference("${{ version }}"))
}
