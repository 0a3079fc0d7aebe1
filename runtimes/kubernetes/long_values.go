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

// valueLength is the length of the value at the beginning of a text, in Go's or JSON's syntax: up to the first ": ", ", " or "]" that is
// neither quoted nor in brackets; 0 if there is none.
func valueLength(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"', '`':
			i += quotedLength(text[i:]) - 1
		case '{', '[', '(':
			depth++
		case '}', ']', ')':
			if depth == 0 {
				return i
			}
			depth--
		case ':', ',':
			if depth == 0 && strings.HasPrefix(text[i+1:], " ") {
				return i
			}
		}
	}
	return 0
}

// quotedLength is the length of the quoted text at the beginning, with its quotes; that of the whole if it does not end.
func quotedLength(text string) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && text[0] == '"':
			i++
		case text[i] == text[0]:
			return i + 1
		}
	}
	return len(text)
}
