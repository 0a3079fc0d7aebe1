package publish

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/loosen"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// loosened lists the requirements that changed services drop relative to the newest incarnation, in the order of declaration; equal ones of
// several services are listed once.
func (p *publication) loosened(ctx context.Context, last incarnation.Manifest) ([]Loosened, error) {
	found := make([][]entities.Loosening, len(p.changed))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for n, service := range p.changed {
		if last[service] == "" {
			continue
		}
		g.Go(func() (err error) {
			found[n], err = p.loosenedRules(ctx, service, last[service])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []Loosened
	for n, service := range p.changed {
		for _, l := range found[n] {
			at := slices.IndexFunc(out, func(o Loosened) bool { return o.Loosening == l })
			if at < 0 {
				at, out = len(out), append(out, Loosened{Loosening: l})
			}
			out[at].Services = append(out[at].Services, p.titleOf(service))
		}
	}
	return out, nil
}

// loosenedRules compares a service with its previous spec; if the store has lost that, the difference is unknown.
func (p *publication) loosenedRules(ctx context.Context, service, digest string) ([]entities.Loosening, error) {
	before, err := p.store.Spec(ctx, digest)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return []entities.Loosening{{Text: "its previous rules are unknown"}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("previous rules of %s: %w", service, err)
	}
	check, extension, failed := p.store.Definitions(ctx)
	now := p.definitions(service)
	spec := p.specs[service]
	all := loosen.Rules(&before, &spec, loosen.Definitions{
		Check: func(digest string) *entities.CheckDefinition {
			if d, ok := now().checks[digest]; ok {
				return &d
			}
			return check(digest)
		},
		Extension: func(digest string) *entities.ExtensionDefinition {
			if d, ok := now().extensions[digest]; ok {
				return &d
			}
			return extension(digest)
		},
	})
	return all, *failed
}

// definitions are the newly compiled definitions of checks and extensions, by their digests in the store.
type definitions struct {
	checks     map[string]entities.CheckDefinition
	extensions map[string]entities.ExtensionDefinition
}

func (p *publication) definitions(service string) func() definitions {
	return sync.OnceValue(func() definitions {
		d := definitions{map[string]entities.CheckDefinition{}, map[string]entities.ExtensionDefinition{}}
		for _, c := range p.compiled.Checks(service) {
			d.checks[entities.DigestOf(c)] = c
		}
		for _, e := range p.compiled.Extensions(service) {
			d.extensions[entities.DigestOf(e)] = e
		}
		return d
	})
}
