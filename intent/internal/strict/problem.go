package strict

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities/spelling"
)

// Fault is a problem without a position: a code to match on, a message, the expected value, and the name that was probably intended.
type Fault struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Expected   string `json:"expected,omitempty"`
	Suggestion string `json:"suggestion,omitempty"`
}

// FaultUnless returns the Fault of an invalid text, which replaces %q in the message; nil if it is valid.
func FaultUnless(right bool, code, message, text, expected string) *Fault {
	if right {
		return nil
	}
	return &Fault{Code: code, Message: fmt.Sprintf(message, Clip(text)), Expected: expected}
}

// Unknown returns the Fault of a name that is not in names.
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

// Problem is a Fault with a position. File is relative to the loaded directory, Line and Column count from one, Path leads from the top
// of the document to the value.
type Problem struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Path   string `json:"path,omitempty"`
	Fault
}

// String formats the problem as a line.
func (p Problem) String() string {
	position := fmt.Sprintf("%s:%d:%d: ", p.File, p.Line, p.Column)
	if p.Path != "" {
		position += p.Path + ": "
	}
	return position + p.Fault.Error()
}

// Problems are all problems of a configuration. It is an error if it is not empty.
type Problems []Problem

// Error prints one problem per line, ordered by position.
func (ps Problems) Error() string {
	return strings.Join(Map(ps, Problem.String), "\n")
}

// Sorted returns the problems ordered by position, without duplicates. A problem that an alias repeats at several paths is reported for
// the first path.
func (ps Problems) Sorted() Problems {
	sorted := slices.Clone(ps)
	slices.SortStableFunc(sorted, compare)
	return slices.CompactFunc(sorted, func(a, b Problem) bool {
		b.Path = a.Path
		return a == b
	})
}

func compare(a, b Problem) int {
	return cmp.Or(
		strings.Compare(a.File, b.File), a.Line-b.Line, a.Column-b.Column,
		strings.Compare(a.Code+a.Message+a.Expected+a.Suggestion, b.Code+b.Message+b.Expected+b.Suggestion),
		len(a.Path)-len(b.Path), // item 9 before item 10
		strings.Compare(a.Path, b.Path),
	)
}

// Nearest returns the name that was probably intended, or "". At most a third of the letters may differ. Of equally near names it
// returns the first. Otherwise it returns a name with a common prefix ("integer" for "int").
func Nearest(given string, names []string) string {
	const tooLong = 100 // the time of Distance is quadratic in the length, and no name is that long
	if len(given) > tooLong {
		return ""
	}
	best, bestDistance := "", max(1, len(given)/3)+1
	for _, name := range slices.Sorted(slices.Values(names)) {
		if len(name) > tooLong {
			continue
		}
		if d := spelling.Distance(strings.ToLower(given), strings.ToLower(name)); d < bestDistance && d < len(name) {
			best, bestDistance = name, d
		}
	}
	for _, name := range names {
		const maxDistance = 3 // letters
		if best == "" && min(len(name), len(given)) >= maxDistance && (strings.HasPrefix(name, given) || strings.HasPrefix(given, name)) {
			best = name
		}
	}
	return best
}

// OneOf formats a list of names for Expected.
func OneOf(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return "one of " + strings.Join(names, ", ")
}

// Clip shortens a message without splitting a character.
func Clip(text string) string {
	if len(text) > 60 {
		return strings.ToValidUTF8(text[:60], "") + "…"
	}
	return text
}

// Map applies a function to each item.
func Map[T, U any](all []T, of func(T) U) []U {
	var result []U
	for _, item := range all {
		result = append(result, of(item))
	}
	return result
}

// Keys returns a map's sorted keys.
func Keys[K ~string, V any](m map[K]V) []string {
	return Map(slices.Sorted(maps.Keys(m)), func(k K) string { return string(k) })
}

// Reason removes the operation and the path from an error.
func Reason(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// OneLine joins the lines of a text.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
