package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// outside is a dependency of a workflow that may be unavailable for a while. Each has its own backoff: an outage of one does not delay
// messages that need another.
type outside int

const (
	nobody outside = iota
	theStore
	theIssuer    // of tokens
	theRuntimes  // Runtime workflows, for leases
	theTrail     // the store, for audit lines
	theChecks    // the activity that evaluates checks failed
	theNextRun   // the store, for state that is too large to be carried
	theDamaged   // a damaged object in the store, until it is written again
	theAnnouncer // workflows of the application or runtime that announce a pause
	outsides
)

// errRuntime is the type of an error of a Runtime workflow that could not be reached.
const errRuntime = "RuntimeWorkflow"

// errAnnouncer is the type of an error of a workflow whose pause could not be queried.
const errAnnouncer = "Announcer"

// silences lists per dependency the kind of trouble of an outage ("" if it is not shown), the text shown, and the type of the error.
var silences = [outsides]struct{ trouble, text, errType string }{
	theStore:     {state.TroubleStore, "the store does not answer: ", protocol.ErrStore},
	theDamaged:   {"damage", "", protocol.ErrDamaged},
	theTrail:     {trouble: state.TroubleStore},
	theNextRun:   {trouble: state.TroubleStore},
	theIssuer:    {"issuer", "the keys of the token issuer cannot be read, try again: ", protocol.ErrIssuer},
	theAnnouncer: {"pause", "the owner of the pause cannot be queried: ", errAnnouncer},
	theRuntimes:  {"runtime", "the workflow of the runtime cannot be reached: ", errRuntime},
}

// outage is the backoff state of a dependency that did not answer.
type outage struct {
	until time.Time
	tries int
}

type outages [outsides]outage

// pass ends the backoffs that have expired. The next message that needs the dependency tries it, and sets the next backoff.
func (o *outages) pass(now time.Time) {
	for n := range o {
		if !now.Before(o[n].until) {
			o[n].until = time.Time{}
		}
	}
}

// open reports whether a dependency is unavailable and in backoff.
func (o *outages) open(of outside) bool { return !o[of].until.IsZero() }

// next is the earliest time of a retry.
func (o *outages) next() time.Time {
	var at time.Time
	for n := range o {
		at = earliest(at, o[n].until)
	}
	return at
}

// patient reports whether a dependency did not answer the last time: it is then called outside the workflow task, with a longer timeout.
func (s *shell) patient(of outside) bool {
	return s.outages[of].tries > 0
}

// failed counts a failure of a dependency, if the error is one.
func (s *shell) failed(of outside, err error) bool {
	if outageOf(err) != of {
		return false
	}
	s.outages[of].tries++
	if of == theStore && s.patient(of) {
		s.line.failures++
		s.line.failure = err
	}
	return true
}

// backOff sets the backoff of a dependency, and shows it in `status`.
func (s *shell) backOff(of outside, err error) {
	if !s.failed(of, err) {
		s.outages[of].tries++
	}
	wait := min(time.Second<<min(s.outages[of].tries, 6), time.Minute)
	s.outages[of].until = s.now().Add(wait)
	if kind := silences[of].trouble; kind != "" {
		s.trouble(kind, errorText(err))
	}
}

// trouble shows a problem of a kind that is cleared automatically.
func (s *shell) trouble(kind, text string) { s.desk.Trouble, s.desk.Problem = kind, text }

// clear removes a problem of that kind.
func (s *shell) clear(kind string) {
	if s.desk.Trouble == kind {
		s.desk.Trouble, s.desk.Problem = "", ""
	}
}

// reached removes the problem of a dependency that answered.
func (s *shell) reached(of outside) { s.clear(silences[of].trouble) }

// outageOf returns the dependency that did not answer, or nobody if the error is of another kind.
func outageOf(err error) outside {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return nobody
	}
	for _, of := range [...]outside{theStore, theIssuer, theRuntimes, theAnnouncer, theDamaged} {
		if app.Type() == silences[of].errType {
			return of
		}
	}
	return nobody
}

func isOutage(err error) bool { return err != nil && outageOf(err) != nobody }

func isStoreError(err error) bool { return err != nil && outageOf(err) == theStore }
