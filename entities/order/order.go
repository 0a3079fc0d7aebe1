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
	"time"
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

// configured is the end of a full version that only a change of configuration made, "v7-i42", or with values of aspects:
// "v7-flags.x3f9a21c0".
var configured = regexp.MustCompile(`(-i[0-9]+)?(-[a-z][a-z0-9]*\.x[0-9a-f]{8})*$`)

// Named is the version that a person or CI named, of a full version.
func Named(full string) string { return configured.ReplaceAllString(full, "") }

// How two versions are ordered, in words.
type How string

// The ways to order versions. Two that fit none are not compared.
const (
	BySame     How = "the same"
	ByTime     How = "by time stamp"
	ByNumber   How = "by number"
	BySemantic How = "as semantic versions"
)

// semver is what reads as a semantic version, with any number of parts: v8, 1.2, 1.2.3-rc.1+build. numbered is a number behind a
// name that ends before it: v8, build-10, release-2.11; a name of hex digits may be a part of a commit.
var (
	semver   = regexp.MustCompile(`^[vV]?([0-9]+(?:\.[0-9]+)*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$`)
	numbered = regexp.MustCompile(`^([^0-9]*)([0-9]+)$`)
	named    = regexp.MustCompile(`^([^0-9]*[^0-9a-f][^0-9]*)([0-9]+(?:[._-][0-9]+)+)$`)
	hex      = regexp.MustCompile(`^[0-9a-f]+$`)
)

// stamps are the forms of dates and times; without a zone they are UTC.
var stamps = [...]string{
	"2006-1-2", "20060102", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02-15-04-05", "2006-01-02-15-04",
	"2006-01-02-150405", "2006-01-02-1504", "20060102T150405Z07:00", "20060102T150405", "20060102-150405", "20060102-1504", "20060102150405", "200601021504",
}

func stamp(v string) (time.Time, bool) {
	for _, form := range stamps {
		if t, err := time.Parse(form, v); err == nil && t.Year() >= 1970 {
			return t, true
		}
	}
	return time.Time{}, false
}

// Ordered tells whether a version is of a form that is ordered at all.
func Ordered(v string) bool {
	_, stamped := stamp(v)
	return stamped || numbered.MatchString(v) || named.MatchString(v) || semver.MatchString(v)
}

// CompareVersions orders two versions (D22): -1 when a is older than b, 0 when they are equal, 1 when a is newer, and how that is
// known. Two that are the same are equal, two time stamps go by time, two of one name with numbers behind it by those, two semantic
// versions as such. What is none of these together is not compared, rather than ordered by its text.
func CompareVersions(a, b string) (c int, how How, ok bool) {
	if a == b {
		return 0, BySame, true
	}
	s, sOK := stamp(a)
	t, tOK := stamp(b)
	dashed := sOK && !hex.MatchString(a) || tOK && !hex.MatchString(b)
	switch {
	case sOK && tOK:
		return s.Compare(t), ByTime, true
	case dashed: // one alone
		return 0, "", false
	}
	if c, ok := byNumber(a, b); ok {
		return c, ByNumber, true
	}
	x, y := semver.FindStringSubmatch(a), semver.FindStringSubmatch(b)
	if x == nil || y == nil {
		return 0, "", false
	}
	return semantic(x, y), BySemantic, true
}

// byNumber orders two versions of one name by the numbers behind it. Several numbers behind a v, or behind nothing, are parts of a
// semantic version.
func byNumber(a, b string) (c int, ok bool) {
	for _, form := range []*regexp.Regexp{numbered, named} {
		x, y := form.FindStringSubmatch(a), form.FindStringSubmatch(b)
		if x == nil || y == nil || !strings.EqualFold(x[1], y[1]) || hex.MatchString(x[1]) || form == named && strings.EqualFold(x[1], "v") {
			continue
		}
		return natural(x[2], y[2]), true
	}
	return 0, false
}

// semantic orders two versions by their parts.
func semantic(x, y []string) int {
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
