package workflows

import (
	"encoding/json"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// entity is what the shell asks of the workflow that it serves.
type entity interface {
	// known tells whether there is anything yet that verbs could be judged by.
	known() bool
	// judge says what a verb would do, or why it may not be done now. Nothing has changed yet.
	judge(row *verb.Row, r verb.Request, who entities.Who) (state.Effect, error)
	// follows says what comes of what was done, and what still stands before it; "": there is nothing to say.
	follows(row *verb.Row, r verb.Request) string
	// checkNames refuses a request that names what does not exist: all that is judged before a token is looked at.
	checkNames(r verb.Request) error
	// rules are how callers prove who they are, and what they may do. Not ruled: verbs are free to all.
	rules() (identity *entities.Identity, grants []entities.Grant, ruled bool)
	// channels are those that a request concerns, which grants are asked for; none: the whole.
	channels(row *verb.Row, r verb.Request) ([]string, error)
	// flushAt is how many audit lines wait before they are written to the store.
	flushAt() int
	// turn does what follows from state.
	turn()
	// over tells whether the workflow has nothing to live for any more, when it is at rest.
	over() bool
	// accepted tells states apart by what was accepted and decided: a checkpoint is due when it has changed.
	accepted() string
	// mark writes into a checkpoint what others than the workflow read of it.
	mark(c *protocol.Checkpoint)
	// dropped forgets what was under way, which has been cancelled.
	dropped()
	// begins says above what a workflow counts of which nothing is left but its numbers.
	begins(floor int64)
	// adoptedState follows when a state was taken over from a checkpoint: in it are things under way that are not.
	adoptedState(c protocol.AdoptAnswer, why *protocol.Restart)
	// next is the workflow type and the input of the next run, which carries the state.
	next(protocol.Carried) (workflowType string, input any)
}

// plain is an entity that verbs concern as a whole, and that never ends.
type plain struct{}

func (plain) known() bool                                        { return true }
func (plain) follows(*verb.Row, verb.Request) string             { return "" }
func (plain) over() bool                                         { return false }
func (plain) begins(int64)                                       {}
func (plain) mark(*protocol.Checkpoint)                          {}
func (plain) checkNames(verb.Request) error                      { return nil }
func (plain) channels(*verb.Row, verb.Request) ([]string, error) { return nil, nil }

// shell is what the workflows that live for ever have in common: what comes to them is kept in an inbox and
// carried out in order, once per request id, by those who may; what waits for somebody outside who does not answer
// is tried again; what is refused shows; audit lines reach the store; and the state goes from run to run.
//
// Invariant: everything that was accepted is in state before the loop waits again, and state is all that the next
// run gets. So a verb that was answered, and a signal that was received, survive continue-as-new, a worker's death
// and a server's restart. No run ends with anything in flight that the next one could not start again.
type shell struct {
	ctx  workflow.Context
	of   entity
	name string // for people: "shop/web"
	// application and service own the audit lines.
	application, service string
	title                func() string                                       // what people call the service; nil: it is none
	enters               func(entities.AuditLine) (incarnation, since int64) // of a line, as state.Enters; nil: of none
	whole                any                                                 // its state; desk is a part
	desk                 *state.Desk                                         // what it remembers of those who talk to it
	verbs                []verb.Row
	messages             map[string]message       // by name: from other workflows, or written by the workflow itself
	answers              map[string]answering     // verbs that answer more than a line
	outcomes             map[string]following     // verbs whose updates are answered later than they are accepted
	noted                func(entities.AuditLine) // nil: nobody else wants to know what was noted
	stops                []string                 // what a person does instead of cancelling the workflow
	requested            workflow.Context         // done once somebody requests cancellation
	work                 workflow.Context         // of what is under way
	dropWork             workflow.CancelFunc      // cancels that
	lock                 workflow.Mutex
	restored             bool   // state is what the last run left
	cancelled            bool   // somebody requested cancellation in this run
	begun                bool   // the first turn is over
	idle                 bool   // between two turns
	woken                bool   // something happened since the last turn
	hinted               bool   // that a plan lets it enter
	answered             bool   // an update was answered in this run
	postponed            bool   // the end of this run was postponed for it
	adopting             bool   // a checkpoint is being taken over
	adopted              bool   // it was, after a reset
	fenced               bool   // an apply was refused, since something later is known elsewhere
	beyond               bool   // of what a reset run was made from: it has to adopt
	asked                int    // length of history when that was asked last
	handed               bool   // the newest checkpoint was handed over by this worker
	base                 int64  // of the numbers of this run's checkpoints
	takesState           bool   // the store said that it would, since it did not
	storing              bool   // audit lines are on their way to the store
	trail                trail  // how much of the audit trail is committed
	followed             string // of the audit trail, which no checkpoint knew
	busy                 int    // what is in flight that no run may end with
	timer                timer
	outages              outages
	large                largeAnswers
	line                 line
	held                 int // bytes of payloads in the inbox
	hints                int // of other workflows in the inbox
	untried              int // signals in the inbox that no pass has come to
	passes               int // through the inbox
}

// message is what other workflows say, and what a workflow writes into its own inbox.
type message struct {
	take  func(workflow.Context, json.RawMessage) error
	needs outside
	own   bool   // no signal
	look  string // what says as much as any number of them; empty: nothing
}

// answering carries out a verb that has an answer of its own, under the lock.
type answering func(workflow.Context, verb.Request, entities.Who) (any, error)

// following waits, without the lock, for what follows from a verb that was accepted, and answers that.
type following func(workflow.Context, json.RawMessage) (json.RawMessage, error)

// live is the life of an entity, from run to run.
func (s *shell) live(in protocol.Carried, first protocol.Beginning) error {
	s.requested = s.ctx
	s.ctx = uncancelled(s.ctx)
	s.lock, s.line.mutex = workflow.NewMutex(s.ctx), workflow.NewMutex(s.ctx)
	s.beginWork()
	// Handlers first: an update that comes while spilled state is being fetched would find none.
	if err := s.listen(); err != nil {
		return err
	}
	if err := s.restore(in, first); err != nil {
		return err
	}
	for {
		if err := s.adoptWhenDue(); err != nil {
			return err
		}
		s.collect()
		s.woken = false
		s.receive()
		s.of.turn()
		s.keepTrail()
		s.begun = true
		if s.woken {
			continue
		}
		if s.atRest() && len(s.desk.Audit) == 0 && s.of.over() {
			s.checkpoint(true)
			return nil
		}
		s.checkpoint(false)
		if s.leaving() {
			if err := s.endRun(); err != nil {
				return err
			}
			continue
		}
		s.idle = true
		if err := workflow.Await(s.ctx, s.hasNews); err != nil {
			return err
		}
		s.idle = false
	}
}

// hasNews wakes the loop. Signals of a name that nobody listens to are news too: they are refused
// visibly instead of being lost. So is a request to cancel, and that the run was reset.
func (s *shell) hasNews() bool {
	return s.woken || len(workflow.GetUnhandledSignalNames(s.ctx)) > 0 || reservedCame(s.ctx) || s.requested.Err() != nil && !s.cancelled || s.mustAdopt() || s.fenced
}

// uncancelled is a context that a request to cancel the workflow does not reach: what lives for ever ends by a verb
// only, which is judged, or by force.
func uncancelled(ctx workflow.Context) workflow.Context {
	out, _ := workflow.NewDisconnectedContext(ctx)
	return out
}

// refuseCancellation keeps for `status` that somebody requested cancellation, which changes nothing, and what to do
// instead. A run hears of it once.
func (s *shell) refuseCancellation() {
	if s.requested.Err() == nil || s.cancelled {
		return
	}
	s.cancelled = true
	s.refuse("request-cancel", nil, "a workflow of Converge is not cancelled; instead: "+strings.Join(s.stops, ", or: "), s.now())
}

// ending: the server suggests that this run continues as new, or another version of workers is current. It does at the first
// quiet moment, and works until then.
func (s *shell) ending() bool {
	info := workflow.GetInfo(s.ctx)
	return info.GetContinueAsNewSuggested() || info.GetTargetWorkerDeploymentVersionChanged()
}

// leaving: this is that moment. What is due is begun by the next run, unless this one has to go on for now.
func (s *shell) leaving() bool { return s.ending() && s.atRest() && !s.outages.open(theNextRun) }

// A run that could not end for so long, in events and in bytes, begins nothing new any more, but for rollbacks, so that
// a quiet moment comes. The server suggests to continue as new at 4,096 and 4 MiB, and ends a run by force at 51,200 and 50 MB
// (docs/decisions/0007-pinned-runs-move-by-continue-as-new.md).
const (
	drainLength = 20_480
	drainSize   = 20 << 20
)

// drains: nothing new is begun.
func (s *shell) drains() bool {
	switch info := workflow.GetInfo(s.ctx); {
	case !s.ending():
		return false
	case s.leaving():
		return true
	default:
		return info.GetCurrentHistoryLength() >= drainLength || info.GetCurrentHistorySize() >= drainSize
	}
}

// atRest: nothing is in flight that the next run could not start again.
func (s *shell) atRest() bool {
	return s.busy == 0 && !s.lock.IsLocked() && workflow.AllHandlersFinished(s.ctx)
}

// await runs a coroutine that takes in the result of something in flight, which no run ends with.
func (s *shell) await(take func(workflow.Context)) {
	s.busy++
	workflow.Go(s.ctx, func(ctx workflow.Context) {
		take(ctx)
		s.busy--
		s.woken = true
	})
}

func (s *shell) now() time.Time { return workflow.Now(s.ctx) }

// timer is what a run waits for by time.
type timer struct {
	at     time.Time
	cancel workflow.CancelFunc
}

// wakeAt arranges that the loop wakes at a time, or when somebody who did not answer is asked again; zero is never.
func (s *shell) wakeAt(at time.Time, why func(time.Time) string) {
	at = earliest(at, s.outages.next())
	if !s.timer.at.IsZero() && !at.IsZero() && !at.Before(s.timer.at) {
		return // it fires early, and then the loop decides again
	}
	s.set(&s.timer, at, why)
}

// set makes a timer one that wakes the loop at a time; zero is never.
func (s *shell) set(t *timer, at time.Time, why func(time.Time) string) {
	if t.at.Equal(at) {
		return
	}
	if !t.at.IsZero() {
		t.cancel()
		*t = timer{}
	}
	if at.IsZero() || s.leaving() {
		return
	}
	ctx, cancel := workflow.WithCancel(s.ctx)
	*t = timer{at: at, cancel: cancel}
	due := max(at.Sub(workflow.Now(ctx)), time.Millisecond)
	future := workflow.NewTimerWithOptions(ctx, due, workflow.TimerOptions{Summary: why(at)})
	workflow.Go(ctx, func(ctx workflow.Context) {
		if future.Get(ctx, nil) == nil && t.at.Equal(at) {
			*t = timer{}
			s.woken = true
		}
	})
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

const (
	maxText    = 500 // bytes of what is kept of why something was refused or failed
	maxSummary = 120 // bytes of a line for the Temporal UI
)

func clip(text string) string { return verb.Clip(text, maxText) }

func summary(text string) string { return verb.Clip(text, maxSummary) }
