package entities

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"v1 — Zoë\u00a0田中":   "v1 — Zoë\u00a0田中",
		"a\nPASS":            `a\nPASS`,
		"a\tb":               `a\tb`,
		"\x1b[31mred":        `\x1b[31mred`,
		"\u009b31mred":       `\u009b31mred`, // as one character,
		"\x9b31mred":         `\x9b31mred`,   // and as the byte that terminals of eight bits take for it
		"\xff\xfe":           `\xff\xfe`,
		"\ufffd":             "\ufffd", // what decoders put in the place of such bytes
		"abc\u202edef":       `abc\u202edef`,
		"a\u200bb":           `a\u200bb`,
		"\u2028":             `\u2028`,
		"it's \"quoted\" \\": "it's \"quoted\" \\",
	} {
		require.Equal(t, want, Visible(text))
	}
	require.Equal(t, "a\n\tb"+`\r\x9b`, VisibleLines("a\n\tb\r\x9b"))
}
