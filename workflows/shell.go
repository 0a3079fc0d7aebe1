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
	// initialized reports whether there is any state yet that verbs can be judged by.
	initialized() bool
	// judge returns the effect of a verb, or why it is not allowed now. It changes nothing.
	judge(row *verb.Row, r verb.Request, who entities.Who) (state.Effect, error)
	// followUp describes the result of a verb, and what it still waits for, in lines; none if there is nothing to say.
	followUp(row *verb.Row, r verb.Request) []string
	// checkNames refuses a request with names that do not exist. It is the only check before a token is verified.
	checkNames(r verb.Request) error
	// rules are how callers prove their identity, and what they may do. If ruled is false, everyone may use all verbs.
	rules() (identity *entities.Identity, grants []entities.Grant, ruled bool)
	// channels are the channels that a request is about, each of which needs a grant; none means the whole entity.
	channels(row *verb.Row, r verb.Request) ([]string, error)
	// auditBufferSize is how many audit lines are buffered before they are written to the store.
	auditBufferSize() int
	// reconcile does the work that the state requires.
	reconcile()
	// finished reports whether the workflow should end; it is called when the workflow is at rest.
	finished() bool
	// accepted identifies the accepted messages and decisions so far: a checkpoint is due when it has changed.
	accepted() string
	// fillCheckpoint adds to a checkpoint the fields that others than the workflow read.
	fillCheckpoint(c *protocol.Checkpoint)
	// resetWork resets the work in progress, which was cancelled.
	resetWork()
	// onFirstRun sets the lower bound of the workflow's numbers if only the numbers are left of an earlier one.
	onFirstRun(floor int64)
	// adoptedState runs after a state was restored from a checkpoint: operations that it has as in progress are not. text says that it
	// continues, and why, for the journal and the audit trail.
	adoptedState(c protocol.AdoptAnswer, text string)
	// nextRun is the workflow type and the input of the next run, which carries the state.
	nextRun(protocol.CarriedState) (workflowType string, input any)
}

// entityDefaults is an entity whose verbs concern it as a whole, and that never ends.
type entityDefaults struct{}

func (entityDefaults) initialized() bool                                  { return true }
func (entityDefaults) followUp(*verb.Row, verb.Request) []string          { return nil }
func (entityDefaults) finished() bool                                     { return false }
func (entityDefaults) onFirstRun(int64)                                   {}
func (entityDefaults) fillCheckpoint(*protocol.Checkpoint)                {}
func (entityDefaults) checkNames(verb.Request) error                      { return nil }
func (entityDefaults) channels(*verb.Row, verb.Request) ([]string, error) { return nil, nil }

// shell is the common part of the workflows that live forever. It keeps incoming messages in an inbox and carries them out in order, once
// per request id, if the caller is authorized. A message that waits for an unavailable dependency is retried. Refusals are shown, audit
// lines are written to the store, and the state is carried from run to run.
//
// Invariant: everything that was accepted is in state before the loop waits again, and the next run gets nothing but the state. So a verb
// that was answered, and a signal that was received, survive continue-as-new, the death of a worker and a restart of the server. No run
// ends with an operation in flight that the next one could not start again.
type shell struct {
	ctx    workflow.Context
	entity entity
	name   string // for display: "shop/web"
	// application and service own the audit lines.
	application, service string
	title                func() string                                        // display name of the service; nil if there is none
	commandsFor          func(entities.AuditEntry) []string                   // that a person can use after what a line tells; nil if there are none
	incarnationsOf       func(entities.AuditEntry) (incarnation, since int64) // per line, as State.EntryIncarnations; nil if it has none
	fullState            any                                                  // the whole state, which contains mailbox
	mailbox              *state.Mailbox                                       // the part of the state about callers
	verbs                []verb.Row
	messages             map[string]message        // by name: from other workflows, or written by the workflow itself
	answerHandlers       map[string]answerHandler  // verbs with an answer of more than one line
	outcomeHandlers      map[string]outcomeHandler // verbs whose updates are answered after they are accepted
	onAudit              func(entities.AuditEntry) // called for each audit line; may be nil
	cancelAlternatives   []string                  // what to do instead of cancelling the workflow
	cancelCtx            workflow.Context          // done once cancellation is requested
	workCtx              workflow.Context          // of the work in progress
	cancelWork           workflow.CancelFunc       // cancels workCtx
	lock                 workflow.Mutex
	restored             bool        // the state of the last run is loaded
	cancelRefused        bool        // cancellation was requested in this run
	reconciledOnce       bool        // reconcile has run once
	idle                 bool        // between two reconciliations
	woken                bool        // an event since the last reconciliation
	planHinted           bool        // a plan hinted that the service may enter
	updateAnswered       bool        // an update was answered in this run
	endPostponed         bool        // the end of this run was postponed for that
	ending               bool        // endRun is running
	adopting             bool        // a checkpoint is being adopted
	adopted              bool        // a checkpoint was adopted after a reset
	fenced               bool        // an apply was refused, because a later one is recorded at the runtime
	pastOldHistory       bool        // this run, a reset one, is past the history that it was made from: it has to adopt
	checkedAtLength      int         // length of history at the last check of that
	checkpointSubmitted  bool        // this worker has received the newest checkpoint
	checkpointBase       int64       // added to the numbers of this run's checkpoints
	storeAcceptsState    bool        // after a failure, the store reported that it would accept the state
	storingAudit         bool        // audit lines are being written to the store
	auditCommit          auditCommit // how much of the audit trail is committed
	uncheckpointedLines  string      // lines of the audit trail in the store that no checkpoint had
	inFlight             int         // operations in flight that block the end of a run
	timer                timer
	outages              outages
	large                largeAnswers
	storeQueue           storeQueue
	inboxBytes           int // bytes of payloads in the inbox
	inboxHints           int // messages of other workflows in the inbox
	untriedSignals       int // signals in the inbox that no pass has tried
	inboxPasses          int // through the inbox
}

