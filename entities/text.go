package entities

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
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

// Expected lists the valid values, for the end of an error.
func Expected(names []string) string {
	if len(names) == 0 {
		return "; there is none yet"
	}
	return "; expected " + OneOf(names)
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
