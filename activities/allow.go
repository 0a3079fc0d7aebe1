package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// mayUse asks the newest declaration of a runtime whether an instance may use it, one that was read so long ago at most. The
// digest that a service knows may be of an older one, which allowed more. An error that is permanent says that it may not.
func (a *Activities) mayUse(ctx context.Context, line connection, in *runtimes.Instance, old time.Duration) error {
	name := line.definition.Name
	newest, err := a.owners.get(name, old, func() (entities.RuntimeDefinition, error) { return a.Store.CurrentRuntime(ctx, name) })
	if store.IsNotFound(err) { // it was published by nobody
		newest, err = line.definition, nil
	}
	if err != nil {
		return fmt.Errorf("runtime %s: who may use it: %w", name, err)
	}
	var address map[string]string // nil: nobody knows it
	if in.Payload != nil {
		if address = in.Payload.Address; address == nil {
			address = map[string]string{}
		}
	}
	if why := newest.Refuses(in.Application, address); why != "" {
		return runtimes.Permanent(errors.New(why))
	}
	in.Allow = newest.Allow
	return nil
}

// lookedUp is how old what a runtime's owner says may be where something is only looked at.
const lookedUp = 30 * time.Second
