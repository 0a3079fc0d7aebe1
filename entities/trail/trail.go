// Package trail finds out whether an audit trail is as it was written. Each line names the one before by its hash, and whoever
// knows the hash of the last line so knows all of them: pure rules upon what the store has, and what the workflow says of the
// end. It refuses nothing and repairs nothing; it imports entities alone.
//
// A trail grows together from more than one run: a workflow that is reset, or started again, goes on from its checkpoint. What
// the run before had written that the checkpoint does not know is beside the chain, and counted so: the line after the place
// where the two part says that the workflow was started again.
package trail

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Report says what was found.
type Report struct {
	Lines   int `json:"lines"`   // all that there are
	Chained int `json:"chained"` // that are just as the end of the trail says
	Beside  int `json:"beside"`  // that a run had written which the workflow went on without
	// Earlier are those of what the service was before it was taken down, where it counted from one again: nothing vouches
	// for them, and anybody could have put them there.
	Earlier int `json:"earlier,omitempty"`
	// End is the last line that is vouched for by the workflow or its checkpoint, by its number; 0: by nobody.
	End      int64     `json:"end,omitempty"`
	Problems []Problem `json:"problems,omitempty"` // by number
}

// Problem is something that is not as it was written: lines From to To.
type Problem struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	What What   `json:"what"`
	Text string `json:"text"`
}

// What may have been done to a line.
type What string

// What may have been done.
const (
	Changed  What = "changed"
	Removed  What = "removed"
	Inserted What = "inserted"
	CutOff   What = "cut-off" // at the end
)

// End is how the workflow says that its trail ends. Exact: nothing was noted since; else its checkpoint says so, and more may
// have been.
type End struct {
	entities.TrailEnd
	Exact bool
}

// Verify compares lines, in any order, with each other and with the end that they should have.
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
	next   map[string]*entities.KeptLine // what follows a line in the chain
	parts  map[string]*entities.KeptLine // where a line parts from the chain, as far as that has been followed
	first  *entities.KeptLine            // that was reached last
	// earlier: what is followed now is of a life before.
	earlier bool
	report  Report
}

// end is where to begin, from the end backwards.
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

// latest is the last line by its number among those of the last life that a condition holds for.
func (v *verifier) latest(holds func(*entities.KeptLine) bool) (found *entities.KeptLine) {
	for _, l := range v.sorted {
		if !v.seen[l.Hash] && holds(l) && (found == nil || l.N >= found.N || l.N == 1 && l.At.After(found.At)) {
			found = l
		}
	}
	return found
}

// after are the lines that follow from one, itself included, by their hashes.
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

// follow goes from a line to those before it, and says where that leads to none.
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

// below is the line with the next lower number, of the same life where there are several.
func (v *verifier) below(of *entities.KeptLine) (found *entities.KeptLine) {
	later, _ := slices.BinarySearchFunc(v.sorted, of.At, func(l *entities.KeptLine, at time.Time) int {
		return cmp.Or(l.At.Compare(at), -1) // those of that very time are not later
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

// lifeBefore is the last line of what a service was before it was taken down and began anew with number one.
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

// rest judges what no chain leads to.
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

// branches tells whether a line follows from one of the chain.
func (v *verifier) branches(l *entities.KeptLine) bool { return v.parting(l) != nil }

// parting is the line of the chain from which another one follows. A trail is long, and lines follow from each other: what was
// found of one is not looked for again.
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

// restarted tells whether the chain goes on, where a line parts from it, with a workflow that was started again.
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
		Changed:  "is not as it was noted",
		Removed:  were + " removed",
		Inserted: "was never noted, or is not where it was",
		CutOff:   were + " cut off at the end",
	}[what]
	v.report.Problems = append(v.report.Problems, Problem{From: from, To: to, What: what, Text: lines + " " + text})
}
