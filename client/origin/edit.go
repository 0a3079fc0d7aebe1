package origin

import (
	"context"
	"fmt"
)

// Editor is a source that can be written (D28).
type Editor interface {
	// Edit has one value be another, for everybody who reads the source. Where somebody else wrote meanwhile it is tried again, as
	// long as the value is what it was when it was read first.
	Edit(ctx context.Context, e Edit) (Edited, error)
}

// Edit is what is to be changed and by whom.
type Edit struct {
	Path, Value string  // as in package edit
	Was         *string // what it has to be before; nil: whatever it is
	Author      string  // of the commit
	Email       string
	Message     string
	// Check is asked about the edited configuration before anybody sees it.
	Check func(ctx context.Context, tree Tree) error
}

// Edited is what became of it.
type Edited struct {
	File   string `json:"file"` // by its path from the directory of the configuration
	Before string `json:"before"`
	After  string `json:"after"`
	Commit string `json:"commit,omitempty"` // empty: it was so already
}

// ChangedError says that a value is not what it had to be.
type ChangedError struct{ Path, Was, Is string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s is %q by now, and was to be %q", e.Path, e.Is, e.Was)
}
