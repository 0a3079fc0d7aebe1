package origin

import (
	"context"
	"fmt"
)

// Editor is a source that can be edited (D28).
type Editor interface {
	// Edit changes one value for all readers of the source. After a concurrent change it is retried, as long as the value is still the one
	// that was read first.
	Edit(ctx context.Context, e Edit) (Edited, error)
}

// Edit is a change and its author.
type Edit struct {
	Path, Value string  // as in package edit
	Expected    *string // the expected value before the edit; nil: any
	Author      string  // of the commit
	Email       string
	Message     string
	// Check validates the edited configuration before it is published.
	Check func(ctx context.Context, tree Tree) error
}

// Edited is the result of an edit.
type Edited struct {
	File   string `json:"file"` // relative to the directory of the configuration
	Before string `json:"before"`
	After  string `json:"after"`
	Commit string `json:"commit,omitempty"` // empty: the value was set already
}

// ChangedError means that a value is not the expected one.
type ChangedError struct{ Path, Expected, Actual string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s is %q; expected %q", e.Path, e.Actual, e.Expected)
}
