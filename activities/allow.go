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

// checkRuntimeAccess checks against the newest declaration of a runtime whether an instance may use it. The declaration may be cached for
// maxAge, which is 0 before a change. The digest that a service knows may be of an older declaration, which allowed more. A permanent error
// means that the use is not allowed.
func (a *Activities) checkRuntimeAccess(ctx context.Context, conn connection, in *runtimes.Request, maxAge time.Duration) error {
	name := conn.definition.Name
	newest, err := a.runtimeDefinitions.get(name, maxAge, func() (entities.RuntimeDefinition, error) { return a.Store.CurrentRuntime(ctx, name) })
	if store.IsNotFound(err) { // it was never published
		newest, err = conn.definition, nil
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
	if reason := newest.DenialReason(in.Application, address); reason != "" {
		return runtimes.Permanent(errors.New(reason))
	}
	if maxAge == 0 && newest.ReadOnly && !conn.definition.ReadOnly {
		return fmt.Errorf("runtime %s has access: read by now, so that nothing is written there; publish %s again, so that it knows that too", name, in.Application)
	}
	in.Allow = newest.Allow
	return nil
}

// definitionTTL is the maximum age of a runtime's declaration for reads.
const definitionTTL = 30 * time.Second
