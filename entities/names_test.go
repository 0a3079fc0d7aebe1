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
		"ａlice":                "which can be confused with others",
		"𝐚lice":                "which can be confused with others",
		"alıce":                "which can be confused with others",
		"ɑlice":                "which can be confused with others",
		"ali\u0301ce":          "which can be confused with others",
		"bob٣":                 "which can be confused with others",
		"bob\u200b":            "invisible character",
		"bob\u202eecila":       "invisible character",
		"bob\x1b[31m":          "invisible character",
		"bob\n":                "leading or trailing blanks",
		"bob\u00a0":            "leading or trailing blanks",
		"a\u00a0b":             "invisible character",
		"a\nb":                 "invisible character",
		"\ufffd":               "which can be confused with others",
		"alice‐smith":          "which can be confused with others",
		"alice@shop．dev":       "which can be confused with others",
		"Ꭺlice":                "which can be confused with others",
		"bob" + "\u0007":       "invisible character",
		strings.Repeat("х", 9): "looks like Latin letters",
	} {
		require.ErrorContains(t, CheckName(name), why, name)
	}
}

// Two callers with the same subject, or the same name, are the same person.
func TestSame(t *testing.T) {
	alice := Who{Name: "alice@shop.dev", Subject: "https://id.shop.dev u-1", Proven: true}
	require.True(t, alice.Same(Who{Name: "alice@new.dev", Subject: "https://id.shop.dev u-1", Proven: true}))
	require.True(t, alice.Same(Who{Name: "alice@shop.dev"}))
	require.False(t, alice.Same(Who{Name: "bob", Subject: "https://id.shop.dev u-2", Proven: true}))
	require.False(t, Who{Name: "a"}.Same(Who{Name: "b"}))
}
