// Package runtimes holds the small interface between Converge and the platforms on which instances run, and below it one folder per
// kind of runtime. A runtime reports objects in one common form and applies a rendered payload. It makes no decisions, and knows
// nothing of workflows.
//
// It may import entities and no other package of Converge. Every runtime passes tests/runtimetest.
package runtimes

import (
	"context"
	"errors"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Owner names an instance of a service, as the owner of objects.
type Owner struct {
	Application, Service string
	ID                   entities.InstanceID
}

// Key is the owner in the form of keys: "shop/web/prod/main".
func (o Owner) Key() string { return o.Application + "/" + o.Service + "/" + o.ID.Key() }

// String is the owner in a form for people: "shop/web in prod".
func (o Owner) String() string { return o.Application + "/" + o.Service + " in " + o.ID.String() }

// Request is the instance of a call, with a version.
type Request struct {
	Owner
	ServiceID string
	// FullVersion is the version to apply, or to observe. It is empty before the first apply.
	FullVersion string
	// Payload is rendered for FullVersion. It is nil before the first apply.
	Payload *entities.Payload
	// Key identifies this unit of work (the owner's key and the target): applies with the same key are repetitions of one apply.
	Key string
	// AttemptID identifies one attempt at an apply. When a worker is lost, the next worker repeats the attempt with the same AttemptID.
	// It is empty if attempts are not counted.
	AttemptID string
	// Attempt is 1 for the first apply of a target, and for the first one after a person retried it. Automatic retries increase it.
	// It is 0 if attempts are not counted.
	Attempt int
	// LastAttempt: the release fails if the context ends the apply at its deadline. Otherwise another attempt continues.
	LastAttempt bool
	// Fence is the position of an apply or a removal among all of the instance. It is nil if the call writes nothing.
	Fence *Fence
	// Installation is the id of the calling installation; empty if it is unknown.
	Installation string
	// Restarted is when a person last restarted the instance; zero: never. A runtime that records this on the platform keeps the
	// record. Restart: this apply is for a restart, and restarts the instance even if it is at FullVersion.
	Restarted time.Time
	Restart   bool
	// ReportOnly: nothing may be applied there, so an observation recognises by its content what another tool deployed.
	ReportOnly bool
	// Allow is the restriction of objects by the runtime's owner; nil: none.
	Allow *entities.RuntimeAllow
	// Siblings reads the other services of the application in this place, as the newest incarnation declares them. It is read only when
	// an object may move between services. Nil: they are not known.
	Siblings func(ctx context.Context) (Siblings, error)
}

// Siblings are the other services of an application that have an instance of the same name in the same channel and runtime.
type Siblings struct {
	// Payloads have the objects without values that only a release provides: those are still placeholders.
	Payloads []entities.Payload
	// Names are the current names of renamed services of the application, by their first names.
	Names map[string]string
}

// Runtime is a connection to a platform. Implementations are safe for concurrent use.
type Runtime interface {
	// Observe reports the current state, without changing it. An absent object is an object without versions, or no object at all;
	// it is not an error. An error means that the state is unknown: *entities.ReadingError carries the code that `status` shows (any
	// other error counts as "fetch-failed"). Observe returns when ctx ends.
	Observe(ctx context.Context, in Request) ([]entities.Object, error)

	// Apply changes the instance to in.FullVersion and in.Payload. It may return before the objects are stable. It is idempotent:
	// after a crash the same Key is applied again, and an apply of the current state changes nothing, unless it is a Restart. An
	// error wrapped by Permanent is not retried. Neither is a *FencedError: a later target was written. All other errors are
	// retried. An error wrapped by Unready is no attempt, and the progress deadline begins with the next one: nothing was changed yet,
	// or the platform stopped answering. When ctx ends, Apply leaves no process of its own running.
	Apply(ctx context.Context, in Request) (Output, error)
}

// Output is the output of a command, limited and with secrets redacted, for `converge logs`.
type Output struct {
	Command  string        `json:"command,omitempty"`
	ExitCode int           `json:"exitCode"`
	Stdout   string        `json:"stdout,omitempty"`
	Stderr   string        `json:"stderr,omitempty"`
	Started  time.Time     `json:"started,omitzero"`
	Duration time.Duration `json:"duration,omitempty"`
	TimedOut bool          `json:"timedOut,omitempty"` // it was ended at its timeout: there is no exit code
	Location string        `json:"place,omitempty"`    // where it ran, for people, unless that was the worker's machine
	Remark   string        `json:"remark,omitempty"`   // a note about the output, one line
}

// Log is the kept stderr with the remark.
func (o Output) Log() string { return o.Stderr + o.Remark }

// Logger is a runtime whose observations have output worth keeping (C3: stderr is kept for debugging).
type Logger interface {
	// ObserveOutput is Observe that also returns the output, also with an error.
	ObserveOutput(ctx context.Context, in Request) ([]entities.Object, Output, error)
}

// permanentError marks a failure for which a retry does not help.
type permanentError struct{ error }

func (p permanentError) Unwrap() error { return p.error }

// Permanent marks err as one for which a retry does not help.
func Permanent(err error) error { return permanentError{err} }

// IsPermanent reports whether err was marked by Permanent.
func IsPermanent(err error) bool {
	var p permanentError
	return errors.As(err, &p)
}

// unreadyError marks a failure that is no attempt: it says nothing about what is applied.
type unreadyError struct{ error }

func (u unreadyError) Unwrap() error { return u.error }

// Unready marks err as a temporary obstacle that stopped an apply before it changed anything, or as the end of the platform's answers.
func Unready(err error) error { return unreadyError{err} }

// IsUnready reports whether err was marked by Unready.
func IsUnready(err error) bool {
	var u unreadyError
	return errors.As(err, &u)
}

// Watcher is a runtime that detects changes without polling, so that polling is only the safety net.
type Watcher interface {
	// Watch calls hint whenever the observed state of an instance may have changed: soon, from any goroutine, many times for one
	// change, sometimes without a change, and not for the initial state of the watch. hint returns quickly. A lost hint costs time
	// and never correctness: the next observation finds the change. Watch returns at once and continues until stop is called; a nil
	// stop means that this runtime detects no changes.
	Watch(hint func(Owner)) (stop func())
}

// Mirror is a Watcher with a copy of the watched objects in memory: Observe makes no requests, and the copy sends a hint for every
// change as soon as it has it.
type Mirror interface {
	Watcher
	Mirrors()
}

// Planner is a runtime that can compute the changes of an apply.
type Planner interface {
	// Plan computes the changes that Apply of the same instance would make, and changes nothing. It omits unchanged objects. An
	// error means that the changes are unknown.
	Plan(ctx context.Context, in Request) ([]Change, error)
}

// RemovalPlanner is a Remover that can compute the effects of a removal.
type RemovalPlanner interface {
	// PlanRemoval lists the objects that Remove of the same instance would delete (ActionRemove), in that order, and the objects of
	// the instance that would stay (ActionKeep, with the reason as Message). It changes nothing. An error means that the effects are
	// unknown, or that Remove would be refused.
	PlanRemoval(ctx context.Context, in Request) ([]Change, error)
}

// Returner is a runtime that can give up what it wrote on objects besides their declared fields.
type Returner interface {
	// Return gives up the ownership of the instance's objects: marks, records, and claims on fields. It changes nothing that runs, and is
	// safe to repeat. It returns what it did, a line each.
	Return(ctx context.Context, in Request) ([]string, error)
}

// Capturer is a runtime that can report the capabilities that charts see of its cluster.
type Capturer interface {
	// Capabilities reads the version of the cluster and all APIs that it serves: kinds by GROUP/VERSION. It is an error if a part of
	// them cannot be read.
	Capabilities(ctx context.Context) (kubeVersion string, apis map[string][]string, err error)
}

// Change is the effect of an apply on one object.
type Change struct {
	Action    Action        `json:"action"`
	Type      string        `json:"objectType"` // Deployment
	Name      string        `json:"name"`
	Namespace string        `json:"namespace,omitempty"`
	Fields    []FieldChange `json:"fields,omitempty"` // of an update, by path
	// Conflicts say why the object would be refused: which fields have which owner.
	Conflicts []string `json:"conflicts,omitempty"`
	// Message is the server's message if it would refuse the object for another reason.
	Message string `json:"message,omitempty"`
	// Replaces says that the change replaces what runs for the object; nil: it does not.
	Replaces *Replacement `json:"replaces,omitempty"`
}

// Replacement is the replacement of the pods or tasks of an object, and its reason.
type Replacement struct {
	What string `json:"what"` // pods, tasks
	Why  string `json:"why"`  // spec.template.spec.containers[name=web].image changes
}

// String is "its pods are replaced: REASON".
func (r *Replacement) String() string { return "its " + r.What + " are replaced: " + r.Why }

// Action is the kind of a change.
type Action string

// The actions.
const (
	ActionCreate   Action = "create"
	ActionUpdate   Action = "update"
	ActionRecreate Action = "recreate" // deleted and created again
	ActionPrune    Action = "prune"    // no longer declared, removed
	ActionOrphan   Action = "orphan"   // no longer declared, left in place
	ActionRefuse   Action = "refuse"   // not applied: Conflicts or Message say why
	ActionRemove   Action = "remove"   // removed with its instance
	ActionKeep     Action = "keep"     // stays when its instance is removed: Message says why
)

// FieldChange is one field that an update would change. Old and New are JSON, empty if absent; values of Secrets are never shown.
type FieldChange struct {
	Path string `json:"path"` // spec.template.spec.containers[name=web].image
	Old  string `json:"old,omitempty"`
	New  string `json:"new,omitempty"`
}

// Remover is a runtime that can remove an instance (A24).
type Remover interface {
	// Remove removes all objects that Apply created for the instance, and no others, and returns when they are gone. It is
	// idempotent: missing objects are no error. in holds the last applied target. Without a payload there was no apply, and there is
	// nothing to do. An error means that objects may still exist; one wrapped by Permanent is not retried. Remove returns when ctx
	// ends.
	Remove(ctx context.Context, in Request) error
}

// The codes of a failed reading (entities.ReadingError). They are part of a reading's digest and of the output of `status`, so they
// never change; the message next to them may.
const (
	CodeFetchFailed     = "fetch-failed"      // the command, or the API call, failed
	CodeMalformed       = "malformed-output"  // the answer is not a document (C6)
	CodeTimeout         = "timeout"           // there was no answer in time
	CodeOutputTooLarge  = "output-too-large"  // the document exceeds the limit
	CodeCommandNotFound = "command-not-found" // there is no such program, or it cannot be executed

	CodeUnreachable  = "unreachable"  // there is no answer at the address, or none of the intended server
	CodeUnauthorized = "unauthorized" // the credentials are not accepted: expired, revoked, wrong
	CodeForbidden    = "forbidden"    // the credentials do not allow the request
	CodeUnknownKind  = "unknown-kind" // the server does not have this kind of object
	CodeHealth       = "health-rule"  // a health expression of the runtime has no result for an object
	CodeThrottled    = "throttled"    // the API admits no more requests at present
)

// IsNoAnswer reports whether a code, from a runtime that calls the API of a platform, means that the platform did not answer, or does not
// accept the credentials. A command that times out is no such case: it may wait for the instance itself.
func IsNoAnswer(code string) bool {
	return code == CodeUnreachable || code == CodeUnauthorized || code == CodeTimeout
}
