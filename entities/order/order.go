// Package order judges the order in which two services of an application may change: by capacity, by
// version, and by what is still open (D20–D22). Each rule is a function of plain values. The rules
// never hold up both of two services, unless both were declared to go first the same way and both move the
// other way.
//
// It imports the standard library alone.
package order

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// Direction is the way a capacity goes.
type Direction string

// The directions.
const (
	Same      Direction = ""
	Growing   Direction = "growing"
	Shrinking Direction = "shrinking"
)

// Change is what of a capacity is there and what is to be there next. Nothing there yet is 0.
type Change struct{ Before, After float64 }

// Direction of the change.
func (c Change) Direction() Direction {
	switch {
	case c.After > c.Before:
		return Growing
	case c.After < c.Before:
		return Shrinking
	}
	return Same
}

func (c Change) String() string {
	if c.Direction() == Same {
		return fmt.Sprintf("stays at %g", c.Before)
	}
	return fmt.Sprintf("goes from %g to %g", c.Before, c.After)
}

// FirstWhen reads what a dependency declares: when its service goes before the other. Nothing
// declared means shrinking: a service that is served by the other grows after it, and shrinks before.
func FirstWhen(declared string) (Direction, error) {
	switch Direction(declared) {
	case Growing:
		return Growing, nil
	case Shrinking, Same:
		return Shrinking, nil
	}
	return Same, fmt.Errorf("first is %q; expected %s or %s", declared, Growing, Shrinking)
}

// Delays tells whether a service must wait for another with its own change (D20, D21): both move the
// same way, and the service is not the one that goes first that way. When the two move in different
// ways, neither needs the other's change in order to work afterwards.
func Delays(mine Change, first Direction, others Change) bool {
	way := mine.Direction()
	return way != Same && way == others.Direction() && way != first
}

// Open is a release of another service that is neither in nor out.
type Open struct {
	Version     string
	Incarnation int64
}

// Ahead is the first of the open releases that goes before one of the incarnation given, in static
// order: those of the same incarnation or an earlier one (D22).
func Ahead(incarnation int64, open []Open) (Open, bool) {
	for _, o := range open {
		if o.Incarnation <= incarnation {
			return o, true
		}
	}
	return Open{}, false
}

// configured is the end of a full version that only a change of configuration made: "v7-i42".
var configured = regexp.MustCompile(`-i[0-9]+$`)

// Named is the version that a person or CI named, of a full version.
func Named(full string) string { return configured.ReplaceAllString(full, "") }

// semver is what reads as a semantic version, with any number of parts: v8, 1.2, 1.2.3-rc.1+build.
var semver = regexp.MustCompile(`^[vV]?([0-9]+(?:\.[0-9]+)*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$`)

// CompareVersions orders two versions (D22): -1 when a is older than b, 0 when they are equal, 1 when
// a is newer. Two that read as semantic versions are compared as such; all others by their text, in
// which a run of digits counts as a number: build-9 is older than build-10.
func CompareVersions(a, b string) int {
	x, y := semver.FindStringSubmatch(a), semver.FindStringSubmatch(b)
	if x == nil || y == nil {
		return natural(a, b)
	}
	if c := lists(strings.Split(x[1], "."), strings.Split(y[1], "."), "0"); c != 0 {
		return c
	}
	switch {
	case x[2] == y[2]:
		return 0
	case x[2] == "": // a release is newer than what came before it
		return 1
	case y[2] == "":
		return -1
	}
	return lists(strings.Split(x[2], "."), strings.Split(y[2], "."), "")
}

// lists compares part by part; what is missing counts as the filler.
func lists(a, b []string, filler string) int {
	at := func(list []string, i int) string {
		if i < len(list) {
			return list[i]
		}
		return filler
	}
	for i := range max(len(a), len(b)) {
		if c := natural(at(a, i), at(b, i)); c != 0 {
			return c
		}
	}
	return 0
}

// natural compares text piece by piece; a piece of digits is a number.
func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := piece(a), piece(b)
		a, b = a[len(x):], b[len(y):]
		c := cmp.Compare(x, y)
		if digit(x[0]) && digit(y[0]) {
			c = numbers(x, y)
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b)) // one of them is empty: the longer one is newer
}

func piece(s string) string {
	n := 1
	for n < len(s) && digit(s[n]) == digit(s[0]) {
		n++
	}
	return s[:n]
}

// numbers compares digits of any length.
func numbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if c := cmp.Compare(len(a), len(b)); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
