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

// entity is the interface of the workflow that the shell runs.
type entity interface {
	// known reports whether there is any state yet that verbs can be judged by.
	known() bool
	// judge returns the effect of a verb, or why it is not allowed now. It changes nothing.
	judge(row *verb.Row, r verb.Request, who entities.Who) (state.Effect, error)
	// follows describes the result of a verb, and what it still waits for; "" if there is nothing to say.
	follows(row *verb.Row, r verb.Request) string
	// checkNames refuses a request with names that do not exist. It is the only check before a token is verified.
	checkNames(r verb.Request) error
	// rules are how callers prove their identity, and what they may do. If ruled is false, everyone may use all verbs.
	rules() (identity *entities.Identity, grants []entities.Grant, ruled bool)
	// channels are the channels that a request is about, each of which needs a grant; none means the whole entity.
	channels(row *verb.Row, r verb.Request) ([]string, error)
	// flushAt is how many audit lines are buffered before they are written to the store.
	flushAt() int
	// turn does the work that the state requires.
	turn()
	// over reports whether the workflow should end; it is called when the workflow is at rest.
	over() bool
	// accepted identifies the accepted messages and decisions so far: a checkpoint is due when it has changed.
	accepted() string
	// mark adds to a checkpoint the fields that others than the workflow read.
	mark(c *protocol.Checkpoint)
	// dropped resets the work in progress, which was cancelled.
	dropped()
	// begins sets the lower bound of the workflow's numbers if only the numbers are left of an earlier one.
	begins(floor int64)
	// adoptedState runs after a state was restored from a checkpoint: operations that it has as in progress are not.
	adoptedState(c protocol.AdoptAnswer, why *protocol.Restart)
	// next is the workflow type and the input of the next run, which carries the state.
	next(protocol.Carried) (workflowType string, input any)
}

// plain is an entity whose verbs concern it as a whole, and that never ends.
type plain struct{}

func (plain) known() bool                                        { return true }
func (plain) follows(*verb.Row, verb.Request) string             { return "" }
func (plain) over() bool                                         { return false }
func (plain) begins(int64)                                       {}
func (plain) mark(*protocol.Checkpoint)                          {}
func (plain) checkNames(verb.Request) error                      { return nil }
func (plain) channels(*verb.Row, verb.Request) ([]string, error) { return nil, nil }

// shell is the common part of the workflows that live forever. It keeps incoming messages in an inbox and carries them out in order, once
// per request id, if the caller is authorized. A message that waits for an unavailable dependency is retried. Refusals are shown, audit
// lines are written to the store, and the state is carried from run to run.
//
// Invariant: everything that was accepted is in state before the loop waits again, and the next run gets nothing but the state. So a verb
// that was answered, and a signal that was received, survive continue-as-new, the death of a worker and a restart of the server. No run
// ends with an operation in flight that the next one could not start again.
type shell struct {
	ctx  workflow.Context
	of   entity
	name string // for display: "shop/web"
	// application and service own the audit lines.
	application, service string
	title                func() string                                       // display name of the service; nil if there is none
	enters               func(entities.AuditLine) (incarnation, since int64) // per line, as state.Enters; nil if it has none
	whole                any                                                 // the whole state, which contains desk
	desk                 *state.Desk                                         // the part of the state about callers
	verbs                []verb.Row
	messages             map[string]message       // by name: from other workflows, or written by the workflow itself
	answers              map[string]answering     // verbs with an answer of more than one line
	outcomes             map[string]following     // verbs whose updates are answered after they are accepted
	noted                func(entities.AuditLine) // called for each audit line; may be nil
	stops                []string                 // what to do instead of cancelling the workflow
	requested            workflow.Context         // done once cancellation is requested
	work                 workflow.Context         // of the work in progress
	dropWork             workflow.CancelFunc      // cancels work
	lock                 workflow.Mutex
	restored             bool   // the state of the last run is loaded
	cancelled            bool   // cancellation was requested in this run
	begun                bool   // the first turn is over
	idle                 bool   // between two turns
	woken                bool   // an event since the last turn
	hinted               bool   // a plan hinted that the service may enter
	answered             bool   // an update was answered in this run
	postponed            bool   // the end of this run was postponed for that
	adopting             bool   // a checkpoint is being adopted
	adopted              bool   // a checkpoint was adopted after a reset
	fenced               bool   // an apply was refused, because a later one is recorded at the runtime
	beyond               bool   // this run, a reset one, is past the history that it was made from: it has to adopt
	asked                int    // length of history at the last check of that
	handed               bool   // this worker has received the newest checkpoint
	base                 int64  // added to the numbers of this run's checkpoints
	takesState           bool   // after a failure, the store reported that it would accept the state
	storing              bool   // audit lines are being written to the store
	trail                trail  // how much of the audit trail is committed
	followed             string // lines of the audit trail in the store that no checkpoint had
	busy                 int    // operations in flight that block the end of a run
	timer                timer
	outages              outages
	large                largeAnswers
	line                 line
	held                 int // bytes of payloads in the inbox
	hints                int // messages of other workflows in the inbox
	untried              int // signals in the inbox that no pass has tried
	passes               int // through the inbox
}

