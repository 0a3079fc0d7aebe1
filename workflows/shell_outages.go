package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// outside is something that a workflow needs and that may not answer for a while. Each has its own
// pauses between tries: what needs the one is not held up by another.
type outside int

const (
	nobody outside = iota
	theStore
	theIssuer    // of tokens
	theRuntimes  // Runtime workflows, for leases
	theTrail     // the store, for audit lines
	theChecks    // the activity that evaluates checks ended in an error
	theNextRun   // the store, for state that is too large to be carried
	theDamaged   // something in the store, until it is written again
	theAnnouncer // workflows of what a service is part of, for pauses
	outsides
)

// errRuntime is the type of an error of a Runtime workflow that could not be reached.
const errRuntime = "RuntimeWorkflow"

// errAnnouncer is the type of an error of a workflow that could not be asked for its pause.
const errAnnouncer = "Announcer"

// silences says of each what kind of trouble it is that it does not answer ("": none that is shown), what is said of
// that, and of what type that error is.
var silences = [outsides]struct{ trouble, text, errType string }{
	theStore:     {state.TroubleStore, "the store does not answer: ", protocol.ErrStore},
	theDamaged:   {"damage", "", protocol.ErrDamaged},
	theTrail:     {trouble: state.TroubleStore},
	theNextRun:   {trouble: state.TroubleStore},
	theIssuer:    {"issuer", "who issues tokens cannot be asked for keys, try again: ", protocol.ErrIssuer},
	theAnnouncer: {"pause", "who paused or resumed it cannot be asked: ", errAnnouncer},
	theRuntimes:  {"runtime", "the workflow of the runtime cannot be reached: ", errRuntime},
}

// outage is how long something is left alone after it did not answer.
type outage struct {
	until time.Time
	tries int
}

type outages [outsides]outage

// pass opens what may be tried again now. Who needs it tries it, and sets the next time.
func (o *outages) pass(now time.Time) {
	for n := range o {
		if !now.Before(o[n].until) {
			o[n].until = time.Time{}
		}
	}
}

// open: it did not answer, and is not asked again yet.
func (o *outages) open(of outside) bool { return !o[of].until.IsZero() }

// next is the earliest time at which something is tried again.
func (o *outages) next() time.Time {
	var at time.Time
	for n := range o {
		at = earliest(at, o[n].until)
	}
	return at
}

// patient tells that somebody did not answer the last time: it is asked beside the workflow task, where it may take its
// time.
func (s *shell) patient(of outside) bool {
	return s.outages[of].tries > 0
}

// failed counts that somebody did not answer, if that is what an error says.
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

// backOff leaves something alone until it may answer again, and says so in `status`.
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

// trouble shows a problem of a kind that goes away by itself.
func (s *shell) trouble(kind, text string) { s.desk.Trouble, s.desk.Problem = kind, text }

// clear takes back a problem of that kind.
func (s *shell) clear(kind string) {
	if s.desk.Trouble == kind {
		s.desk.Trouble, s.desk.Problem = "", ""
	}
}

// reached takes back that it does not answer.
func (s *shell) reached(of outside) { s.clear(silences[of].trouble) }

// outageOf tells what did not answer; nobody when the error is of another kind.
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
