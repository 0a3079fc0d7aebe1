package strict

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// Nearest returns the name that was probably meant, or "". Near is at most a third of the letters
// wrong; of equally near names the first in order is taken. Failing that it is one that begins as
// the other does ("integer" for "int").
func Nearest(given string, names []string) string {
	const tooLong = 100 // the distance takes time square in the length, and no name is that long
	if len(given) > tooLong {
		return ""
	}
	best, bestDistance := "", max(1, len(given)/3)+1
	for _, name := range slices.Sorted(slices.Values(names)) {
		if len(name) > tooLong {
			continue
		}
		if d := distance(strings.ToLower(given), strings.ToLower(name)); d < bestDistance && d < len(name) {
			best, bestDistance = name, d
		}
	}
	for _, name := range names {
		const telling = 3 // letters
		if best == "" && min(len(name), len(given)) >= telling && (strings.HasPrefix(name, given) || strings.HasPrefix(given, name)) {
			best = name
		}
	}
	return best
}

// OneOf words a list of names for Expected.
func OneOf(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return "one of " + strings.Join(names, ", ")
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a
// into b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last := make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			replace := last[j-1]
			if x[i-1] != y[j-1] {
				replace++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(y)]
}

// Clip keeps a message short.
func Clip(text string) string {
	if len(text) > 60 {
		return text[:60] + "…"
	}
	return text
}

// Keys lists a map's keys in order.
func Keys[K ~string, V any](m map[K]V) []string {
	var all []string
	for k := range m {
		all = append(all, string(k))
	}
	slices.Sort(all)
	return all
}

// Reason drops the operation and path that an error repeats.
func Reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
