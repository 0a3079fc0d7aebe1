// Package trail verifies that an audit trail is unchanged. Each line contains the hash of the line before it. So the hash of the last line
// vouches for all lines. The package has pure rules over the lines in the store and the end that the workflow reports. It refuses nothing
// and repairs nothing. It imports package entities only.
//
// A trail may consist of several runs: a workflow that is reset or restarted continues from its checkpoint. Lines that the earlier run
// wrote after that checkpoint are outside the chain, and are counted separately. The next line in the chain after the fork records the
// restart.
package trail

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Report is the result of a verification.
type Report struct {
	Lines   int `json:"lines"`   // all lines in the store
	Chained int `json:"chained"` // in the chain that ends at the reported end
	Beside  int `json:"beside"`  // written by an earlier run after the checkpoint from which the workflow continued
	// Earlier counts the lines from before the service was taken down, if numbers then restarted at one. Nothing vouches for these lines: any
	// writer could have added them.
	Earlier int `json:"earlier,omitempty"`
	// End is the number of the last line that the workflow or its checkpoint vouches for; 0 if there is none.
	End      int64     `json:"end,omitempty"`
	Problems []Problem `json:"problems,omitempty"` // sorted by number
}

// Problem is a range of lines, From to To, that differs from the written ones.
type Problem struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	What What   `json:"what"`
	Text string `json:"text"`
}

// What names the kind of a problem.
type What string

// The kinds of problem.
const (
	Changed  What = "changed"
	Removed  What = "removed"
	Inserted What = "inserted"
	CutOff   What = "cut-off" // at the end
)

// End is the end of the trail as the workflow reports it. If Exact, nothing was recorded since. Otherwise it is from a checkpoint, and
// later lines may exist.
type End struct {
	entities.TrailEnd
	Exact bool
}

// Verify compares lines, in any order, with each other and with the expected end.
func Verify(lines []entities.KeptLine, end End) Report {
	v := verifier{byHash: map[string]*entities.KeptLine{}, seen: map[string]bool{}, next: map[string]*entities.KeptLine{}, parts: map[string]*entities.KeptLine{}}
	for _, l := range lines {
		if v.byHash[l.Hash] == nil {
			v.byHash[l.Hash] = &l
			v.sorted = append(v.sorted, &l)
		}
	}
	slices.SortStableFunc(v.sorted, func(a, b *entities.KeptLine) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.N, b.N)) })
	v.report.Lines = len(v.sorted)
	for from := v.end(end); from != nil; from = v.lifeBefore() {
		v.follow(from)
		v.earlier = true
	}
	v.rest()
	slices.SortStableFunc(v.report.Problems, func(a, b Problem) int { return cmp.Compare(a.From, b.From) })
	return v.report
}

type verifier struct {
	sorted []*entities.KeptLine // by time
	byHash map[string]*entities.KeptLine
	seen   map[string]bool
	next   map[string]*entities.KeptLine // the next line in the chain, by hash
	parts  map[string]*entities.KeptLine // where a line forks from the chain, as far as followed so far
	first  *entities.KeptLine            // the last line reached
	// earlier is true while lines from before a takedown are followed.
	earlier bool
	report  Report
}

// end returns the line to start from. Lines are followed backwards.
func (v *verifier) end(end End) *entities.KeptLine {
	vouched := v.byHash[end.Hash]
	if vouched != nil {
		v.report.End = end.N
		if end.Exact {
			return vouched
		}
		after := v.after(vouched)
		return v.latest(func(l *entities.KeptLine) bool { return after[l.Hash] })
	}
	last := v.latest(func(*entities.KeptLine) bool { return true })
	switch {
	case end.Hash == "" || last == nil && end.N == 0:
	case last == nil || last.N < end.N:
		from := int64(1)
		if last != nil {
			from = last.N + 1
		}
		v.problem(from, end.N, CutOff)
	default:
		if at := v.latest(func(l *entities.KeptLine) bool { return l.N == end.N }); at != nil {
			last = at
		}
		v.problem(end.N, end.N, Changed)
	}
	return last
}

// latest returns the line with the highest number, in the newest life of the service, that satisfies a condition.
func (v *verifier) latest(holds func(*entities.KeptLine) bool) (found *entities.KeptLine) {
	for _, l := range v.sorted {
		if !v.seen[l.Hash] && holds(l) && (found == nil || l.N >= found.N || l.N == 1 && l.At.After(found.At)) {
			found = l
		}
	}
	return found
}

