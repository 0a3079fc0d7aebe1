package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

const (
	// startGrace is how long after a notice a service without a workflow is left to its application, which starts services one after the
	// other.
	startGrace = 30 * time.Second
	// restartsAtOnce is how many workflows are restarted concurrently: an operator may have ended all of them.
	restartsAtOnce = 8
)

// missing is a workflow that should run, and is not listed as running.
type missing struct {
	id string
	of declaration // of its application, for a service
}

// restartMissing restarts those of the workflows that are gone.
func (s *supervisor) restartMissing(ctx context.Context, all []missing) error {
	problems := make([]error, len(all))
	slots := make(chan struct{}, restartsAtOnce)
	var running sync.WaitGroup
	for n, m := range all {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			problems[n] = s.restartIfGone(ctx, m)
		})
	}
	running.Wait()
	return errors.Join(problems...)
}

// restartIfGone restarts a workflow, unless it runs after all (the list is a little late), is done, is about to start, or failed just now.
// It is restarted however often it was ended: only `unmanage` keeps a service down.
func (s *supervisor) restartIfGone(ctx context.Context, m missing) error {
	e, gone, err := s.lastEnd(ctx, m.id)
	if err != nil || !gone {
		return err
	}
	c, err := s.store.Checkpoint(ctx, m.id)
	unknown := store.IsNotFound(err)
	if err != nil && !unknown {
		return err
	}
	if c.Over || s.failures.mustWait(e, time.Now()) {
		return nil
	}
	why := s.missingReason(e.why, c, unknown)
	now := time.Now().UTC()
	if why == reasonNotStarted && now.Sub(m.of.at) < startGrace {
		return nil
	}
	err = s.restart(ctx, m.id, m.of.manifest, protocol.Restart{At: now, Why: why})
	if errors.Is(err, activities.ErrUnmanaged) { // the checkpoint of its application did not have that yet
		return nil
	}
	if err != nil {
		return fmt.Errorf("start %s again: %w", m.id, err)
	}
	s.logStarted(m.id, why)
	return nil
}

// missingReason is the reason why a workflow is missing, also by its checkpoint, if there is one.
func (s *supervisor) missingReason(why string, c protocol.Checkpoint, unknown bool) string {
	switch {
	case why != activities.ReasonDeleted:
		return why
	case unknown:
		return reasonNotStarted
	case c.WrittenBefore(s.installation):
		return reasonMoved
	}
	return why
}

func (s *supervisor) logStarted(id, why string) {
	if why == reasonNotStarted {
		s.log.Info("started", "workflow", id, "why", why)
		return
	}
	s.log.Warn("started again", "workflow", id, "why", why)
	s.metrics.Counter(metricRestarts).Inc(1)
}
