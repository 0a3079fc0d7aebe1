package workflows

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Service is the life of one service: a convergence loop that ends when it is taken down.
//
// Invariant: everything that was accepted is in state before the loop waits again, and state is
// all that the next run gets. So a verb that was answered, and a signal that was received, survive
// continue-as-new, a worker's death and a server's restart. No run ends with an apply, an extension
// or a question in flight; looks and announcements are dropped and started anew. The workflow ends
// when the service was taken down (A24).
func Service(ctx workflow.Context, in protocol.ServiceInput) error {
	s, err := newService(ctx, in)
	if err != nil {
		return err
	}
	for {
		s.collect()
		s.woken = false
		s.receive()
		s.carryOut(s.state.Settle(workflow.Now(ctx), entities.Mode{Drain: s.ending()}))
		s.begun = true
		if s.woken {
			continue
		}
		if s.mayLeave() {
			return nil
		}
		if s.ending() && s.atRest() {
			if err := s.endRun(); err != nil {
				return err
			}
			continue
		}
		clear(s.justRead)
		if err := workflow.Await(ctx, s.hasNews); err != nil {
			return err
		}
	}
}

// service is one run of a Service workflow.
type service struct {
	ctx       workflow.Context
	runs      int64
	state     *entities.State
	decision  *entities.Decision
	restored  bool // state is what the last run left
	begun     bool // the first turn is over
	woken     bool // something happened since the last decision
	answered  bool // an update was answered in this run
	postponed bool // the end of this run was postponed for it
	busy      int  // what is in flight that no run may end with
	lock      workflow.Mutex
	watches   map[string]*watch
	timer     timer
	checking  *checking
	justRead  map[entities.CheckLook]entities.CheckReading // by what woke this turn; Known is left out
	outages   outages
	storing   bool            // audit lines are on their way to the store
	telling   map[string]bool // by notification: an announcement is on its way
	goneAt    time.Time       // when all was taken down
	shown     shown
}

func newService(ctx workflow.Context, in protocol.ServiceInput) (*service, error) {
	s := &service{ctx: ctx, runs: in.Runs, lock: workflow.NewMutex(ctx), watches: map[string]*watch{}, justRead: map[entities.CheckLook]entities.CheckReading{}}
	s.state, s.decision = entities.NewState(in.Application, in.Service), &entities.Decision{}
	// Handlers first: an update that comes while spilled state is being fetched would find none.
	if err := s.listen(); err != nil {
		return nil, err
	}
	state, err := restore(ctx, in)
	if err != nil {
		return nil, err
	}
	state.Inbox = append(state.Inbox, s.state.Inbox...)
	s.state, s.restored = state, true
	s.collect() // what the run was started with
	return s, nil
}

// hasNews wakes the loop. Signals of a name that nobody listens to are news too: they are refused
// visibly instead of being lost.
func (s *service) hasNews() bool {
	return s.woken || len(workflow.GetUnhandledSignalNames(s.ctx)) > 0
}

// ending: the server wants this run to continue as new; nothing new is started any more.
func (s *service) ending() bool { return workflow.GetInfo(s.ctx).GetContinueAsNewSuggested() }

// atRest: nothing is in flight that the next run could not start again.
func (s *service) atRest() bool {
	return s.busy == 0 && !s.lock.IsLocked() && workflow.AllHandlersFinished(s.ctx)
}

// carryOut does what the decision says, in this order: questions answered from the store lead to
// another decision at once; then work starts, looks are arranged, and people are told.
func (s *service) carryOut(d *entities.Decision) {
	s.decision = d
	for _, op := range d.Renders {
		s.render(op)
	}
	for _, op := range d.Applies {
		s.apply(op)
	}
	for _, op := range d.Asks {
		s.ask(op)
	}
	for _, op := range d.Preflights {
		s.preflight(op)
	}
	for _, op := range d.Extensions {
		s.extend(op)
	}
	for _, op := range d.Removes {
		s.remove(op)
	}
	for _, op := range d.Leases {
		s.lease(op)
	}
	s.arrangeWatches()
	s.arrangeChecks()
	s.keepTrail()
	s.announce()
	s.wakeAt(earliest(earliest(d.Wake, s.outages.next()), s.lastWordBy()))
	if glancing := s.checking != nil && s.checking.here; !s.woken && !glancing { // else there is more to show in a moment
		s.show()
	}
}

// endRun continues as new, if it can be helped not in the workflow task that answers an update: a
// signal that comes just then makes the server throw that task away, and the answer with it. It
// waits once only, or a stream of updates would keep the run from ever ending.
func (s *service) endRun() error {
	if s.answered && !s.postponed {
		s.postponed = true
		return workflow.Sleep(s.ctx, time.Millisecond)
	}
	return s.continueAsNew()
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
