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

// Owner names an instance of a service: what an object belongs to.
type Owner struct {
	Application, Service string
	ID                   entities.InstanceID
}

// Key is the owner as keys hold it: "shop/web/prod/main".
func (o Owner) Key() string { return o.Application + "/" + o.Service + "/" + o.ID.Key() }

// String is the owner as people read it: "shop/web in prod".
func (o Owner) String() string { return o.Application + "/" + o.Service + " in " + o.ID.String() }

// Instance says which instance a call is about, and at which version.
type Instance struct {
	Owner
	ServiceID string
	// FullVersion is the version to apply, or, when observing, the one asked about. It is empty
	// when nothing was ever applied here.
	FullVersion string
	// Payload is rendered for FullVersion. Nil when nothing was ever applied here.
	Payload *entities.Payload
	// Key names this unit of work (the owner's key and the target): applies with one key are the same
	// apply, run again.
	Key string
	// Try names one attempt at an apply: the one that another worker begins anew, when the first was lost, has the same. Empty
	// where nobody counts them.
	Try string
	// Attempt is 1 for the first apply of a target, and for the first since a person retried it; those that follow by themselves
	// count on. 0 where nobody counts.
	Attempt int
	// Fence is the place of an apply or a removal among all of the instance. Nil when nothing is to be written.
	Fence *Fence
	// Installation is the id of the installation that asks; empty where nobody says.
	Installation string
	// Restarted is when a person last had it begin anew; zero: never. A runtime that writes that down where it runs keeps it
	// there. Restart: this apply is for that, and has what runs begin anew though it is at FullVersion.
	Restarted time.Time
	Restart   bool
	// Allow is what the runtime's owner allows its objects to be; nil: anything.
	Allow *entities.RuntimeAllow
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
	// apply of what is already there changes nothing, unless it is a Restart. An error wrapped by Permanent is not
	// retried; every other one is, but a *FencedError: something later stands there. One wrapped by Unready is no attempt, and
	// the progress deadline begins with the next one. Apply leaves no process of its own behind when ctx ends.
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
	TimedOut bool          `json:"timedOut,omitempty"` // it was given no more time: there is no exit code
	Place    string        `json:"place,omitempty"`    // where it ran, for people, unless that was the worker's machine
	Remark   string        `json:"remark,omitempty"`   // what is to be known of the output, a line
}

// Log is stderr as it is kept, with the remark.
func (o Output) Log() string { return o.Stderr + o.Remark }

// Logger is a runtime whose observations leave output worth keeping (C3: stderr is kept for debugging).
type Logger interface {
	// ObserveOutput is Observe that also returns what was printed, whether it failed or not.
	ObserveOutput(ctx context.Context, in Instance) ([]entities.Object, Output, error)
}

// permanentError marks a failure that no retry will mend.
type permanentError struct{ error }

func (p permanentError) Unwrap() error { return p.error }

// Permanent marks err as one that no retry will mend.
func Permanent(err error) error { return permanentError{err} }

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

// unreadyError marks a failure that is no attempt.
type unreadyError struct{ error }

func (u unreadyError) Unwrap() error { return u.error }

// Unready marks err as what held an apply up before anything of what runs began to change, and passes by itself.
func Unready(err error) error { return unreadyError{err} }

// IsUnready reports whether err was marked by Unready.
func IsUnready(err error) bool {
	var u unreadyError
	return errors.As(err, &u)
}

// Watcher is a runtime that learns of changes by itself, so that polling is only the safety net.
type Watcher interface {
	// Watch calls hint whenever something that Observe reports of an instance may have changed: soon,
	// from any goroutine, many times for one change, sometimes for none, and not for what was there
	// when the watch began. hint returns quickly. A lost hint costs time and never correctness: the
	// next observation finds out. Watch returns at once and goes on until stop is called; a nil stop says that this
	// one learns of nothing.
	Watch(hint func(Owner)) (stop func())
}

// Mirror is a Watcher that has a copy of what it watches, in memory: Observe asks nobody, and all that changes is hinted at as soon as the
// copy has it.
type Mirror interface {
	Watcher
	Mirrors()
}