// message describes a message from another workflow, or one that the workflow writes into its own inbox.
type message struct {
	handle     func(workflow.Context, json.RawMessage) error
	dependency dependency
	internal   bool   // no signal
	coalesced  string // a payload that can replace any number of these messages; empty if none can
}

// answerHandler carries out a verb that has an answer of its own, under the lock.
type answerHandler func(workflow.Context, verb.Request, entities.Who) (any, error)

// outcomeHandler waits, without the lock, for the result of an accepted verb, and returns it as the answer.
type outcomeHandler func(workflow.Context, json.RawMessage) (json.RawMessage, error)

// runLoop runs an entity, from run to run.
func (s *shell) runLoop(in protocol.CarriedState, first protocol.StartMode) error {
	s.cancelCtx = s.ctx
	s.ctx = withoutCancel(s.ctx)
	s.lock, s.storeQueue.mutex = workflow.NewMutex(s.ctx), workflow.NewMutex(s.ctx)
	s.startWork()
	// Handlers first: an update that arrives while spilled state is being fetched would find no handler.
	if err := s.registerHandlers(); err != nil {
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
		s.processInbox()
		s.entity.reconcile()
		s.flushAudit()
		s.reconciledOnce = true
		if s.woken {
			continue
		}
		if s.quiescent() && len(s.mailbox.Audit) == 0 && s.entity.finished() {
			s.checkpoint(true)
			return nil
		}
		s.checkpoint(false)
		if s.readyToEnd() {
			if err := s.endRun(); err != nil {
				return err
			}
			continue
		}
		s.idle = true
		if err := workflow.Await(s.ctx, s.shouldWake); err != nil {
			return err
		}
		s.idle = false
	}
}

// shouldWake wakes the loop. Signals with an unknown name are news too: they are refused visibly instead of being lost. So are a request to
// cancel, and a reset of the run.
func (s *shell) shouldWake() bool {
	return s.woken || len(workflow.GetUnhandledSignalNames(s.ctx)) > 0 || hasReservedSignal(s.ctx) || s.cancelCtx.Err() != nil && !s.cancelRefused || s.mustAdopt() || s.fenced
}

// withoutCancel is a context that a request to cancel the workflow does not cancel. A workflow that lives forever ends only by a verb,
// which is judged, or by termination.
func withoutCancel(ctx workflow.Context) workflow.Context {
	out, _ := workflow.NewDisconnectedContext(ctx)
	return out
}

// refuseCancellation shows in `status` that cancellation was requested, that it has no effect, and what to do instead. It runs once per
// run.
func (s *shell) refuseCancellation() {
	if s.cancelCtx.Err() == nil || s.cancelRefused {
		return
	}
	s.cancelRefused = true
	s.recordRefusal("request-cancel", nil, "a workflow of Converge cannot be cancelled; instead: "+strings.Join(s.cancelAlternatives, ", or: "), s.now())
}

// endSuggested reports whether this run should end: the server suggests continue-as-new, or another version of workers is current. The run
// ends at the first quiet moment, and works until then.
func (s *shell) endSuggested() bool {
	info := workflow.GetInfo(s.ctx)
	return info.GetContinueAsNewSuggested() || info.GetTargetWorkerDeploymentVersionChanged()
}

// readyToEnd reports whether the run is ending and at rest. The next run starts the work that is due, unless this one has to continue for
// now.
func (s *shell) readyToEnd() bool {
	return s.endSuggested() && s.quiescent() && !s.outages.isOpen(depStateSpill)
}

// A run that could not end for so long, in events and in bytes, starts no new work except rollbacks, so that it comes to rest. The server
// suggests continue-as-new at 4,096 events and 4 MiB, and terminates a run at 51,200 and 50 MB
// (docs/decisions/0007-pinned-runs-move-by-continue-as-new.md).
const (
	blockNewWorkEvents = 20_480
	blockNewWorkBytes  = 20 << 20
)

// blocksNewWork reports whether no new work may start.
func (s *shell) blocksNewWork() bool {
	switch info := workflow.GetInfo(s.ctx); {
	case !s.endSuggested():
		return false
	case s.readyToEnd():
		return true
	default:
		return info.GetCurrentHistoryLength() >= blockNewWorkEvents || info.GetCurrentHistorySize() >= blockNewWorkBytes
	}
}

// quiescent reports whether no operation is in flight that the next run could not start again.
func (s *shell) quiescent() bool {
	return s.inFlight == 0 && !s.lock.IsLocked() && workflow.AllHandlersFinished(s.ctx)
}

// trackOperation runs a coroutine that receives the result of an operation in flight. The run does not end before it is done.
func (s *shell) trackOperation(take func(workflow.Context)) {
	s.inFlight++
	workflow.Go(s.ctx, func(ctx workflow.Context) {
		take(ctx)
		s.inFlight--
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
	at = earliest(at, s.outages.nextRetry())
	if !s.timer.at.IsZero() && !at.IsZero() && !at.Before(s.timer.at) {
		return // the existing timer fires earlier, and then the loop decides again
	}
	s.setTimer(&s.timer, at, why)
}

// setTimer changes a timer to wake the loop at a time; zero is never.
func (s *shell) setTimer(t *timer, at time.Time, why func(time.Time) string) {
	if t.at.Equal(at) {
		return
	}
	if !t.at.IsZero() {
		t.cancel()
		*t = timer{}
	}
	if at.IsZero() || s.readyToEnd() {
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

func clip(text string) string { return entities.ClipMessages(text, maxText) }

func summary(text string) string { return verb.Clip(text, maxSummary) }
