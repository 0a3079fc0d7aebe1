package trail

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/converge-engine/converge/entities"
)

// InOrder returns lines in the order in which they were recorded. No line comes before the line whose hash it contains, whatever the
// clock of the server showed: a clock that is set back would otherwise mix the lines. Lines that do not follow from each other, such as
// those of a terminated run, are ordered by time, then by number. Equal lines are kept.
func InOrder(lines []entities.AuditEntry) []entities.AuditEntry {
	sorted := slices.Clone(lines)
	slices.SortStableFunc(sorted, func(a, b entities.AuditEntry) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.N, b.N)) })
	if slices.IsSortedFunc(sorted, func(a, b entities.AuditEntry) int { return cmp.Compare(a.N, b.N) }) {
		return sorted // the time agrees with the numbers: no hash is needed
	}
	ready, followers := dependencies(sorted)
	out := make([]entities.AuditEntry, 0, len(sorted))
	for ready.Len() > 0 {
		n := heap.Pop(&ready).(int)
		out = append(out, sorted[n])
		for _, follower := range followers[n] {
			heap.Push(&ready, follower)
		}
	}
	return out
}

// dependencies returns the indices of the lines that follow from no other line, and, by index, those of the lines that follow from a line.
func dependencies(lines []entities.AuditEntry) (first indices, followers map[int][]int) {
	byHash := map[string]int{}
	for n, l := range lines {
		byHash[l.Hash()] = n
	}
	followers = map[int][]int{}
	for n, l := range lines {
		if before, known := byHash[l.Prev]; known {
			followers[before] = append(followers[before], n)
		} else {
			first = append(first, n) // ascending, so it is a heap
		}
	}
	return first, followers
}

// indices is a heap of indices.
type indices []int

func (h indices) Len() int           { return len(h) }
func (h indices) Less(i, j int) bool { return h[i] < h[j] }
func (h indices) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *indices) Push(n any)        { *h = append(*h, n.(int)) }
func (h *indices) Pop() any {
	last := len(*h) - 1
	n := (*h)[last]
	*h = (*h)[:last]
	return n
}
