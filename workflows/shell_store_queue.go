package workflows

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/state"
)

// storeQueue is the queue of messages that need the store: releases and publications. They are carried out in the order in which they were
// accepted. The first one may wait for the store without the lock, so that everything else continues.
type storeQueue struct {
	mutex    workflow.Mutex          // of updates
	running  bool                    // a message is being carried out outside the workflow task
	done     map[*state.Message]bool // carried out that way, and still in the inbox
	failures int                     // how often the store did not answer
	failure  error                   // the last time
}

// storeQueueWaiting reports whether any message in the inbox waits for the store.
func (s *shell) storeQueueWaiting() bool {
	return s.storeQueue.failures > 0 && slices.ContainsFunc(s.mailbox.Inbox, func(m *state.Message) bool { return s.needsStore(m) && !s.storeQueue.done[m] })
}

// handleInActivity carries out a message outside the workflow task. It stays in the inbox until that is done.
func (s *shell) handleInActivity(m *state.Message) {
	s.storeQueue.running = true
	s.trackOperation(func(ctx workflow.Context) {
		err := s.handleMessage(outsideTask(ctx), m)
		s.storeQueue.running = false
		if isOutage(err) {
			m.Damaged = dependencyOf(err) == depDamagedObject
			s.backOff(dependencyOf(err), err)
			return
		}
		s.outages[depStore] = outage{}
		if s.storeQueue.done == nil {
			s.storeQueue.done = map[*state.Message]bool{}
		}
		s.storeQueue.done[m] = true
	})
}

// runInStoreQueue carries out an update that needs the store, after the messages before it. A caller waits for the answer, so the queued
// messages are tried now. If the store is still unavailable, the update returns that error, and nothing has changed.
func (s *shell) runInStoreQueue(ctx workflow.Context, do func(workflow.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	failures := s.storeQueue.failures
	storeFailed := func() bool { return s.storeQueue.failures > failures }
	if s.storeQueueWaiting() {
		s.outages[depStore].until, s.woken = time.Time{}, true
	}
	if err := workflow.Await(ctx, func() bool { return !s.storeQueueWaiting() || storeFailed() }); err != nil {
		return nil, err
	}
	if err := s.storeQueue.mutex.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.storeQueue.mutex.Unlock()
	out, err := s.withLock(ctx, func(ctx workflow.Context) (json.RawMessage, error) {
		switch {
		case s.storeQueueWaiting() || storeFailed():
			return nil, s.storeQueue.failure
		case s.failedBefore(depStore):
			return nil, errOutsideTask
		}
		out, err := do(ctx)
		if s.countFailure(depStore, err) && isTimedOut(err) {
			err = errOutsideTask
		}
		return out, err
	})
	if !errors.Is(err, errOutsideTask) {
		return out, err
	}
	s.storeQueue.running = true
	defer func() { s.storeQueue.running = false }()
	if out, err = do(outsideTask(ctx)); !s.countFailure(depStore, err) {
		s.outages[depStore] = outage{}
	}
	return out, err
}

// errOutsideTask: the message must be carried out outside the workflow task.
var errOutsideTask = errors.New("outside the workflow task")