// after returns the hashes of the lines that follow a line, including its own.
func (v *verifier) after(of *entities.KeptLine) map[string]bool {
	after := map[string]bool{of.Hash: true}
	byNumber := slices.Clone(v.sorted)
	slices.SortStableFunc(byNumber, func(a, b *entities.KeptLine) int { return cmp.Compare(a.N, b.N) })
	for _, l := range byNumber {
		if l.Prev != "" && after[l.Prev] {
			after[l.Hash] = true
		}
	}
	return after
}

// follow walks from a line back through its predecessors, and reports each missing or changed line.
func (v *verifier) follow(l *entities.KeptLine) {
	clear(v.parts)
	for l != nil && !v.seen[l.Hash] {
		v.take(l)
		before := v.byHash[l.Prev]
		if before != nil {
			v.next[before.Hash] = l
			l = before
			continue
		}
		n := l.N
		if l = v.below(l); l == nil || l.N < n-1 {
			from := int64(1)
			if l != nil {
				from = l.N + 1
			}
			if from < n {
				v.problem(from, n-1, Removed)
			}
		} else {
			v.problem(l.N, l.N, Changed)
		}
	}
}

func (v *verifier) take(l *entities.KeptLine) {
	v.seen[l.Hash], v.first = true, l
	switch {
	case v.earlier:
		v.report.Earlier++
	default:
		v.report.Chained++
	}
}

// below returns the line with the next lower number. With several lives it stays in the same one.
func (v *verifier) below(of *entities.KeptLine) (found *entities.KeptLine) {
	later, _ := slices.BinarySearchFunc(v.sorted, of.At, func(l *entities.KeptLine, at time.Time) int {
		return cmp.Or(l.At.Compare(at), -1) // lines at the same time are not later
	})
	for _, l := range slices.Backward(v.sorted[:later]) {
		if v.seen[l.Hash] || l.N >= of.N || found != nil && l.N <= found.N {
			continue
		}
		if found = l; l.N == of.N-1 {
			break
		}
	}
	return found
}

// lifeBefore returns the last line before the service was taken down and its numbers restarted at one.
func (v *verifier) lifeBefore() *entities.KeptLine {
	if v.first == nil || v.first.N != 1 {
		return nil
	}
	for _, l := range slices.Backward(v.sorted) {
		if !v.seen[l.Hash] && l.At.Before(v.first.At) && !v.branches(l) {
			return l
		}
	}
	return nil
}

// rest classifies the lines outside any chain.
func (v *verifier) rest() {
	for _, l := range v.sorted {
		switch {
		case v.seen[l.Hash]:
		case v.branches(l) && v.restarted(l):
			v.report.Beside++
		default:
			v.problem(l.N, l.N, Inserted)
		}
	}
}

// branches reports whether a line follows from a line of the chain.
func (v *verifier) branches(l *entities.KeptLine) bool { return v.parting(l) != nil }

// parting returns the line of the chain from which another line forks. It caches its results, because a trail is long and lines follow from
// each other.
func (v *verifier) parting(l *entities.KeptLine) *entities.KeptLine {
	var passed []string
	from := l
	for range v.sorted {
		known, ok := v.parts[from.Hash]
		if ok {
			from = known
			break
		}
		passed = append(passed, from.Hash)
		if from = v.byHash[from.Prev]; from == nil || v.seen[from.Hash] {
			break
		}
	}
	for _, hash := range passed {
		v.parts[hash] = from
	}
	return from
}

// restarted reports whether the chain continues after the fork with a restart of the workflow.
func (v *verifier) restarted(l *entities.KeptLine) bool {
	next := v.next[v.parting(l).Hash]
	return next != nil && next.Kind == entities.EventRestart
}

func (v *verifier) problem(from, to int64, what What) {
	lines, were := fmt.Sprintf("line %d", from), "was"
	if to > from {
		lines, were = fmt.Sprintf("lines %d to %d", from, to), "were"
	}
	text := map[What]string{
		Changed:  "differs from what was recorded",
		Removed:  were + " removed",
		Inserted: "was never recorded, or was moved",
		CutOff:   were + " cut off at the end",
	}[what]
	v.report.Problems = append(v.report.Problems, Problem{From: from, To: to, What: what, Text: lines + " " + text})
}
