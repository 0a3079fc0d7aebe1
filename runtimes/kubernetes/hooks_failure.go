package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/runtimes"
)

// Failure hooks run after an apply that failed when it had begun to change objects: a hook failed, an object that it waited for failed, or
// the server refused an object for good. They run once; an apply after the retry of a person runs them again if it fails too. A refusal
// by the dry runs before the first change runs none.

// hooksFollow reports whether hooks run after the objects, at their success or at their failure: the apply then waits for the last wave.
func (a *apply) hooksFollow() bool {
	return len(a.delivery.due(a.hooks, phasePost))+len(a.delivery.due(a.hooks, phaseFailure)) > 0
}

// runFailureHooks runs the failure hooks after an error of the apply, and returns that error, with that of a hook.
func (a *apply) runFailureHooks(ctx context.Context, cause error) error {
	failed := new(problem)
	final := runtimes.IsPermanent(cause) || errors.As(cause, &failed) && failed.objectFailed
	if !final || ctx.Err() != nil || len(a.delivery.due(a.hooks, phaseFailure)) == 0 {
		return cause
	}
	if a.delivery.FailedAttempt == "" {
		a.delivery.FailedAttempt = a.attemptID
	}
	if err := a.runHooks(ctx, phaseFailure); err != nil {
		return fmt.Errorf("%w\n%s", cause, err.Error()) // whether a retry helps depends on the cause alone
	}
	return cause
}

// forgetFailure makes the failure hooks of an earlier attempt run again, after the retry of a person.
func (a *apply) forgetFailure() {
	d := a.delivery
	if d.FailedAttempt == "" || d.FailedAttempt == a.attemptID || a.attempt != 1 {
		return
	}
	d.FailedAttempt = ""
	d.Done = slices.DeleteFunc(slices.Clone(d.Done), func(key string) bool { return strings.HasPrefix(key, phaseFailure+" ") })
}
