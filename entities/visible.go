package entities

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible makes text safe to show on one line. Characters that are invisible or control the display (line ends, escape sequences of
// terminals, right-to-left text, characters without width) are written as in a Go literal: \n, \x1b, \u202e.
func Visible(text string) string { return visible(text, "") }

// VisibleLines is Visible for text that may have lines and tabs.
func VisibleLines(text string) string { return visible(text, "\n\t") }

func visible(text, allowed string) string {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) && r != '\u00a0' && !strings.ContainsRune(allowed, r) }
	if utf8.ValidString(text) && strings.IndexFunc(text, unprintable) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case unprintable(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}
