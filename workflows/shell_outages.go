package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// dependency is a dependency of a workflow that may be unavailable for a while. Each has its own backoff: an outage of one does not delay
// messages that need another.
type dependency int

const (
	depNone dependency = iota
	depStore
	depTokenIssuer   // of tokens
	depRuntimes      // Runtime workflows, for leases
	depAuditLog      // the store, for audit lines
	depChecks        // the activity that evaluates checks failed
	depStateSpill    // the store, for state that is too large to be carried
	depDamagedObject // a damaged object in the store, until it is written again
	depPauseOwner    // workflows of the application or runtime that announce a pause
	depCount
)

// errTypeRuntime is the type of an error of a Runtime workflow that could not be reached.
const errTypeRuntime = "RuntimeWorkflow"

// errTypePauseOwner is the type of an error of a workflow whose pause could not be queried.
const errTypePauseOwner = "Announcer"

// dependencyErrors lists per dependency the kind of the problem in an outage ("" if it is not shown), the text shown, and the type of the
// error.
var dependencyErrors = [depCount]struct{ problem, text, errType string }{
	depStore:         {state.ProblemStore, "the store does not answer: ", protocol.ErrStore},
	depDamagedObject: {"damage", "", protocol.ErrDamaged},
	depAuditLog:      {problem: state.ProblemStore},
	depStateSpill:    {problem: state.ProblemStore},
	depTokenIssuer:   {"issuer", "the keys of the token issuer cannot be read, try again: ", protocol.ErrIssuer},
	depPauseOwner:    {"pause", "the owner of the pause cannot be queried: ", errTypePauseOwner},
	depRuntimes:      {"runtime", "the workflow of the runtime cannot be reached: ", errTypeRuntime},
}

// outage is the backoff state of a dependency that did not answer.
type outage struct {
	until time.Time
	tries int
}

type outages [depCount]outage

// expire ends the backoffs that have expired. The next message that needs the dependency tries it, and sets the next backoff.
func (o *outages) expire(now time.Time) {
	for n := range o {
		if !now.Before(o[n].until) {
			o[n].until = time.Time{}
		}
	}
}

// isOpen reports whether a dependency is unavailable and in backoff.
func (o *outages) isOpen(of dependency) bool { return !o[of].until.IsZero() }

// nextRetry is the earliest time of a retry.
func (o *outages) nextRetry() time.Time {
	var at time.Time
	for n := range o {
		at = earliest(at, o[n].until)
	}
	return at
}

// failedBefore reports whether a dependency did not answer the last time: it is then called outside the workflow task, with a longer
// timeout.
func (s *shell) failedBefore(of dependency) bool {
	return s.outages[of].tries > 0
}

// countFailure counts a failure of a dependency, if the error is one.
func (s *shell) countFailure(of dependency, err error) bool {
	if dependencyOf(err) != of {
		return false
	}
	s.outages[of].tries++
	if of == depStore {
		s.storeQueue.failures++
		s.storeQueue.failure = err
	}
	return true
}

// backOff sets the backoff of a dependency, and shows it in `status`.
func (s *shell) backOff(of dependency, err error) {
	if !s.countFailure(of, err) {
		s.outages[of].tries++
	}
	wait := min(time.Second<<min(s.outages[of].tries, 6), time.Minute)
	s.outages[of].until = s.now().Add(wait)
	if kind := dependencyErrors[of].problem; kind != "" {
		s.setProblem(kind, errorText(err))
	}
}

// setProblem shows a problem of a kind that is cleared automatically.
func (s *shell) setProblem(kind, text string) {
	s.mailbox.TransientProblem, s.mailbox.Problem = kind, text
}

// clearProblem removes a problem of that kind.
func (s *shell) clearProblem(kind string) {
	if s.mailbox.TransientProblem == kind {
		s.mailbox.TransientProblem, s.mailbox.Problem = "", ""
	}
}

// markReached removes the problem of a dependency that answered.
func (s *shell) markReached(of dependency) { s.clearProblem(dependencyErrors[of].problem) }

// dependencyOf returns the dependency that did not answer, or depNone if the error is of another kind.
func dependencyOf(err error) dependency {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return depNone
	}
	for _, of := range [...]dependency{depStore, depTokenIssuer, depRuntimes, depPauseOwner, depDamagedObject} {
		if app.Type() == dependencyErrors[of].errType {
			return of
		}
	}
	return depNone
}

func isOutage(err error) bool { return err != nil && dependencyOf(err) != depNone }

func isStoreError(err error) bool { return err != nil && dependencyOf(err) == depStore }
