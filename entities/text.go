package entities

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Because formats a cause for the end of a sentence, or returns "".
func Because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

// OneOf lists the valid values.
func OneOf(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return "one of " + strings.Join(names, ", ")
}

// FirstNames lists the first few names, and counts the rest.
func FirstNames(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// HasOrHave returns "has" or "have" for a list of names.
func HasOrHave(names []string) string {
	if len(names) == 1 {
		return "has"
	}
	return "have"
}

// plainWordRE matches texts that a shell takes as they are.
var plainWordRE = regexp.MustCompile(`^[A-Za-z0-9/._:@%+,=-]+$`)

// ShellWord is a text as one word of a command line, in quotes if it needs them.
func ShellWord(text string) string {
	if plainWordRE.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// Expected lists the valid values, for the end of an error.
func Expected(names []string) string {
	if len(names) == 0 {
		return "; there is none yet"
	}
	return "; expected " + OneOf(names)
}

// ClipMessage shortens a message of a person, a runtime or a server to at most limit bytes. It drops the middle, at character
// boundaries: a message begins with its subject, and ends with its cause and the remedy.
func ClipMessage(text string, limit int) string {
	const ellipsis = " … "
	if len(text) <= limit {
		return text
	}
	kept := max(0, limit-len(ellipsis))
	head := kept / 3
	tail := len(text) - (kept - head)
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return text[:head] + ellipsis + text[tail:]
}

// ClipMessages is ClipMessage for several messages, one on each line: each one is shortened, and those that do not fit are counted.
func ClipMessages(text string, limit int) string {
	const least = 300 // bytes of one of several messages
	lines := strings.Split(text, "\n")
	if len(text) <= limit || len(lines) == 1 {
		return ClipMessage(text, limit)
	}
	each := max(least, limit/len(lines)-1)
	reserve := len("and 9999 more")
	var kept []string
	for size := 0; len(kept) < len(lines); {
		line := ClipMessage(lines[len(kept)], min(each, limit-reserve-1))
		if size += len(line) + 1; size > limit-reserve {
			break
		}
		kept = append(kept, line)
	}
	if more := len(lines) - len(kept); more > 0 {
		kept = append(kept, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(kept, "\n")
}

// Clip shortens text at a character boundary.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}

// Times returns "once", "2 times" and so on.
func Times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// RoundDuration formats a duration for people, in milliseconds below a second and otherwise in seconds.
func RoundDuration(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Length formats a duration as people write it: 168h, 1h30m.
func Length(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// KeepLast returns the last n elements of a list.
func KeepLast[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	return append([]T(nil), list[len(list)-n:]...)
}

// SortedKeys returns the keys of a map in order, so that iteration over them gives the same bytes every time.
//
//workflowcheck:ignore
func SortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// SortedIDs returns the instances in a map, in order.
//
//workflowcheck:ignore
func SortedIDs[V any](m map[InstanceID]V) []InstanceID {
	ids := make([]InstanceID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, InstanceID.Compare)
	return ids
}

// Count returns a number with a noun, in the plural unless it is one.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
