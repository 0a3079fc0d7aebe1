package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// restartPlans restarts plans that are gone and not over: services may have entered by them, and no client may be waiting for the rest.
// Plans end, so they are not counted like the workflows that live forever. The store has a list of running plans, which is empty most of
// the time.
func (s *supervisor) restartPlans(ctx context.Context) error {
	running, err := s.store.RunningPlans(ctx, "")
	for _, of := range running {
		err = errors.Join(err, s.restartPlan(ctx, of))
	}
	return err
}

func (s *supervisor) restartPlan(ctx context.Context, of protocol.PlanRef) error {
	e, gone, err := s.lastEnd(ctx, of.ID())
	if err != nil || !gone {
		return err
	}
	r, err := s.store.Plan(ctx, of)
	if store.IsNotFound(err) || store.IsDamaged(err) || err == nil && r.Over { // the client that waits for it starts it
		return s.store.EndPlan(ctx, of)
	}
	if err != nil || s.failures.mustWait(e, time.Now()) {
		return err
	}
	if _, err := activities.StartPlan(ctx, s.client, s.store, of, r.PlanTask); err != nil {
		return fmt.Errorf("start %s again: %w", of.ID(), err)
	}
	s.log.Warn("started again", "workflow", of.ID(), "why", e.why)
	return nil
}
