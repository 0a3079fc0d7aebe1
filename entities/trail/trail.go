// Package trail verifies that an audit trail is unchanged, and returns its lines in order. Each line contains the hash of the line before
// it. So the hash of the last line vouches for all lines. The package has pure rules over the lines in the store and the end that the
// workflow reports. It refuses nothing and repairs nothing. It imports package entities only.
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
	Forked  int `json:"beside"`  // written by an earlier run after the checkpoint from which the workflow continued
	// Earlier counts the lines from before the service was deleted, if numbers then restarted at one. Nothing vouches for these lines: any
	// writer could have added them.
	Earlier int `json:"earlier,omitempty"`
	// End is the number of the last line that the workflow or its checkpoint vouches for; 0 if there is none.
	End      int64     `json:"end,omitempty"`
	Problems []Problem `json:"problems,omitempty"` // sorted by number
}

// Problem is a range of lines, From to To, that differs from the written ones.
type Problem struct {
	From int64       `json:"from"`
	To   int64       `json:"to"`
	Kind ProblemKind `json:"what"`
	Text string      `json:"text"`
}

// Text is the report for people: a summary, and a line for each problem.
func (r Report) Text() []string {
	text := entities.Count(r.Lines, "line")
	if r.Forked > 0 {
		text += fmt.Sprintf(", %d of a terminated run, outside the chain", r.Forked)
	}
	if r.Earlier > 0 {
		text += fmt.Sprintf(", %d from before line 1, which cannot be verified", r.Earlier)
	}
	switch {
	case len(r.Problems) > 0:
		text += "; " + entities.Count(len(r.Problems), "problem")
	case r.End > 0:
		text += fmt.Sprintf("; verified up to line %d", r.End)
	default:
		text += "; consistent, but their end cannot be verified"
	}
	lines := []string{text}
	for _, p := range r.Problems {
		lines = append(lines, p.Text)
	}
	return lines
}

// ProblemKind names the kind of a problem.
type ProblemKind string

// The kinds of problem.
const (
	Changed  ProblemKind = "changed"
	Removed  ProblemKind = "removed"
	Inserted ProblemKind = "inserted"
	CutOff   ProblemKind = "cut-off" // at the end
)

// End is the end of the trail as the workflow reports it. If Exact, nothing was recorded since. Otherwise it is from a checkpoint, and
// later lines may exist.
type End struct {
	entities.TrailEnd
	Exact bool
}

// Verify compares lines, in any order, with each other and with the expected end.
func Verify(lines []entities.StoredEntry, end End) Report {
	v := verifier{byHash: map[string]*entities.StoredEntry{}, seen: map[string]bool{}, next: map[string]*entities.StoredEntry{}, forks: map[string]*entities.StoredEntry{}}
	for _, l := range lines {
		if v.byHash[l.Hash] == nil {
			v.byHash[l.Hash] = &l
			v.sorted = append(v.sorted, &l)
		}
	}
	slices.SortStableFunc(v.sorted, func(a, b *entities.StoredEntry) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.N, b.N)) })
	v.report.Lines = len(v.sorted)
	for from := v.end(end); from != nil; from = v.lastBeforeDeletion() {
		v.follow(from)
		v.earlier = true
	}
	v.classifyRest()
	slices.SortStableFunc(v.report.Problems, func(a, b Problem) int { return cmp.Compare(a.From, b.From) })
	return v.report
}

type verifier struct {
	sorted  []*entities.StoredEntry // by time
	byHash  map[string]*entities.StoredEntry
	seen    map[string]bool
	next    map[string]*entities.StoredEntry // the next line in the chain, by hash
	forks   map[string]*entities.StoredEntry // where a line forks from the chain, as far as followed so far
	reached *entities.StoredEntry            // the last line reached
	// earlier is true while lines from before a deletion are followed.
	earlier bool
	report  Report
}

// end returns the line to start from. Lines are followed backwards.
func (v *verifier) end(end End) *entities.StoredEntry {
	vouched := v.byHash[end.Hash]
	if vouched != nil {
		v.report.End = end.N
		if end.Exact {
			return vouched
		}
		after := v.followers(vouched)
		return v.latest(func(l *entities.StoredEntry) bool { return after[l.Hash] })
	}
	last := v.latest(func(*entities.StoredEntry) bool { return true })
	switch {
	case end.Hash == "" || last == nil && end.N == 0:
	case last == nil || last.N < end.N:
		from := int64(1)
		if last != nil {
			from = last.N + 1
		}
		v.problem(from, end.N, CutOff)
	default:
		if at := v.latest(func(l *entities.StoredEntry) bool { return l.N == end.N }); at != nil {
			last = at
		}
		v.problem(end.N, end.N, Changed)
	}
	return last
}

