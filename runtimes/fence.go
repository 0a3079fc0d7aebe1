package runtimes

import "fmt"

// Fence identifies the target of a write among all targets of an instance, so that a runtime refuses a write that is older than the
// last one, from any sender (F2). This covers writes from another store, whose claims are unknown to ours.
type Fence struct {
	Installation string `json:"installation"` // the installation whose sequence it is
	Epoch        int64  `json:"epoch"`        // of the installation: raised when it is moved
	Sequence     int64  `json:"sequence"`     // of the target, from 1; a repeated apply keeps it
	Target       string `json:"target,omitempty"`
	FullVersion  string `json:"fullVersion,omitempty"` // for people; both are empty when the instance is removed
}

// Rejects reports whether the recorded fence refuses the next one: it is later, or the same position belongs to another target. Fences
// of different installations have no order.
func (f Fence) Rejects(next Fence) bool {
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

// FencedError says that a write was refused because of a later fence. It is no failure of the refused version, and a retry does not
// help.
type FencedError struct {
	By, Refused Fence
}

// Error names the recorded fence, and why it has precedence.
func (e *FencedError) Error() string {
	recorded := e.By.FullVersion
	if recorded == "" {
		recorded = "its removal"
	}
	switch {
	case e.By.Epoch != e.Refused.Epoch:
		return fmt.Sprintf("refused: %s is newer, from the moved installation (epoch %d; here it is %d)", recorded, e.By.Epoch, e.Refused.Epoch)
	case e.By.Sequence != e.Refused.Sequence:
		return fmt.Sprintf("refused: %s is newer (%d), from a run that is unknown here (%d)", recorded, e.By.Sequence, e.Refused.Sequence)
	}
	return fmt.Sprintf("refused: %s has the same sequence (%d), from a run that is unknown here", recorded, e.By.Sequence)
}
