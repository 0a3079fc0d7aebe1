package workflows

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities/protocol"
)

// Runtime is the life of one runtime (C10, A16): it bounds how many applies go on there at once, over
// all services, and remembers whether it is paused.
//
// Invariant: at most Limit leases are held, except where a person granted more or the limit was lowered
// meanwhile; a lease that was asked for is granted in its turn, or ends with its holder. State is all
// that the next run gets; no run ends with a signal of its own in flight.
func Runtime(ctx workflow.Context, in protocol.RuntimeInput) error {
	r, err := newRuntime(ctx, in)
	if err != nil {
		return err
	}
	for {
		r.collect()
		r.woken = false
		r.carryOut()
		if r.ending() && r.atRest() {
			if err := r.endRun(); err != nil {
				return err
			}
			continue
		}
		if err := workflow.Await(ctx, r.hasNews); err != nil {
			return err
		}
	}
}

// runtime is one run of a Runtime workflow.
type runtime struct {
	ctx   workflow.Context
	name  string
	state *protocol.RuntimeState
	holds holds
	woken bool
	// restored: state is what the last run left.
	restored bool
	busy     int       // signals on their way
	timer    time.Time // when the one timer fires; zero: there is none
	shown    string
}

func newRuntime(ctx workflow.Context, in protocol.RuntimeInput) (*runtime, error) {
	r := &runtime{ctx: ctx, name: in.Runtime, state: &protocol.RuntimeState{}}
	r.holds = holds{ctx: ctx, ended: r.holdEnded}
	// Handlers first: an update that comes while spilled state is being fetched would find none.
	if err := r.listen(); err != nil {
		return nil, err
	}
	packed := in.Packed
	if in.Spilled != "" {
		var err error
		if packed, err = fetchSpilled(ctx, in.Spilled); err != nil {
			return nil, err
		}
	}
	if packed != nil {
		if err := packed.Unpack(r.state); err != nil {
			return nil, fmt.Errorf("carried state of runtime %s: %w", in.Runtime, err)
		}
	}
	if in.State != nil {
		r.state = in.State
	}
	r.restored = true
	return r, nil
}

func (r *runtime) leases() ledger { return ledger{r.state} }

func (r *runtime) hasNews() bool {
	return r.woken || len(workflow.GetUnhandledSignalNames(r.ctx)) > 0
}

// ending: the server wants this run to continue as new; nothing new is started any more.
func (r *runtime) ending() bool { return workflow.GetInfo(r.ctx).GetContinueAsNewSuggested() }

func (r *runtime) atRest() bool {
	return r.busy == 0 && !r.holds.running && workflow.AllHandlersFinished(r.ctx)
}

// carryOut grants what can be granted, asks whom it is time to ask, and tells of a pause.
func (r *runtime) carryOut() {
	r.show()
	if r.ending() {
		r.holds.end()
		return
	}
	now := workflow.Now(r.ctx)
	for _, h := range r.leases().grant(now) {
		r.signal(h, protocol.SignalGranted)
	}
	for _, h := range r.leases().overdue(now) {
		if h.Untold {
			r.signal(h, protocol.SignalGranted)
		} else {
			r.signal(h, protocol.SignalHeld)
		}
	}
	if r.state.Untold {
		r.holds.tell(protocol.HoldRequest{
			Runtime: r.name, HoldSignal: protocol.HoldSignal{Scope: protocol.RuntimeID(r.name), Pause: r.state.Pause},
		})
	}
	r.wakeAt(r.leases().due())
	r.show()
}

// signal tells a holder of its lease. One that is not there any more loses all that it has.
func (r *runtime) signal(h protocol.HeldLease, name string) {
	r.busy++
	future := workflow.SignalExternalWorkflow(r.ctx, h.Holder, "", name, protocol.LeaseSignal{ID: h.ID, Runtime: r.name})
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		err := future.Get(ctx, nil)
		r.busy--
		var gone *temporal.UnknownExternalWorkflowExecutionError
		switch {
		case errors.As(err, &gone):
			for _, lost := range r.leases().lose(h.Holder) {
				r.note(auditLease, nil, "lease of "+named(lost)+" ended", h.Holder+" is not there any more")
			}
			r.woken = true
		case name == protocol.SignalGranted:
			before := h.Untold
			r.leases().told(h.ID, err == nil, workflow.Now(ctx))
			r.woken = r.woken || err != nil || before
		}
		r.woken = r.woken || r.ending()
	})
}

func (r *runtime) holdEnded(err error) {
	r.woken = true
	switch {
	case temporal.IsCanceledError(err):
	case err != nil: // its worker went away for over an hour: begin again
		r.state.Problem = "services are not told yet: " + rootCause(err)
	case r.holds.of.Pause == r.state.Pause:
		r.state.Untold, r.state.Problem = false, ""
	}
}

// wakeAt arranges that the loop wakes at a time, or before. A timer that is there is left: it fires
// once in an apply's time, which costs less than another one for each lease.
func (r *runtime) wakeAt(at time.Time) {
	if at.IsZero() || !r.timer.IsZero() && !r.timer.After(at) {
		return
	}
	r.timer = at
	due := max(at.Sub(workflow.Now(r.ctx)), time.Millisecond)
	future := workflow.NewTimerWithOptions(r.ctx, due, workflow.TimerOptions{Summary: "a lease is overdue"})
	workflow.Go(r.ctx, func(ctx workflow.Context) {
		if future.Get(ctx, nil) == nil && r.timer.Equal(at) {
			r.timer, r.woken = time.Time{}, true
		}
	})
}

// endRun hands the state to the next run, signals that have arrived meanwhile included. It returns nil
// when this run has to go on for now: the store does not take the state, or something came while it did.
func (r *runtime) endRun() error {
	r.collect()
	in := protocol.RuntimeInput{Runtime: r.name}
	if !protocol.Large(r.state) {
		in.State = r.state
		return workflow.NewContinueAsNewError(r.ctx, protocol.RuntimeWorkflow, in)
	}
	packed, err := protocol.Pack(r.state)
	if err != nil {
		return fmt.Errorf("state of runtime %s: %w", r.name, err)
	}
	if len(packed) <= packedLimit {
		in.Packed = packed
		return workflow.NewContinueAsNewError(r.ctx, protocol.RuntimeWorkflow, in)
	}
	r.woken = false
	err = fromStore(r.ctx, protocol.ActivitySpill, protocol.SpillRequest{Packed: packed}, &in.Spilled)
	switch {
	case isStoreError(err):
		r.state.Problem = errorText(err)
		return workflow.Sleep(r.ctx, margin)
	case err != nil:
		return err
	case r.hasNews() || !r.atRest():
		return nil
	}
	return workflow.NewContinueAsNewError(r.ctx, protocol.RuntimeWorkflow, in)
}
