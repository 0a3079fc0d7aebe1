// Package runtimes holds the small interface between Converge and where things run, and under it
// one folder per kind of runtime. A runtime reports objects in one common form and applies a
// rendered payload; it decides nothing, and knows nothing of workflows.
//
// It may import entities and nothing else of ours. Every runtime passes runtimes/runtimetest.
package runtimes

import (
	"context"
	"errors"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Instance says which service in which channel a call is about, and at which version.
type Instance struct {
	Application, Service, ServiceID, Channel string
	// FullVersion is the version to apply, or, when observing, the one asked about. It is empty
	// when nothing was ever applied here.
	FullVersion string
	// Payload is rendered for FullVersion. Nil when nothing was ever applied here.
	Payload *entities.Payload
	// Key names this unit of work ("service/channel/target"): applies with one key are the same
	// apply, run again.
	Key string
}

// Runtime is a connection to where things run. Implementations are safe for concurrent use.
type Runtime interface {
	// Observe reports what is there now, without changing anything. Something absent is an
	// object without versions, or no object at all; it is not an error. An error means that
	// nothing is known: *entities.ReadingError carries the code that `status` shows (any other
	// error counts as "fetch-failed"). Observe returns when ctx ends.
	Observe(ctx context.Context, in Instance) ([]entities.Object, error)

	// Apply moves the instance to in.FullVersion and in.Payload. It may return before the
	// objects are stable. It is idempotent: after a crash the same Key is applied again, and an
	// apply of what is already there changes nothing. An error wrapped by Permanent is not
	// retried; every other one is. Apply leaves no process of its own behind when ctx ends.
	Apply(ctx context.Context, in Instance) (Output, error)
}

// Output is what a command printed, bounded and with secrets redacted, for `converge logs`.
type Output struct {
	Command  string        `json:"command,omitempty"`
	ExitCode int           `json:"exitCode"`
	Stdout   string        `json:"stdout,omitempty"`
	Stderr   string        `json:"stderr,omitempty"`
	Started  time.Time     `json:"started,omitzero"`
	Duration time.Duration `json:"duration,omitempty"`
}

// Logger is a runtime whose looks leave output worth keeping (C3: stderr is kept for debugging).
type Logger interface {
	// ObserveOutput is Observe that also returns what was printed, whether it failed or not.
	ObserveOutput(ctx context.Context, in Instance) ([]entities.Object, Output, error)
}

// permanentError marks a failure that no retry will mend.
type permanentError struct{ error }

func (p permanentError) Unwrap() error { return p.error }

// Permanent marks err as one that no retry will mend.
func Permanent(err error) error { return permanentError{err} }

// IsPermanent tells whether err was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}
