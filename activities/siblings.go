package activities

import (
	"cmp"
	"context"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// siblings returns the function that reads the other services of an owner's application at its place. They are those of an incarnation, or
// of the newest one if the hash is empty. Without any incarnation there are none.
func (a *Activities) siblings(owner runtimes.Owner, runtime, hash string) func(context.Context) (runtimes.Siblings, error) {
	return func(ctx context.Context) (runtimes.Siblings, error) {
		var found runtimes.Siblings
		notice, err := a.Store.NewestNotice(ctx, owner.Application)
		if hash == "" && store.IsNotFound(err) {
			return found, nil
		}
		if hash == "" && err != nil {
			return found, err
		}
		inc, err := a.Store.Incarnation(ctx, cmp.Or(hash, notice.Incarnation.Hash))
		if err != nil {
			return found, err
		}
		found.Names = inc.ServiceNames()
		for _, key := range inc.ServiceKeys() {
			if key == owner.Service {
				continue
			}
			p, err := a.declaredPayload(ctx, inc, key, owner.ID)
			if err != nil {
				return found, err
			}
			if p != nil && p.Runtime == runtime {
				found.Payloads = append(found.Payloads, *p)
			}
		}
		return found, nil
	}
}

// declaredPayload returns the payload that an incarnation declares for an instance of a service, with its objects and without the values of a
// release; nil if it declares none.
func (a *Activities) declaredPayload(ctx context.Context, inc *incarnation.Incarnation, service string, id entities.InstanceID) (*entities.Payload, error) {
	p, err := inc.Template(service, displayName(inc, id, nil))
	if err != nil {
		return nil, nil //nolint:nilerr // the service has no such instance
	}
	b := p.Bundled()
	if b == nil {
		return &p, nil
	}
	stored, err := a.Store.Bundle(ctx, b.Bundle)
	if err != nil {
		return nil, err
	}
	b.Objects, err = stored.Objects(b.Values)
	return &p, err
}