// Planner is a runtime that can say what an apply would change.
type Planner interface {
	// Plan asks the runtime what Apply of the same instance would change, and changes nothing. Objects
	// that would stay as they are are left out. An error means that nothing is known.
	Plan(ctx context.Context, in Instance) ([]Change, error)
}

// RemovalPlanner is a Remover that can say what a removal would take down.
type RemovalPlanner interface {
	// PlanRemoval asks the runtime what Remove of the same instance would take down (ActionRemove), in that order, and what of the
	// instance would stay (ActionKeep, with the reason as Message), and changes nothing. An error means that nothing is known, or that
	// Remove would be refused.
	PlanRemoval(ctx context.Context, in Instance) ([]Change, error)
}

// Capturer is a runtime that can say what charts see of its cluster.
type Capturer interface {
	// Capabilities asks the cluster for its version and for all APIs that it serves: kinds by GROUP/VERSION. Where some of it
	// cannot be found out it is an error.
	Capabilities(ctx context.Context) (kubeVersion string, apis map[string][]string, err error)
}

// Change is what an apply would do to one object.
type Change struct {
	Action    Action        `json:"action"`
	Type      string        `json:"objectType"` // Deployment
	Name      string        `json:"name"`
	Namespace string        `json:"namespace,omitempty"`
	Fields    []FieldChange `json:"fields,omitempty"` // of an update, by path
	// Conflicts say why the object would be refused: who owns what.
	Conflicts []string `json:"conflicts,omitempty"`
	// Message is what the server said of it, when it would refuse the object for another reason.
	Message string `json:"message,omitempty"`
}

// Action is what would happen to an object.
type Action string

// The actions.
const (
	ActionCreate   Action = "create"
	ActionUpdate   Action = "update"
	ActionRecreate Action = "recreate" // deleted and made again
	ActionPrune    Action = "prune"    // no longer declared, removed
	ActionOrphan   Action = "orphan"   // no longer declared, left in place
	ActionRefuse   Action = "refuse"   // not applied: Conflicts or Message say why
	ActionRemove   Action = "remove"   // goes with its instance
	ActionKeep     Action = "keep"     // stays when its instance is removed: Message says why
)

// FieldChange is one field that an update would change. Old and New are JSON, empty when absent;
// values of Secrets are never shown.
type FieldChange struct {
	Path string `json:"path"` // spec.template.spec.containers[name=web].image
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// Remover is a runtime that can take an instance down (A24).
type Remover interface {
	// Remove takes away everything that Apply made for the instance, and nothing else, and returns when
	// it is gone. It is idempotent: what is gone already is no error. in holds the last target that was
	// applied; without a payload nothing was, and nothing is to be done. An error means that something
	// may still be there; one wrapped by Permanent is not retried. Remove returns when ctx ends.
	Remove(ctx context.Context, in Instance) error
}

// The codes of a reading that failed (entities.ReadingError). They are part of a reading's digest
// and of what `status` prints, so they never change; the message beside them may.
const (
	CodeFetchFailed     = "fetch-failed"      // the command, or the API call, failed
	CodeMalformed       = "malformed-output"  // it answered something that is not a document (C6)
	CodeTimeout         = "timeout"           // it did not answer in time
	CodeOutputTooLarge  = "output-too-large"  // its document is over the limit
	CodeCommandNotFound = "command-not-found" // there is no such program, or it cannot be executed

	CodeUnreachable  = "unreachable"  // nobody answers at the address, or not as the server that is meant
	CodeUnauthorized = "unauthorized" // the credentials are not accepted: expired, withdrawn, wrong
	CodeForbidden    = "forbidden"    // they are, and do not allow what was asked
	CodeUnknownKind  = "unknown-kind" // the server has no such kind of object
	CodeHealth       = "health-rule"  // an expression of the runtime, about how objects of a kind are, yields nothing
	CodeThrottled    = "throttled"    // the API lets no more requests through at present
)
