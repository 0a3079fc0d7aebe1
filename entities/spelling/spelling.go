// Package spelling finds the names that a misspelt name was probably meant to be.
package spelling

import (
	"cmp"
	"slices"
	"strings"
)

// Closest returns at most five names whose distance is within a third of the length of the wrong name, nearest first. It also returns
// names with the same service in another application.
func Closest(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	for _, n := range names {
		d := Distance(name, n)
		if _, service, _ := strings.Cut(n, "/"); strings.HasSuffix(name, "/"+service) {
			d = min(d, 1)
		}
		if d <= max(1, len(name)/3) {
			found = append(found, candidate{n, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), strings.Compare(a.name, b.name))
	})
	out := make([]string, 0, 5)
	for _, c := range found[:min(5, len(found))] {
		out = append(out, c.name)
	}
	return out
}

// Distance counts the insertions, deletions, replacements and swaps of neighbours that turn a into b.
func Distance(a, b string) int {
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
