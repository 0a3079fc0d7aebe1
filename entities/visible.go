package entities

import (
	"strconv"
	"strings"
	"unicode"
)

// Visible is text as people may be shown it, on one line: whatever cannot be seen, or does something to what shows it (line
// ends, escape sequences of terminals, text from right to left, characters without width), is written as Go writes it in
// a literal: \n, \x1b, \u202e.
func Visible(text string) string { return visible(text, "") }

// VisibleLines is Visible of text that has lines and tabs of its own.
func VisibleLines(text string) string { return visible(text, "\n\t") }

func visible(text, kept string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) && r != '\u00a0' && !strings.ContainsRune(kept, r) }
	if strings.IndexFunc(text, odd) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if odd(r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
