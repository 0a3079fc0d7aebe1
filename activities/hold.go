package activities

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// pausesTTL is how long a worker caches the active pauses. A new pause blocks applies at the latest that long after it was stored.
const pausesTTL = 3 * time.Second

// checkPaused returns an error with the pause that blocks applies of an application on a runtime, even if its service does not know of the
// pause yet; or an error if the pauses are unknown. A runtime that is being restored after a drain does not block: each service waits for
// its permit to return.
func (a *Activities) checkPaused(ctx context.Context, application, runtime string) error {
	return a.checkPausedExcept(ctx, application, runtime, func(d *entities.Drain) bool { return d.Restoring })
}

// checkRemovalPaused is checkPaused for a removal. A drain does not block removals from the runtime.
func (a *Activities) checkRemovalPaused(ctx context.Context, application, runtime string) error {
	return a.checkPausedExcept(ctx, application, runtime, func(*entities.Drain) bool { return true })
}

// checkPausedExcept is checkPaused except for drains that exempt accepts.
func (a *Activities) checkPausedExcept(ctx context.Context, application, runtime string, exempt func(*entities.Drain) bool) error {
	pauses, err := a.pauses.get(application+"/"+runtime, pausesTTL, func() ([]protocol.ScopePause, error) {
		pauses, err := a.Store.Pauses(ctx, application, slices.DeleteFunc([]string{runtime}, func(name string) bool { return name == "" }))
		var damaged *store.CorruptError
		if errors.As(err, &damaged) { // a damaged record is not a pause; the service may know of one
			err = nil
		}
		return pauses, err
	})
	if err != nil {
		return fmt.Errorf("read active pauses: %w", err)
	}
	pauses = slices.DeleteFunc(slices.Clone(pauses), func(p protocol.ScopePause) bool { return p.Pause.Drain != nil && exempt(p.Pause.Drain) })
	if len(pauses) == 0 {
		return nil
	}
	p := pauses[0]
	return fmt.Errorf("%s is %s by %s%s", p.Scope, p.Pause.StateText(), p.Pause.By, entities.Because(p.Pause.Reason))
}
