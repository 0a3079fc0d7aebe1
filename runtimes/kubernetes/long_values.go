package kubernetes

import (
	"regexp"
	"strings"
)

// maxQuotedValue limits, in bytes, an invalid value inside a message of the server: it prints whole structures of Go (thousands of
// characters of a pod template), before the cause.
const maxQuotedValue = 80

var invalidValueRE = regexp.MustCompile(`(Invalid|Unsupported|Duplicate) value: `)

// shortenValues replaces the long values in a message of the server by "…", so that what is wrong with them follows at once.
func shortenValues(message string) string {
	var b strings.Builder
	for {
		at := invalidValueRE.FindStringIndex(message)
		if at == nil {
			return b.String() + message
		}
		b.WriteString(message[:at[1]])
		message = message[at[1]:]
		if n := valueLength(message); n > maxQuotedValue {
			b.WriteString("…")
			message = message[n:]
		}
	}
}

// valueLength is the length of the value at the beginning of a text, in Go's or JSON's syntax: up to the first ": " or end of a list that
// is neither quoted nor in brackets.
func valueLength(text string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == '\\' && quote == '"':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"', c == '`':
			quote = c
		case c == '{', c == '[', c == '(':
			depth++
		case depth > 0 && (c == '}' || c == ']' || c == ')'):
			depth--
		case depth == 0 && (strings.HasPrefix(text[i:], ": ") || strings.HasPrefix(text[i:], ", ") || c == ']'):
			return i
		}
	}
	return 0 // not a value that ends
}
