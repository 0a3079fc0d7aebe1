package entities

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"", "alice@shop.dev", "Zoë", "Łukasz", "repo:shop/web:environment:prod", "auth0|17", "ci bot", "group:sre", "Nguyễn", "Иван", "Ελένη", "田中さん", "김민준",
		"अनिल", "محمد", "иван@пример",
	} {
		require.NoError(t, CheckName(name), name)
	}
	for name, why := range map[string]string{
		"аlice@shop.dev":       "letters of Cyrillic and of Latin",
		"alicе":                "letters of Latin and of Cyrillic",
		"сосо":                 "is written in Cyrillic and looks like Latin letters",
		"ΑΝΤΟΝ":                "is written in Greek and looks like Latin letters",
		"ａlice":                "which looks like others",
		"𝐚lice":                "which looks like others",
		"alıce":                "which looks like others",
		"ɑlice":                "which looks like others",
		"ali\u0301ce":          "which looks like others",
		"bob٣":                 "which looks like others",
		"bob\u200b":            "cannot be seen",
		"bob\u202eecila":       "cannot be seen",
		"bob\x1b[31m":          "cannot be seen",
		"bob\n":                "blanks around it",
		"bob\u00a0":            "blanks around it",
		"a\u00a0b":             "cannot be seen",
		"a\nb":                 "cannot be seen",
		"\ufffd":               "which looks like others",
		"alice‐smith":          "which looks like others",
		"alice@shop．dev":       "which looks like others",
		"Ꭺlice":                "which looks like others",
		"bob" + "\u0007":       "cannot be seen",
		strings.Repeat("х", 9): "looks like Latin letters",
	} {
		require.ErrorContains(t, CheckName(name), why, name)
	}
}

// Two who have the same subject, or the same name, are one.
func TestSame(t *testing.T) {
	alice := Who{Name: "alice@shop.dev", Subject: "https://id.shop.dev u-1", Proven: true}
	require.True(t, alice.Same(Who{Name: "alice@new.dev", Subject: "https://id.shop.dev u-1", Proven: true}))
	require.True(t, alice.Same(Who{Name: "alice@shop.dev"}))
	require.False(t, alice.Same(Who{Name: "bob", Subject: "https://id.shop.dev u-2", Proven: true}))
	require.False(t, Who{Name: "a"}.Same(Who{Name: "b"}))
}