// latest returns the line with the highest number, in the newest life of the service, that satisfies a condition.
func (v *verifier) latest(matches func(*entities.StoredEntry) bool) (found *entities.StoredEntry) {
	for _, l := range v.sorted {
		if !v.seen[l.Hash] && matches(l) && (found == nil || l.N >= found.N || l.N == 1 && l.At.After(found.At)) {
			found = l
		}
	}
	return found
}

// followers returns the hashes of the lines that follow a line, including its own.
func (v *verifier) followers(of *entities.StoredEntry) map[string]bool {
	after := map[string]bool{of.Hash: true}
	byNumber := slices.Clone(v.sorted)
	slices.SortStableFunc(byNumber, func(a, b *entities.StoredEntry) int { return cmp.Compare(a.N, b.N) })
	for _, l := range byNumber {
		if l.Prev != "" && after[l.Prev] {
			after[l.Hash] = true
		}
	}
	return after
}

// follow walks from a line back through its predecessors, and reports each missing or changed line.
func (v *verifier) follow(l *entities.StoredEntry) {
	clear(v.forks)
	for l != nil && !v.seen[l.Hash] {
		v.visit(l)
		before := v.byHash[l.Prev]
		if before != nil {
			v.next[before.Hash] = l
			l = before
			continue
		}
		n := l.N
		if l = v.entryBelow(l); l == nil || l.N < n-1 {
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

func (v *verifier) visit(l *entities.StoredEntry) {
	v.seen[l.Hash], v.reached = true, l
	switch {
	case v.earlier:
		v.report.Earlier++
	default:
		v.report.Chained++
	}
}

// entryBelow returns the line with the next lower number. With several lives it stays in the same one.
func (v *verifier) entryBelow(of *entities.StoredEntry) (found *entities.StoredEntry) {
	later, _ := slices.BinarySearchFunc(v.sorted, of.At, func(l *entities.StoredEntry, at time.Time) int {
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

// lastBeforeDeletion returns the last line before the service was deleted and its numbers restarted at one.
func (v *verifier) lastBeforeDeletion() *entities.StoredEntry {
	if v.reached == nil || v.reached.N != 1 {
		return nil
	}
	for _, l := range slices.Backward(v.sorted) {
		if !v.seen[l.Hash] && l.At.Before(v.reached.At) && !v.isFork(l) {
			return l
		}
	}
	return nil
}

// classifyRest classifies the lines outside any chain.
func (v *verifier) classifyRest() {
	for _, l := range v.sorted {
		switch {
		case v.seen[l.Hash]:
		case v.isFork(l) && v.restarted(l):
			v.report.Forked++
		default:
			v.problem(l.N, l.N, Inserted)
		}
	}
}

// isFork reports whether a line follows from a line of the chain.
func (v *verifier) isFork(l *entities.StoredEntry) bool { return v.forkPoint(l) != nil }

// forkPoint returns the line of the chain from which another line forks. It caches its results, because a trail is long and lines follow
// from each other.
func (v *verifier) forkPoint(l *entities.StoredEntry) *entities.StoredEntry {
	var passed []string
	from := l
	for range v.sorted {
		known, ok := v.forks[from.Hash]
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
		v.forks[hash] = from
	}
	return from
}

// restarted reports whether the chain continues after the fork with a restart of the workflow.
func (v *verifier) restarted(l *entities.StoredEntry) bool {
	next := v.next[v.forkPoint(l).Hash]
	return next != nil && next.Kind == entities.EventRestart
}

func (v *verifier) problem(from, to int64, kind ProblemKind) {
	lines, verb := fmt.Sprintf("line %d", from), "was"
	if to > from {
		lines, verb = fmt.Sprintf("lines %d to %d", from, to), "were"
	}
	text := map[ProblemKind]string{
		Changed:  "differs from what was recorded",
		Removed:  verb + " removed",
		Inserted: "was never recorded, or was moved",
		CutOff:   verb + " removed from the end",
	}[kind]
	v.report.Problems = append(v.report.Problems, Problem{From: from, To: to, Kind: kind, Text: lines + " " + text})
}
