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

// holdsFor is how long a worker goes by what it has read of the pauses in force: a pause that is accepted holds for
// applies that long after it was kept, at most.
const holdsFor = 3 * time.Second

// held says which pause holds an apply of an application on a runtime, whether its service has heard of that or not; or
// that it cannot be known. Of a runtime that is turned up each service knows itself when it comes back.
func (a *Activities) held(ctx context.Context, application, runtime string) error {
	return a.heldBut(ctx, application, runtime, func(d *entities.Drain) bool { return d.Up })
}

// removalHeld is held of a removal: what leaves a drained runtime is not held by that.
func (a *Activities) removalHeld(ctx context.Context, application, runtime string) error {
	return a.heldBut(ctx, application, runtime, func(*entities.Drain) bool { return true })
}

// heldBut is held by anything but such drains.
func (a *Activities) heldBut(ctx context.Context, application, runtime string, lets func(*entities.Drain) bool) error {
	pauses, err := a.holds.get(application+"/"+runtime, holdsFor, func() ([]protocol.ScopePause, error) {
		pauses, err := a.Store.Pauses(ctx, application, slices.DeleteFunc([]string{runtime}, func(name string) bool { return name == "" }))
		var damaged *store.CorruptError
		if errors.As(err, &damaged) { // what is damaged is no pause; its service may know of one
			err = nil
		}
		return pauses, err
	})
	if err != nil {
		return fmt.Errorf("pauses in force: %w", err)
	}
	pauses = slices.DeleteFunc(slices.Clone(pauses), func(p protocol.ScopePause) bool { return p.Pause.Drain != nil && lets(p.Pause.Drain) })
	if len(pauses) == 0 {
		return nil
	}
	p := pauses[0]
	return fmt.Errorf("%s is %s by %s%s", p.Scope, p.Pause.Held(), p.Pause.By, entities.Because(p.Pause.Reason))
}
