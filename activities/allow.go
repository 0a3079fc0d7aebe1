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

// mayUse checks against the newest declaration of a runtime whether an instance may use it. The declaration may be cached for the time
// old. The digest that a service knows may be of an older declaration, which allowed more. A permanent error means that the use is not
// allowed.
func (a *Activities) mayUse(ctx context.Context, line connection, in *runtimes.Instance, old time.Duration) error {
	name := line.definition.Name
	newest, err := a.owners.get(name, old, func() (entities.RuntimeDefinition, error) { return a.Store.CurrentRuntime(ctx, name) })
	if store.IsNotFound(err) { // it was never published
		newest, err = line.definition, nil
	}
	if err != nil {
		return fmt.Errorf("runtime %s: read access rules: %w", name, err)
	}
	var address map[string]string // nil: unknown
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

// lookedUp is the maximum age of a runtime's declaration for reads.
const lookedUp = 30 * time.Second
