package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// mayUse asks the newest declaration of a runtime whether an instance may use it, one that was read so long ago at most. The
// digest that a service knows may be of an older one, which allowed more. An error that is permanent says that it may not.
func (a *Activities) mayUse(ctx context.Context, line connection, in *runtimes.Instance, old time.Duration) error {
	newest, err := a.owners.newest(ctx, a.Store, line.definition.Name, old)
	if store.IsNotFound(err) { // it was published by nobody
		newest, err = line.definition, nil
	}
	if err != nil {
		return fmt.Errorf("runtime %s: who may use it: %w", line.definition.Name, err)
	}
	var address map[string]string
	if in.Payload != nil {
		address = map[string]string{}
		maps.Copy(address, in.Payload.Address)
	}
	if why := newest.Refuses(in.Application, address); why != "" {
		return runtimes.Permanent(errors.New(why))
	}
	in.Allow = newest.Allow
	return nil
}

// lookedUp is how old what a runtime's owner says may be where something is only looked at.
const lookedUp = 30 * time.Second

// owners are the newest declarations of runtimes, as they were read.
type owners struct {
	mu   sync.Mutex
	read map[string]declaration
}

type declaration struct {
	entities.RuntimeDefinition
	at time.Time
}

func (o *owners) newest(ctx context.Context, from *store.Store, name string, old time.Duration) (entities.RuntimeDefinition, error) {
	now := time.Now()
	o.mu.Lock()
	known, ok := o.read[name]
	o.mu.Unlock()
	if ok && now.Sub(known.at) < old {
		return known.RuntimeDefinition, nil
	}
	newest, err := from.CurrentRuntime(ctx, name)
	if err != nil {
		return newest, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.read == nil {
		o.read = map[string]declaration{}
	}
	o.read[name] = declaration{newest, now}
	return newest, nil
}
