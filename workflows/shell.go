package workflows

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/converter"
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
	// checkNames refuses a request that names what does not exist: all that is judged before a token is looked at.
	checkNames(r verb.Request) error
	// rules are how callers prove who they are, and what they may do. Not ruled: verbs are free to all.
	rules() (identity *entities.Identity, grants []entities.Grant, ruled bool)
	// channels are those that a request concerns, which grants are asked for; none: the whole.
	channels(row *verb.Row, r verb.Request) ([]string, error)
	// flushAt is how many audit lines wait before they are written to the store; 0: they are kept in state.
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
	title                func() string // what people call the service; nil: it is none
	logic                int           // protocol.Logic of the worker that began the run
	whole                any           // its state; desk is a part
	version              int           // of the newest form of the state that is known
	form                 func() int    // of the form that the state has; nil: the newest
	desk                 *state.Desk   // what it remembers of those who talk to it
	verbs                []verb.Row
	messages             map[string]message       // by name: from other workflows, or written by the workflow itself
	answers              map[string]answering     // verbs that answer more than a line
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

// live is the life of an entity, from run to run.
func (s *shell) live(in protocol.Carried, first protocol.Beginning) error {
	s.requested = s.ctx
	s.ctx = uncancelled(s.ctx)
	s.goByOwnLogic()
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

// goByOwnLogic has a first run go by the logic of the worker that begins it, whatever its input says: whoever started it may want it
// to forget what was mended since. A run that was begun before that was so keeps to its input.
func (s *shell) goByOwnLogic() {
	if s.logic == protocol.Logic || workflow.GetInfo(s.ctx).ContinuedExecutionRunID != "" {
		return
	}
	if own := workflow.GetVersion(s.ctx, "logic", workflow.DefaultVersion, protocol.Logic); own != workflow.DefaultVersion {
		s.logic = int(own)
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
// (docs/decisions/0013-continue-as-new-holds-nobody-up.md).
const (
	drainLength = 20_480
	drainSize   = 20 << 20
)

// drains: nothing new is begun.
func (s *shell) drains() bool {
	switch info := workflow.GetInfo(s.ctx); {
	case !s.ending():
		return false
	case s.leaving() || !s.calm():
		return true
	default:
		return info.GetCurrentHistoryLength() >= drainLength || info.GetCurrentHistorySize() >= drainSize
	}
}

// changeCalm names, in histories, that a suggested end of the run holds nothing up.
const changeCalm = "calm-ending"

// calm is asked only by a run that does not end although it should: one that was in that state when its worker was
// replaced by a newer one ends as it began to.
func (s *shell) calm() bool { return changed(s.ctx, changeCalm) }

// changed: whoever carries out a run for the first time knows of a change of the workflow code. One that was begun before and is
// repeated goes on as it began.
func changed(ctx workflow.Context, change string) bool {
	return workflow.GetVersion(ctx, change, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// fromHere is changed of what comes again and again in a run, which may have begun before and go on after the change: each time
// has a name of its own.
func (s *shell) fromHere(change string) bool {
	return changed(s.ctx, fmt.Sprintf("%s-%d", change, workflow.GetInfo(s.ctx).GetCurrentHistoryLength()))
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

// collect takes the signals that have come into state, in the order in which they came. Those of a
// name that no verb answers to are refused visibly instead of being lost, as is a request to cancel.
func (s *shell) collect() {
	s.refuseCancellation()
	s.held, s.hints = 0, 0
	for _, m := range s.desk.Inbox {
		s.holds(m)
	}
	noted, rest := arrived(s.ctx)
	for _, name := range noted {
		s.take(name)
	}
	for _, name := range rest {
		for s.take(name) {
		}
	}
}

// take receives one signal, if there is one of that name.
func (s *shell) take(name string) bool {
	if reserved(name) {
		s.refuse(name, nil, s.noVerb().Error(), s.now())
		return true
	}
	var came converter.RawValue
	if !workflow.GetSignalChannel(s.ctx, name).ReceiveAsync(&came) {
		return false
	}
	raw, readable := signalPayload(came)
	switch {
	case !readable && !s.readsOneThing("unreadable"): // it was passed over
		return s.take(name)
	case name == protocol.SignalWake:
		s.woken = true
		return true
	}
	if err := s.takes(name, raw); err != nil {
		s.refuse(name, raw, err.Error(), s.now())
		return true
	}
	if m := s.messages[name]; m.take != nil && s.crowded() && s.readsOneThing("crowded") {
		s.makeDo(name, raw)
		return true
	}
	s.write(name, raw)
	s.untried++
	s.hear(name, raw)
	return true
}

// signalPayload is the JSON that a signal brought, or what it brought instead, which the SDK would pass over.
func signalPayload(came converter.RawValue) (raw json.RawMessage, readable bool) {
	payload := came.Payload()
	if err := converter.GetDefaultDataConverter().FromPayload(payload, &raw); err != nil {
		return payload.GetData(), false
	}
	return raw, true
}

// readsOneThing: since that logic, or in a run that was begun before from here on.
func (s *shell) readsOneThing(what string) bool {
	return s.logic >= protocol.LogicReadsOneThing || s.fromHere(what)
}

func (s *shell) noVerb() error {
	return errors.New("no such verb; expected one of " + strings.Join(verb.Names(s.verbs), ", "))
}

// takes refuses a signal that no pass through the inbox could carry out, and one that there is no room for.
func (s *shell) takes(name string, raw json.RawMessage) error {
	m, known := s.messages[name]
	if verb.Find(s.verbs, name) == nil && (!known || m.own) {
		return s.noVerb()
	}
	if err := verb.CheckRaw(name, raw); err != nil {
		return err
	}
	if err := verb.CheckForm(name, raw); err != nil && s.readsOneThing("form") {
		return err
	}
	if !known {
		return s.room()
	}
	return nil
}

// room refuses what the inbox has no room for: all of it goes from run to run. What other workflows say it always has.
func (s *shell) room() error {
	if len(s.desk.Inbox) < state.MaxInbox && s.held < state.MaxInboxBytes {
		return nil
	}
	return fmt.Errorf("%d signals wait already, the most that are kept; send it again once they are carried out%s", len(s.desk.Inbox), entities.Because(entities.Visible(s.desk.Problem)))
}

// crowded: so many hints of other workflows wait that a hostile one must have sent them.
func (s *shell) crowded() bool {
	return s.hints >= state.MaxHints || s.held >= 2*state.MaxInboxBytes
}

// makeDo keeps of a hint that there is no room for that it is time to look, where that says enough.
func (s *shell) makeDo(name string, raw json.RawMessage) {
	look := s.messages[name].look
	if look == "" {
		s.refuse(name, raw, fmt.Sprintf("%d signals of other workflows wait already, the most that are kept", s.hints), s.now())
	} else if !slices.ContainsFunc(s.desk.Inbox, func(m *state.Message) bool { return m.Verb == name && string(m.Payload) == look }) {
		s.write(name, json.RawMessage(look))
	}
}

// write puts a message into the inbox.
func (s *shell) write(name string, raw json.RawMessage) {
	m := &state.Message{Verb: name, Payload: raw, At: s.now()}
	s.holds(m)
	s.desk.Inbox = append(s.desk.Inbox, m)
	s.woken = true
}

// holds counts what the inbox holds.
func (s *shell) holds(m *state.Message) {
	s.held += len(m.Payload)
	if known, ok := s.messages[m.Verb]; ok && !known.own {
		s.hints++
	}
}

// waits tells whether a message of that name waits in the inbox.
func (s *shell) waits(name string) bool {
	return slices.ContainsFunc(s.desk.Inbox, func(m *state.Message) bool { return m.Verb == name })
}

// receive carries out the inbox in order. What needs something outside that does not answer stays at its place and is
// tried again, and with it all that needs the same; everything else goes on (a dead store must not hold up a pause).
// What needs the store is carried out in the order in which it came, whatever else it waits for.
func (s *shell) receive() {
	s.outages.pass(s.now())
	defer func() { s.untried, s.passes = 0, s.passes+1 }()
	if len(s.desk.Inbox) == 0 {
		return
	}
	if err := s.lock.Lock(s.ctx); err != nil {
		return
	}
	defer s.lock.Unlock()
	var awaited [outsides]bool
	done := map[*state.Message]bool{}
	for n := 0; n < len(s.desk.Inbox); n++ { // meanwhile messages may be added, at the end
		m := s.desk.Inbox[n]
		if s.line.done[m] {
			done[m] = true
			continue
		}
		if of := s.receiveOne(m); of != nobody {
			awaited[of] = true
			continue
		}
		done[m] = true
		s.makeRoom()
	}
	s.desk.Inbox = slices.DeleteFunc(s.desk.Inbox, func(m *state.Message) bool { return done[m] })
	clear(s.line.done)
	for _, of := range [...]outside{theStore, theIssuer, theRuntimes, theAnnouncer, theDamaged} {
		if awaited[of] {
			continue
		}
		if of == theDamaged && s.outages[of].tries > 0 {
			s.reached(of)
		}
		s.outages[of] = outage{}
	}
}

// receiveOne carries out one message, or tells what it waits for: somebody who does not answer, or those before it.
func (s *shell) receiveOne(m *state.Message) outside {
	of := s.needed(m)
	switch {
	case s.outages.open(of):
		return of
	case s.ofStore(m) && s.line.aside:
		return theStore
	case s.ofStore(m) && s.patient(theStore):
		s.carryAside(m)
		return theStore
	}
	err := s.carryOut(s.ctx, m)
	if !isOutage(err) {
		return nobody
	}
	of = outageOf(err)
	m.Damaged = of == theDamaged
	s.backOff(of, err)
	if of == theStore && isCutShort(err) && s.patient(theStore) {
		s.carryAside(m)
	}
	return of
}

// ofStore tells whether a message reads the store.
func (s *shell) ofStore(m *state.Message) bool {
	row := verb.Find(s.verbs, m.Verb)
	return !m.Damaged && (row != nil && row.Store || s.messages[m.Verb].needs == theStore)
}

// needed is what a message needs that did not answer the last time it was asked; nobody: nothing.
func (s *shell) needed(m *state.Message) outside {
	of := s.messages[m.Verb].needs
	row := verb.Find(s.verbs, m.Verb)
	if row != nil && row.Store {
		of = theStore
	}
	if m.Damaged {
		of = theDamaged
	}
	if s.outages.open(of) {
		return of
	}
	if row == nil || !s.guarded(row) || !hasToken(m.Payload) {
		return nobody
	}
	for _, of := range [...]outside{theIssuer, theStore} { // the one verifies it, the other says whether it was used
		if s.outages.open(of) && (of == theIssuer || !row.Urgent()) {
			return of
		}
	}
	return nobody
}

// carryOut carries out one message; what is refused is kept for `status`, and is done with.
func (s *shell) carryOut(ctx workflow.Context, m *state.Message) error {
	var err error
	if known, ok := s.messages[m.Verb]; ok {
		err = known.take(ctx, m.Payload)
	} else {
		err = s.signalled(ctx, m)
	}
	if err != nil && !isOutage(err) {
		s.refuse(m.Verb, m.Payload, errorText(err), m.At)
	}
	return err
}

// makeRoom writes audit lines to the store while so many messages are carried out at once that they would be lost. When
// all of them are of this workflow task, it ends that first.
func (s *shell) makeRoom() {
	if len(s.desk.Audit) < state.MaxAudit/10 || s.of.flushAt() == 0 || s.storing || s.outages.open(theTrail) {
		return
	}
	if len(s.committed()) == 0 && workflow.Sleep(s.ctx, time.Millisecond) != nil {
		return
	}
	if err := s.storeLines(s.ctx); err != nil {
		s.backOff(theTrail, err)
	}
}

// refuse keeps a signal that changed nothing for `status`, in so many bytes and no more.
func (s *shell) refuse(name string, raw json.RawMessage, why string, at time.Time) {
	var act protocol.Act
	_ = json.Unmarshal(raw, &act) // who it is from, as far as that can be told
	s.desk.Refuse(verb.Clip(name, verb.MaxName), verb.Clip(act.By, verb.MaxName), clip(why), at)
	s.woken = true
}

// timer is the one timer of a run: made again only when something is due earlier.
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
	if !s.timer.at.IsZero() {
		s.timer.cancel()
		s.timer = timer{}
	}
	if at.IsZero() || s.leaving() {
		return
	}
	ctx, cancel := workflow.WithCancel(s.ctx)
	s.timer = timer{at: at, cancel: cancel}
	due := max(at.Sub(workflow.Now(ctx)), time.Millisecond)
	future := workflow.NewTimerWithOptions(ctx, due, workflow.TimerOptions{Summary: why(at)})
	workflow.Go(ctx, func(ctx workflow.Context) {
		if future.Get(ctx, nil) == nil && s.timer.at.Equal(at) {
			s.timer = timer{}
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
