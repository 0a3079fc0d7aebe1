package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.temporal.io/api/serviceerror"
	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// checkRenames refuses to rename channels and services while a release to them is in progress, or while objects of another one with that
// name remain. If a release starts only afterwards, the service itself delays the rename.
func (p *publication) checkRenames(ctx context.Context, last incarnation.Manifest) error {
	var mu sync.Mutex
	var lines []string
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, service := range p.changed {
		if last[service] == "" {
			continue
		}
		g.Go(func() error {
			why, err := p.renameProblem(ctx, service, last[service])
			mu.Lock()
			defer mu.Unlock()
			if why != "" {
				lines = append(lines, p.titleOf(service)+": "+why)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil || len(lines) == 0 {
		return err
	}
	slices.Sort(lines)
	return fmt.Errorf("%w: %s [renamed]", ErrRefused, strings.Join(lines, "\n"))
}

// renameProblem returns why a service cannot take over new names now, of its channels or its own; empty if it can.
func (p *publication) renameProblem(ctx context.Context, service, digest string) (string, error) {
	before, err := p.store.Spec(ctx, digest)
	if store.IsNotFound(err) || store.IsDamaged(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("previous rules of %s: %w", service, err)
	}
	spec := p.specs[service]
	retitled := before.Title() != spec.Title()
	if !retitled && len(entities.RenamedChannels(&before, &spec)) == 0 {
		return "", nil
	}
	if retitled && spec.Title() != service {
		if running, err := p.isRunning(ctx, spec.Title()); err != nil || running {
			return fmt.Sprintf("a service with the former name %s still runs and would have the same name; delete it first: converge channel delete %s/%s",
				spec.Title(), p.application, spec.Title()), err
		}
	}
	s, err := p.state(ctx, service)
	if err != nil || s == nil {
		return "", err
	}
	if err := s.CheckChannelKeys(&spec); err != nil {
		return err.Error(), nil //nolint:nilerr // why it is refused is what was asked
	}
	return s.RenameBlocker(s.RenamedChannels(&spec), s.NewTitle(&spec)), nil
}

// state is the state of a service; nil if it does not exist.
func (p *publication) state(ctx context.Context, service string) (*state.State, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var s state.State
	err := protocol.QueryWhole(func(q protocol.PartsQuery) (raw json.RawMessage, err error) {
		err = connection.Ask(ctx, func() error {
			answer, err := p.options.Client.QueryWorkflow(ctx, protocol.ServiceID(p.application, service), "", protocol.QueryState, q)
			if err == nil {
				err = answer.Get(&raw)
			}
			return err
		})
		return raw, err
	}, &s)
	var absent *serviceerror.NotFound
	if errors.As(err, &absent) {
		return nil, nil
	}
	if err != nil {
		return nil, answerError(p.options.Client, err, "query "+p.application+"/"+p.titleOf(service))
	}
	return &s, nil
}
