package strict

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is what is wrong, without a position: a code to match on, a sentence, what would have been
// right, and the near name that was probably meant.
type Fault struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Expected   string `json:"expected,omitempty"`
	Suggestion string `json:"suggestion,omitempty"`
}

// Unknown is the Fault of a name that is none of some.
func Unknown(code, message, given string, names []string) Fault {
	return Fault{Code: code, Message: message, Expected: OneOf(names), Suggestion: Nearest(given, names)}
}

// Error reads `no release channel "x"; expected one of a, b; did you mean "a"? [unknown-channel]`.
func (f *Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Message)
	if f.Expected != "" {
		b.WriteString("; expected " + f.Expected)
	}
	if f.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", f.Suggestion)
	}
	return b.String() + " [" + f.Code + "]"
}

// Problem is a Fault at a position: File is relative to the directory that was loaded, Line and
// Column count from one, Path leads from the top of the document to the value.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Path   string `json:"path,omitempty"`
	Fault
}

// String is the line a person reads.
func (p Problem) String() string {
	position := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Path != "" {
		position += p.Path + ": "
	}
	return position + p.Fault.Error()
}

// Problems is everything wrong with a configuration. It is an error when it is not empty.
type Problems []Problem

// Error prints one problem per line, in order of position.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Sorted returns the problems in order of position, each once. What an alias brings to several paths
// is reported for the first of them.
func (ps Problems) Sorted() Problems {
	sorted := slices.Clone(ps)
	slices.SortStableFunc(sorted, compare)
	return slices.CompactFunc(sorted, func(a, b Problem) bool {
		b.Path = a.Path
		return a == b
	})
}

func compare(a, b Problem) int {
	if c := strings.Compare(a.File, b.File); c != 0 {
		return c
	}
	if c := a.Line - b.Line; c != 0 {
		return c
	}
	if c := a.Column - b.Column; c != 0 {
		return c
	}
	if c := strings.Compare(a.Code+a.Message+a.Expected+a.Suggestion, b.Code+b.Message+b.Expected+b.Suggestion); c != 0 {
		return c
	}
	if c := len(a.Path) - len(b.Path); c != 0 {
		return c // items 9 and 10
	}
	return strings.Compare(a.Path, b.Path)
}
