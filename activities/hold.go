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

// holdsFor is how long a worker caches the active pauses. A new pause blocks applies at the latest that long after it was stored.
const holdsFor = 3 * time.Second

// held returns an error with the pause that blocks applies of an application on a runtime, even if its service does not know of the pause
// yet; or an error if the pauses are unknown. A runtime that is being restored after a drain does not block: each service knows its turn
// to come back.
func (a *Activities) held(ctx context.Context, application, runtime string) error {
	return a.heldBut(ctx, application, runtime, func(d *entities.Drain) bool { return d.Up })
}

// removalHeld is held for a removal. A drain does not block removals from the runtime.
func (a *Activities) removalHeld(ctx context.Context, application, runtime string) error {
	return a.heldBut(ctx, application, runtime, func(*entities.Drain) bool { return true })
}

// heldBut is held except for drains that lets accepts.
func (a *Activities) heldBut(ctx context.Context, application, runtime string, lets func(*entities.Drain) bool) error {
	pauses, err := a.holds.get(application+"/"+runtime, holdsFor, func() ([]protocol.ScopePause, error) {
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
	pauses = slices.DeleteFunc(slices.Clone(pauses), func(p protocol.ScopePause) bool { return p.Pause.Drain != nil && lets(p.Pause.Drain) })
	if len(pauses) == 0 {
		return nil
	}
	p := pauses[0]
	return fmt.Errorf("%s is %s by %s%s", p.Scope, p.Pause.Held(), p.Pause.By, entities.Because(p.Pause.Reason))
}