// message describes a message from another workflow, or one that the workflow writes into its own inbox.
type message struct {
	take  func(workflow.Context, json.RawMessage) error
	needs outside
	own   bool   // no signal
	look  string // a payload that can replace any number of these messages; empty if none can
}

// answering carries out a verb that has an answer of its own, under the lock.
type answering func(workflow.Context, verb.Request, entities.Who) (any, error)

// following waits, without the lock, for the result of an accepted verb, and returns it as the answer.
type following func(workflow.Context, json.RawMessage) (json.RawMessage, error)

// live runs an entity, from run to run.
func (s *shell) live(in protocol.Carried, first protocol.Beginning) error {
	s.requested = s.ctx
	s.ctx = uncancelled(s.ctx)
	s.lock, s.line.mutex = workflow.NewMutex(s.ctx), workflow.NewMutex(s.ctx)
	s.beginWork()
	// Handlers first: an update that arrives while spilled state is being fetched would find no handler.
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

// hasNews wakes the loop. Signals with an unknown name are news too: they are refused visibly instead of being lost. So are a request to
// cancel, and a reset of the run.
func (s *shell) hasNews() bool {
	return s.woken || len(workflow.GetUnhandledSignalNames(s.ctx)) > 0 || reservedCame(s.ctx) || s.requested.Err() != nil && !s.cancelled || s.mustAdopt() || s.fenced
}

// uncancelled is a context that a request to cancel the workflow does not cancel. A workflow that lives forever ends only by a verb, which
// is judged, or by termination.
func uncancelled(ctx workflow.Context) workflow.Context {
	out, _ := workflow.NewDisconnectedContext(ctx)
	return out
}

// refuseCancellation shows in `status` that cancellation was requested, that it has no effect, and what to do instead. It runs once per
// run.
func (s *shell) refuseCancellation() {
	if s.requested.Err() == nil || s.cancelled {
		return
	}
	s.cancelled = true
	s.refuse("request-cancel", nil, "a workflow of Converge cannot be cancelled; instead: "+strings.Join(s.stops, ", or: "), s.now())
}

// ending reports whether this run should end: the server suggests continue-as-new, or another version of workers is current. The run ends
// at the first quiet moment, and works until then.
func (s *shell) ending() bool {
	info := workflow.GetInfo(s.ctx)
	return info.GetContinueAsNewSuggested() || info.GetTargetWorkerDeploymentVersionChanged()
}

// leaving reports whether the run is ending and at rest. The next run starts the work that is due, unless this one has to continue for now.
func (s *shell) leaving() bool { return s.ending() && s.atRest() && !s.outages.open(theNextRun) }

// A run that could not end for so long, in events and in bytes, starts no new work except rollbacks, so that it comes to rest. The server
// suggests continue-as-new at 4,096 events and 4 MiB, and terminates a run at 51,200 and 50 MB
// (docs/decisions/0007-pinned-runs-move-by-continue-as-new.md).
const (
	drainLength = 20_480
	drainSize   = 20 << 20
)

// drains reports whether no new work may start.
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

// atRest reports whether no operation is in flight that the next run could not start again.
func (s *shell) atRest() bool {
	return s.busy == 0 && !s.lock.IsLocked() && workflow.AllHandlersFinished(s.ctx)
}

// await runs a coroutine that receives the result of an operation in flight. The run does not end before it is done.
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

// wakeAt schedules a wake-up of the loop, at the given time or at the next retry of an unavailable dependency; zero is never.
func (s *shell) wakeAt(at time.Time, why func(time.Time) string) {
	at = earliest(at, s.outages.next())
	if !s.timer.at.IsZero() && !at.IsZero() && !at.Before(s.timer.at) {
		return // the existing timer fires earlier, and then the loop decides again
	}
	s.set(&s.timer, at, why)
}

// set changes a timer to wake the loop at a time; zero is never.
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
	maxText    = 500 // bytes of the stored reason of a refusal or failure
	maxSummary = 120 // bytes of a line for the Temporal UI
)

func clip(text string) string { return verb.Clip(text, maxText) }

func summary(text string) string { return verb.Clip(text, maxSummary) }
