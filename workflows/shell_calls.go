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
	storeCallTimeout = 500 * time.Millisecond // the limit for a read or a write of the store
	// storeActivityTimeout is the timeout of the same call outside the task, after it failed within that limit.
	storeActivityTimeout = 20 * time.Second
	// requiredCallTimeout is for calls that nothing can continue without: the state of this run, or of the next one.
	requiredCallTimeout = 10 * time.Second
)

// localCall is a short activity in this worker, within the current workflow task: no round trip to the server comes between a signal and
// its result.
type localCall struct {
	name        string
	request     any
	timeout     time.Duration // in total, with retries
	maxAttempts int32         // 0: as many as fit
	dependency  dependency    // the dependency that it calls
}

// do runs it. A refusal of the activity is returned as a refusal; every other error means that the dependency did not answer.
func (c localCall) do(ctx workflow.Context, answer any) error {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		ScheduleToCloseTimeout: c.timeout,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 2, MaximumInterval: 2 * time.Second, MaximumAttempts: c.maxAttempts,
		},
	})
	return c.wrapError(workflow.ExecuteLocalActivity(ctx, c.name, c.request).Get(ctx, answer))
}

// doInActivity runs it as a regular activity, so that the workflow task can end.
func (c localCall) doInActivity(ctx workflow.Context, answer any) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		ScheduleToCloseTimeout: c.timeout + margin, StartToCloseTimeout: c.timeout,
		RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Summary: "retry a call that was not answered",
	})
	return c.wrapError(workflow.ExecuteActivity(ctx, c.name, c.request).Get(ctx, answer))
}

func (c localCall) wrapError(err error) error {
	if err == nil || temporal.IsCanceledError(err) {
		return err
	}
	var app *temporal.ApplicationError
	if errors.As(err, &app) && app.Type() == protocol.ErrRefused {
		return asRefusal(errors.New(app.Message()))
	}
	if app != nil && app.Type() == protocol.ErrDamaged {
		return app
	}
	if app != nil && app.Type() == protocol.ErrStore {
		c.dependency = depStore // an activity for another dependency needed the store too
	}
	if temporal.IsTimeoutError(err) || app != nil && app.Type() == protocol.ErrTimeout {
		return temporal.NewApplicationError(fmt.Sprintf("%sno answer within %s", dependencyErrors[c.dependency].text, c.timeout), dependencyErrors[c.dependency].errType, timedOutDetail)
	}
	return temporal.NewApplicationError(dependencyErrors[c.dependency].text+rootCause(err), dependencyErrors[c.dependency].errType)
}

// timedOutDetail is the detail of an error that says that the call ended with neither an answer nor an error.
const timedOutDetail = "cut short"

func isTimedOut(err error) bool {
	var app *temporal.ApplicationError
	return errors.As(err, &app) && app.HasDetails()
}

type outsideTaskKey struct{}

// outsideTask is a context in which the store is called outside the workflow task, for a coroutine that blocks no other.
func outsideTask(ctx workflow.Context) workflow.Context {
	return workflow.WithValue(ctx, outsideTaskKey{}, true)
}

// callStore runs a short activity that reads or writes the store.
func (s *shell) callStore(ctx workflow.Context, name string, request, answer any) error {
	call := localCall{name: name, request: request, timeout: storeCallTimeout, dependency: depStore}
	var err error
	switch {
	case ctx.Value(outsideTaskKey{}) != nil:
		call.timeout = storeActivityTimeout
		err = call.doInActivity(ctx, answer)
	case name == protocol.ActivityRestore || name == protocol.ActivityAdopt: // their content is too large for an event
		call.timeout = requiredCallTimeout
		err = call.do(ctx, answer)
	case name == protocol.ActivitySpill && s.storeAcceptsState: // this one too
		call.timeout, call.maxAttempts = requiredCallTimeout, 1
		err = call.do(ctx, answer)
	default:
		err = call.do(ctx, answer)
	}
	if !isStoreError(err) {
		s.markReached(depStore)
	}
	if digest := storedAnswerDigest(answer); err == nil && digest != "" {
		return s.fetchStoredAnswer(ctx, digest, answer)
	}
	return err
}

// storedAnswerDigest is the digest of an answer that was too large for a payload, or "".
func storedAnswerDigest(answer any) string {
	if a, may := answer.(interface{ StoredDigest() string }); may {
		return a.StoredDigest()
	}
	return ""
}

// fetchStoredAnswer reads an answer that the activity put in the store.
func (s *shell) fetchStoredAnswer(ctx workflow.Context, digest string, answer any) error {
	packed, err := s.fetchSpilled(ctx, digest)
	if err != nil {
		return err
	}
	return packed.Unpack(answer)
}

// withLongActivity is for an activity without a limit on its duration. It heartbeats, is started again if its worker is lost, and ends
// cleanly when it is cancelled.
func withLongActivity(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: time.Hour, HeartbeatTimeout: margin, WaitForCancellation: true,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: time.Minute},
		Summary:     summary,
	})
}
