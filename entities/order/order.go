// Package order decides the order in which two services of an application may change: by capacity, by version, and by open releases
// (D20–D22). Each rule is a function of plain values. The rules never block both of two services, unless both are declared to go first in
// the same direction and both change in the other direction.
//
// It imports only the standard library.
package order

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Direction is the direction of a capacity change.
type Direction string

// The directions.
const (
	Same      Direction = ""
	Growing   Direction = "growing"
	Shrinking Direction = "shrinking"
)

// Change is the current and the next capacity. A capacity that does not exist yet is 0.
type Change struct{ Before, After float64 }

// Direction returns the direction of the change.
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
	return fmt.Sprintf("changes from %g to %g", c.Before, c.After)
}

// FirstWhen parses the declaration of a dependency: in which direction its service goes before the other. The default is shrinking: a
// service that the other one serves grows after it, and shrinks before it.
func FirstWhen(declared string) (Direction, error) {
	switch Direction(declared) {
	case Growing:
		return Growing, nil
	case Shrinking, Same:
		return Shrinking, nil
	}
	return Same, fmt.Errorf("first is %q; expected %s or %s", declared, Growing, Shrinking)
}

// Delays reports whether a service must wait for the change of another (D20, D21): both change in the same direction, and the service does
// not go first in it. If the directions differ, neither needs the other's change in order to work afterwards.
func Delays(mine Change, first Direction, others Change) bool {
	direction := mine.Direction()
	return direction != Same && direction == others.Direction() && direction != first
}

// OpenRelease is a release of another service that is not finished.
type OpenRelease struct {
	Version     string
	Incarnation int64
}

// Ahead returns the first open release that goes before a release of the given incarnation, in static order: a release of the same or an
// earlier incarnation (D22).
func Ahead(incarnation int64, open []OpenRelease) (OpenRelease, bool) {
	for _, o := range open {
		if o.Incarnation <= incarnation {
			return o, true
		}
	}
	return OpenRelease{}, false
}

// configSuffix matches the end of a full version that a change of configuration added, "v7-i42", or values of aspects:
// "v7-flags.x3f9a21c0".
var configSuffix = regexp.MustCompile(`(-i[0-9]+)?(-[a-z][a-z0-9]*\.x[0-9a-f]{8})*$`)

// BaseVersion returns the version that a user or CI named, from a full version.
func BaseVersion(full string) string { return configSuffix.ReplaceAllString(full, "") }

// How describes how two versions are ordered.
type How string

// The ways to order versions. Two versions that fit none are not compared.
const (
	BySame     How = "the same"
	ByTime     How = "by time stamp"
	ByNumber   How = "by number"
	BySemantic How = "as semantic versions"
)

// semver matches a semantic version with any number of parts: v8, 1.2, 1.2.3-rc.1+build. numbered matches a name followed by a number: v8,
// build-10, release-2.11. A name of hex digits does not count, because it may be part of a commit.
var (
	semver     = regexp.MustCompile(`^[vV]?([0-9]+(?:\.[0-9]+)*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?$`)
	numbered   = regexp.MustCompile(`^([^0-9]*)([0-9]+)$`)
	namedParts = regexp.MustCompile(`^([^0-9]*[^0-9a-f][^0-9]*)([0-9]+(?:[._-][0-9]+)+)$`)
	hex        = regexp.MustCompile(`^[0-9a-f]+$`)
)

// timeFormats are the formats of dates and times. Without a zone they are UTC.
var timeFormats = [...]string{
	"2006-1-2", "20060102", "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02-15-04-05", "2006-01-02-15-04",
	"2006-01-02-150405", "2006-01-02-1504", "20060102T150405Z07:00", "20060102T150405", "20060102-150405", "20060102-1504", "20060102150405", "200601021504",
}

func parseTime(v string) (time.Time, bool) {
	for _, form := range timeFormats {
		if t, err := time.Parse(form, v); err == nil && t.Year() >= 1970 {
			return t, true
		}
	}
	return time.Time{}, false
}

// Orderable reports whether a version has a format that can be ordered at all.
func Orderable(v string) bool {
	_, isTime := parseTime(v)
	return isTime || numbered.MatchString(v) || namedParts.MatchString(v) || semver.MatchString(v)
}

// CompareVersions orders two versions (D22): -1 if a is older than b, 0 if they are equal, 1 if a is newer, and how that is known. The same
// text is equal. Two time stamps are ordered by time, two versions with the same name by their numbers, two semantic versions by their
// parts. Other pairs are not compared, rather than ordered by their text.
func CompareVersions(a, b string) (c int, how How, ok bool) {
	if a == b {
		return 0, BySame, true
	}
	s, sOK := parseTime(a)
	t, tOK := parseTime(b)
	dashed := sOK && !hex.MatchString(a) || tOK && !hex.MatchString(b)
	switch {
	case sOK && tOK:
		return s.Compare(t), ByTime, true
	case dashed: // only one of them
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

// byNumber orders two versions with the same name by their numbers. Several numbers after "v", or without a name, are a semantic version.
func byNumber(a, b string) (c int, ok bool) {
	for _, form := range []*regexp.Regexp{numbered, namedParts} {
		x, y := form.FindStringSubmatch(a), form.FindStringSubmatch(b)
		if x == nil || y == nil || !strings.EqualFold(x[1], y[1]) || hex.MatchString(x[1]) || form == namedParts && strings.EqualFold(x[1], "v") {
			continue
		}
		return compareNatural(x[2], y[2]), true
	}
	return 0, false
}

// semantic orders two versions by their parts.
func semantic(x, y []string) int {
	if c := compareParts(strings.Split(x[1], "."), strings.Split(y[1], "."), "0"); c != 0 {
		return c
	}
	switch {
	case x[2] == y[2]:
		return 0
	case x[2] == "": // a release is newer than its pre-releases
		return 1
	case y[2] == "":
		return -1
	}
	return compareParts(strings.Split(x[2], "."), strings.Split(y[2], "."), "")
}

// compareParts compares part by part. A missing part counts as the filler.
func compareParts(a, b []string, filler string) int {
	at := func(list []string, i int) string {
		if i < len(list) {
			return list[i]
		}
		return filler
	}
	for i := range max(len(a), len(b)) {
		if c := compareNatural(at(a, i), at(b, i)); c != 0 {
			return c
		}
	}
	return 0
}

// compareNatural compares text piece by piece. A piece of digits is a number.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		x, y := nextPiece(a), nextPiece(b)
		a, b = a[len(x):], b[len(y):]
		c := cmp.Compare(x, y)
		if isDigit(x[0]) && isDigit(y[0]) {
			c = compareDigits(x, y)
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b)) // one is empty: the longer one is newer
}

func nextPiece(s string) string {
	n := 1
	for n < len(s) && isDigit(s[n]) == isDigit(s[0]) {
		n++
	}
	return s[:n]
}

// compareDigits compares digits of any length.
func compareDigits(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if c := cmp.Compare(len(a), len(b)); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
