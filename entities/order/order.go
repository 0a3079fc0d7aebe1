// Package order judges the order in which two services of an application may change: by capacity, by
// version, and by what is still open (D20–D22). Each rule is a function of plain values. The rules
// never hold up both of two services, unless both were declared to go first the same way and both move the
// other way.
//
// It imports the standard library alone.
package order

import "fmt"

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
