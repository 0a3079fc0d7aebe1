package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

// A local activity holds the workflow task open until it ends, and no query or update is answered in the meantime.
const (
	briefly = 500 * time.Millisecond // the limit for a read or a write of the store
	// aWhile is the timeout of the same call outside the task, after it failed within that limit.
	aWhile = 20 * time.Second
	// asLongAs is for calls that nothing can continue without: the state of this run, or of the next one.
	asLongAs = 10 * time.Second
)

// localCall is a short activity in this worker, within the current workflow task: no round trip to the server comes between a signal and
// its result.
type localCall struct {
	name    string
	request any
	patient time.Duration // in total, with retries
	tries   int32         // 0: as many as fit
	of      outside       // the dependency that it calls
}

// do runs it. A refusal of the activity is returned as a refusal; every other error means that the dependency did not answer.
func (c localCall) do(ctx workflow.Context, answer any) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: c.patient,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 2 * time.Second, MaximumAttempts: c.tries,
		},
	})
	return c.concluded(workflow.ExecuteLocalActivity(ctx, c.name, c.request).Get(ctx, answer))
}

// doBeside runs it as a regular activity, so that the workflow task can end.
func (c localCall) doBeside(ctx workflow.Context, answer any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: c.patient + margin, StartToCloseTimeout: c.patient,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: "retry a call that was not answered",
	})
	return c.concluded(workflow.ExecuteActivity(ctx, c.name, c.request).Get(ctx, answer))
}

func (c localCall) concluded(err error) error {
	if err == nil || temporal.IsCanceledError(err) {
		return err
	}
	var app *temporal.ApplicationError
	if errors.As(err, &app) && app.Type() == protocol.ErrRefused {
		return refused(errors.New(app.Message()))
	}
	if app != nil && app.Type() == protocol.ErrDamaged {
		return app
	}
	if app != nil && app.Type() == protocol.ErrStore {
		c.of = theStore // an activity for another dependency needed the store too
	}
	if temporal.IsTimeoutError(err) {
		return temporal.NewApplicationError(fmt.Sprintf("%sno answer within %s", silences[c.of].text, c.patient), silences[c.of].errType, cutShort)
	}
	return temporal.NewApplicationError(silences[c.of].text+rootCause(err), silences[c.of].errType)
}

// cutShort is the detail of an error that says that the call ended with neither an answer nor an error.
const cutShort = "cut short"

func isCutShort(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.HasDetails()
}

type besideKey struct{}

// beside is a context in which the store is called outside the workflow task, for a coroutine that blocks no other.
func beside(ctx workflow.Context) workflow.Context { return workflow.WithValue(ctx, besideKey{}, true) }

// fromStore runs a short activity that reads or writes the store.
func (s *shell) fromStore(ctx workflow.Context, name string, request, answer any) error {
	call := localCall{name: name, request: request, patient: briefly, of: theStore}
	var err error
	switch {
	case ctx.Value(besideKey{}) != nil:
		call.patient = aWhile
		err = call.doBeside(ctx, answer)
	case name == protocol.ActivityRestore || name == protocol.ActivityAdopt: // their content is too large for an event
		call.patient = asLongAs
		err = call.do(ctx, answer)
	case name == protocol.ActivitySpill && s.takesState: // this one too
		call.patient, call.tries = asLongAs, 1
		err = call.do(ctx, answer)
	default:
		if s.outages[theStore].tries > 0 && !s.patient(theStore) {
			call.patient = asLongAs
		}
		err = call.do(ctx, answer)
	}
	if !isStoreError(err) {
		s.reached(theStore)
	}
	if digest := leftInStore(answer); err == nil && digest != "" {
		return s.fetchAnswer(ctx, digest, answer)
	}
	return err
}

// leftInStore is the digest of an answer that was too large for a payload, or "".
func leftInStore(answer any) string {
	if a, may := answer.(interface{ Elsewhere() string }); may {
		return a.Elsewhere()
	}
	return ""
}

// fetchAnswer reads an answer that the activity put in the store.
func (s *shell) fetchAnswer(ctx workflow.Context, digest string, answer any) error {
	packed, err := s.fetchSpilled(ctx, digest)
	if err != nil {
		return err
	}
	return packed.Unpack(answer)
}

// enduring is for an activity without a limit on its duration. It heartbeats, is started again if its worker is lost, and ends cleanly when
// it is cancelled.
func enduring(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: margin, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
		Summary:     summary,
	})
}
