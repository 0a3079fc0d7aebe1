package workflows

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/state"
)

// line is the queue of messages that need the store: releases and publications. They are carried out in the order in which they were
// accepted. The first one may wait for the store without the lock, so that everything else continues.
type line struct {
	mutex    workflow.Mutex          // of updates
	aside    bool                    // a message is being carried out outside the workflow task
	done     map[*state.Message]bool // carried out that way, and still in the inbox
	failures int                     // how often the store did not answer
	failure  error                   // the last time
}

// waiting reports whether any message in the inbox waits for the store.
func (s *shell) waiting() bool {
	return s.line.failures > 0 && slices.ContainsFunc(s.desk.Inbox, func(m *state.Message) bool { return s.ofStore(m) && !s.line.done[m] })
}

// carryAside carries out a message outside the workflow task. It stays in the inbox until that is done.
func (s *shell) carryAside(m *state.Message) {
	s.line.aside = true
	s.await(func(ctx workflow.Context) {
		err := s.carryOut(beside(ctx), m)
		s.line.aside = false
		if isOutage(err) {
			m.Damaged = outageOf(err) == theDamaged
			s.backOff(outageOf(err), err)
			return
		}
		s.outages[theStore] = outage{}
		if s.line.done == nil {
			s.line.done = map[*state.Message]bool{}
		}
		s.line.done[m] = true
	})
}

// inLine carries out an update that needs the store, after the messages before it. A caller waits for the answer, so the queued messages
// are tried now. If the store is still unavailable, the update returns that error, and nothing has changed.
func (s *shell) inLine(ctx workflow.Context, do func(workflow.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	failures := s.line.failures
	failed := func() bool { return s.line.failures > failures }
	if s.waiting() {
		s.outages[theStore].until, s.woken = time.Time{}, true
	}
	if err := workflow.Await(ctx, func() bool { return !s.waiting() || failed() }); err != nil {
		return nil, err
	}
	if err := s.line.mutex.Lock(ctx); err != nil {
		return nil, err
	}
	defer s.line.mutex.Unlock()
	out, err := s.locked(ctx, func(ctx workflow.Context) (json.RawMessage, error) {
		switch {
		case s.waiting() || failed():
			return nil, s.line.failure
		case s.patient(theStore):
			return nil, errAside
		}
		out, err := do(ctx)
		if s.failed(theStore, err) && isCutShort(err) && s.patient(theStore) {
			err = errAside
		}
		return out, err
	})
	if !errors.Is(err, errAside) {
		return out, err
	}
	s.line.aside = true
	defer func() { s.line.aside = false }()
	if out, err = do(beside(ctx)); !s.failed(theStore, err) {
		s.outages[theStore] = outage{}
	}
	return out, err
}

// errAside: the message must be carried out outside the workflow task.
var errAside = errors.New("outside the workflow task")
