package runtimes

import "fmt"

// Fence says which target of an instance a write is for, among all that there ever were, so that a runtime refuses what comes
// after something later whoever sends it (F2): also from another store, where the claims in ours are not known.
type Fence struct {
	Installation string `json:"installation"` // whose count it is
	Epoch        int64  `json:"epoch"`        // of the installation: raised when it is moved
	Sequence     int64  `json:"sequence"`     // of the target, from 1; an apply that is repeated keeps it
	Target       string `json:"target,omitempty"`
	FullVersion  string `json:"fullVersion,omitempty"` // for people; both are empty where the instance is taken down
}

// Stops reports whether what stands refuses what comes: it is later, or the same place was given to another target. What
// another installation counted says nothing about order.
func (f Fence) Stops(next Fence) bool {
	switch {
	case f.Installation != next.Installation:
		return false
	case f.Epoch != next.Epoch:
		return f.Epoch > next.Epoch
	case f.Sequence != next.Sequence:
		return f.Sequence > next.Sequence
	}
	return f.Target != next.Target
}

// FencedError says that a write was refused, since something later stands there. It is no failure of what was to be written,
// and no retry of the same mends it.
type FencedError struct {
	By, Refused Fence
}

// Error says what stands there, and why it counts for more.
func (e *FencedError) Error() string {
	what := e.By.FullVersion
	if what == "" {
		what = "its removal"
	}
	switch {
	case e.By.Epoch != e.Refused.Epoch:
		return fmt.Sprintf("refused, since %s came later, from where the installation was moved to (epoch %d, here it is %d)", what, e.By.Epoch, e.Refused.Epoch)
	case e.By.Sequence != e.Refused.Sequence:
		return fmt.Sprintf("refused, since %s came later (%d), from a run that is not known here (%d)", what, e.By.Sequence, e.Refused.Sequence)
	}
	return fmt.Sprintf("refused, since %s came in the same place (%d), from a run that is not known here", what, e.By.Sequence)
}
