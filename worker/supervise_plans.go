package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// followPlans starts plans again that are gone though they are not over: services may have been let in by them, and nobody else may be
// waiting for what is still to come. Plans end, so that they are not counted as what lives for ever is: those that run are on a list in
// the store, which most often is empty.
func (s *supervisor) followPlans(ctx context.Context) error {
	running, err := s.store.RunningPlans(ctx, "")
	for _, of := range running {
		err = errors.Join(err, s.followPlan(ctx, of))
	}
	return err
}

func (s *supervisor) followPlan(ctx context.Context, of protocol.PlanRef) error {
	why, gone, err := s.ended(ctx, of.ID())
	if err != nil || !gone {
		return err
	}
	r, err := s.store.Plan(ctx, of)
	if store.IsNotFound(err) || store.IsDamaged(err) || err == nil && r.Over { // it is asked for by whoever waits for it
		return s.store.EndPlan(ctx, of)
	}
	if err != nil {
		return err
	}
	before, err := s.store.Restarts(ctx, restartsOf(of))
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	if next, _ := restartAt(before, now); now.Before(next) {
		return nil
	}
	if _, err := activities.StartPlan(ctx, s.client, of, r.PlanAsked); err != nil {
		return fmt.Errorf("start %s again: %w", of.ID(), err)
	}
	s.log.Warn("started again", "workflow", of.ID(), "why", why)
	return s.store.PutRestart(ctx, restartsOf(of), now)
}

// restartsOf is under which name it is kept when a plan was started again.
func restartsOf(of protocol.PlanRef) string { return "plan-" + entities.ShortDigestOf(of) }
