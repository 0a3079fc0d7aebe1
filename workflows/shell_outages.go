package workflows

import (
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

// outside is something that a workflow needs and that may not answer for a while. Each has its own
// pauses between tries: what needs the one is not held up by another.
type outside int

const (
	nobody outside = iota
	theStore
	theIssuer   // of tokens
	theRuntimes // Runtime workflows, for leases
	theTrail    // the store, for audit lines
	theChecks   // the activity that evaluates checks ended in an error
	theNextRun  // the store, for state that is too large to be carried
	outsides
)

// errRuntime is the type of an error of a Runtime workflow that could not be reached.
const errRuntime = "RuntimeWorkflow"

// silences says of each what kind of trouble it is that it does not answer ("": none that is shown), what is said of
// that, and of what type that error is.
var silences = [outsides]struct{ trouble, text, errType string }{
	theStore:    {"store", "the store does not answer: ", protocol.ErrStore},
	theTrail:    {trouble: "store"},
	theNextRun:  {trouble: "store"},
	theIssuer:   {"issuer", "who issues tokens cannot be asked for keys, try again: ", protocol.ErrIssuer},
	theRuntimes: {"runtime", "the workflow of the runtime cannot be reached: ", errRuntime},
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

// backOff leaves something alone until it may answer again, and says so in `status`.
func (s *shell) backOff(of outside, err error) {
	s.outages[of].tries++
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
	for _, of := range [...]outside{theStore, theIssuer, theRuntimes} {
		if app.Type() == silences[of].errType {
			return of
		}
	}
	return nobody
}

func isOutage(err error) bool { return err != nil && outageOf(err) != nobody }

func isStoreError(err error) bool { return err != nil && outageOf(err) == theStore }

// localCall is a short activity in this worker, within the present workflow task: no round trip to
// the server stands between a signal and what follows from it.
type localCall struct {
	name    string
	request any
	patient time.Duration // in all, with tries
	of      outside       // that it asks
}

// do runs it. What the activity refuses is refused; every other error says that nothing answered.
func (c localCall) do(ctx workflow.Context, answer any) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: c.patient,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 2 * time.Second,
		},
	})
	err := workflow.ExecuteLocalActivity(ctx, c.name, c.request).Get(ctx, answer)
	if err == nil || temporal.IsCanceledError(err) {
		return err
	}
	var app *temporal.ApplicationError
	if errors.As(err, &app) && app.Type() == protocol.ErrRefused {
		return refused(errors.New(app.Message()))
	}
	return temporal.NewApplicationError(silences[c.of].text+rootCause(err), silences[c.of].errType)
}

// fromStore runs a short activity that reads or writes the store.
func (s *shell) fromStore(ctx workflow.Context, name string, request, answer any) error {
	err := localCall{name: name, request: request, patient: 10 * time.Second, of: theStore}.do(ctx, answer)
	if !isStoreError(err) {
		s.reached(theStore)
	}
	return err
}
