package workflows

import (
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

// outside is something that a service needs and that may not answer for a while. Each has its own
// pauses between tries: what needs the one is not held up by another.
type outside int

const (
	theStore    outside = iota
	theIssuer           // of tokens
	theRuntimes         // Runtime workflows, for leases
	theTrail            // the store, for audit lines
	theChecks           // the activity that looks at checks ended in an error
	outsides
)

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
func (s *service) backOff(of outside, err error) {
	s.outages[of].tries++
	wait := min(time.Second<<min(s.outages[of].tries, 6), time.Minute)
	s.outages[of].until = workflow.Now(s.ctx).Add(wait)
	if of != theChecks {
		s.state.Problem = errorText(err)
	}
}

// errRuntime is the type of an error of a Runtime workflow that could not be reached.
const errRuntime = "RuntimeWorkflow"

// awayOf tells what did not answer; outsides when the error is of another kind.
func awayOf(err error) outside {
	var app *temporal.ApplicationError
	if !errors.As(err, &app) {
		return outsides
	}
	switch app.Type() {
	case protocol.ErrStore:
		return theStore
	case protocol.ErrIssuer:
		return theIssuer
	case errRuntime:
		return theRuntimes
	}
	return outsides
}

func isAway(err error) bool { return err != nil && awayOf(err) != outsides }

func isStoreError(err error) bool { return err != nil && awayOf(err) == theStore }

// localCall is a short activity in this worker, within the present workflow task: no round trip to
// the server stands between a signal and what follows from it.
type localCall struct {
	name    string
	request any
	patient time.Duration // in all, with tries
	silent  string        // begins what is said when nothing answers
	errType string        // of that error
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
	return temporal.NewApplicationError(c.silent+rootCause(err), c.errType)
}

// What is said of something that cannot be reached, or has not what is needed.
const (
	storeSilent   = "the store does not answer: "
	issuerSilent  = "who issues tokens cannot be asked for keys, try again: "
	runtimeSilent = "the workflow of the runtime cannot be reached: "
)

func fromStore(ctx workflow.Context, name string, request, answer any) error {
	return localCall{name: name, request: request, patient: 10 * time.Second, silent: storeSilent, errType: protocol.ErrStore}.do(ctx, answer)
}

// answers takes back that something does not answer.
func (s *service) answers(silent string) {
	if strings.HasPrefix(s.state.Problem, silent) {
		s.state.Problem = ""
	}
}
