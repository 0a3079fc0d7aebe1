package workflows

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
	"github.com/converge-engine/converge/entities/verb"
)

// This file writes to the store what a workflow accepted, and reads back what it lost because an operator terminated or reset it (F1):
// docs/decisions/0005-checkpoints-and-fences.md.

// Checkpointer stores checkpoints asynchronously. Take returns at once. The workflow does not depend on the success of a write, because its
// history has all of the data. Only the newest checkpoint of a workflow counts.
type Checkpointer interface {
	// Take receives a checkpoint without its state, and the state as JSON.
	Take(c protocol.Checkpoint, state []byte)
}

// StoreHealth is a Checkpointer that knows whether the store is available at present.
type StoreHealth interface {
	// StoreUnavailable reports whether the store is unavailable. It returns at once.
	StoreUnavailable() bool
}

// Checkpoints is the interceptor that gives a worker's Checkpointer to its workflows.
type Checkpoints struct {
	interceptor.WorkerInterceptorBase
	To Checkpointer
}

// InterceptWorkflow implements interceptor.WorkerInterceptor.
func (c *Checkpoints) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	i := &checkpointsInbound{to: c.To}
	i.Next = next
	return i
}

type checkpointsInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	to Checkpointer
}

// ExecuteWorkflow gives the workflow access to the Checkpointer.
func (i *checkpointsInbound) ExecuteWorkflow(ctx workflow.Context, in *interceptor.ExecuteWorkflowInput) (any, error) {
	return i.Next.ExecuteWorkflow(workflow.WithValue(ctx, checkpointerKey{}, i.to), in)
}

type checkpointerKey struct{}

// checkpoint submits the state when something was accepted or decided since the last checkpoint. It is no command: history does not record
// it, and a replay does not repeat it. So it costs an idle workflow nothing. If a workflow task is lost, the task that replaces it submits
// a checkpoint too, with a higher number.
func (s *shell) checkpoint(final bool) {
	mark := &s.mailbox.Checkpoint
	if of := s.entity.accepted(); of != mark.Fingerprint || final {
		mark.Fingerprint, s.checkpointSubmitted = of, false
		mark.N = s.checkpointNumber()
		mark.Changed(s.now())
	}
	if !s.checkpointSubmitted && mark.N > 0 && !workflow.IsReplaying(s.ctx) {
		s.submitCheckpoint(final)
	}
}

func (s *shell) submitCheckpoint(final bool) {
	to, ok := s.ctx.Value(checkpointerKey{}).(Checkpointer)
	if !ok {
		return
	}
	plain, err := json.Marshal(s.fullState)
	if err != nil {
		workflow.GetLogger(s.ctx).Error("checkpoint not written", "error", err)
		return
	}
	s.checkpointSubmitted = true
	info := workflow.GetInfo(s.ctx)
	c := protocol.Checkpoint{
		ID: info.WorkflowExecution.ID, N: s.checkpointNumber(), Run: info.WorkflowExecution.RunID, Event: int64(info.GetCurrentHistoryLength()),
		At: s.now().UTC(), Over: final, StateVersion: protocol.Version,
	}
	if changes := s.mailbox.Checkpoint.Changes; len(changes) > 0 {
		last := len(changes) - 1
		c.Change, c.Earlier = changes[last], slices.Clone(changes[:last])
	}
	s.entity.fillCheckpoint(&c)
	to.Take(c, plain)
}

// resubmitCheckpoint submits the last checkpoint again, for the case that the worker that received it is gone. It does so only between two
// reconciliations, when everything that was accepted is in state exactly once.
func (s *shell) resubmitCheckpoint() (protocol.CheckpointPosition, error) {
	if s.idle && s.mailbox.Checkpoint.N > 0 {
		s.submitCheckpoint(false)
	}
	return protocol.CheckpointPosition{Submitted: s.idle, Adopted: s.mailbox.Checkpoint.Adopted}, nil
}

// checkpointNumber is the number of a checkpoint that is submitted now. It grows with each workflow task, not with the number of accepted
// messages: a lost task may have accepted more than the one that replaces it.
func (s *shell) checkpointNumber() int64 {
	return s.checkpointBase + int64(workflow.GetInfo(s.ctx).GetCurrentHistoryLength())
}

// maxRunEvents is more events than a server allows in a run.
const maxRunEvents = 1 << 16

// renumberCheckpoints numbers the checkpoints of this run after all those of the run that it replaces, including any that reach the store
// late.
func (s *shell) renumberCheckpoints() { s.checkpointBase = s.mailbox.Checkpoint.N + maxRunEvents }

// wasReset reports whether an operator reset this run. The run knows its history up to the reset point. Only the checkpoint has
// later messages.
func (s *shell) wasReset() bool {
	info := workflow.GetInfo(s.ctx)
	return info.OriginalRunID != "" && info.OriginalRunID != info.WorkflowExecution.RunID
}

// mustAdopt is true in a reset run from the first workflow task that is not part of its old history, until it has adopted. The check runs
// once per task; a positive result is final.
func (s *shell) mustAdopt() bool {
	if s.adopted || !s.wasReset() {
		return false
	}
	if at := workflow.GetInfo(s.ctx).GetCurrentHistoryLength(); !s.pastOldHistory && at != s.checkedAtLength {
		s.checkedAtLength = at
		s.pastOldHistory = s.isPastOldHistory()
	}
	return s.pastOldHistory
}

// isPastOldHistory reports whether the current workflow task is not in the history that the run was made from. A version marker gives each
// replay the same answer.
func (s *shell) isPastOldHistory() bool {
	changeID := fmt.Sprintf("adopt-%d", workflow.GetInfo(s.ctx).GetCurrentHistoryLength())
	return workflow.GetVersion(s.ctx, changeID, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// adoptWhenDue adopts the newest checkpoint before a reset run does anything, and when a later state than the run's own is recorded
// elsewhere.
func (s *shell) adoptWhenDue() error {
	reset, fenced := s.mustAdopt(), s.fenced
	s.fenced = false
	switch {
	case reset:
		err := s.readopt("it was reset", true)
		s.adopted, s.woken = true, true
		return err
	case fenced:
		return s.readopt("another run of it had continued", false)
	}
	return nil
}

// readopt takes over the newest checkpoint if it is newer than the run's state, and drops the work in progress. Messages that the run has
// accepted itself follow after it. In a reset run the checkpoint has those already, and signals that the server sent again are removed. No
// update runs during this: a started one ends before the checkpoint is read, in an earlier workflow task, so that the history has it.
func (s *shell) readopt(why string, reset bool) error {
	s.adopting = true
	defer func() { s.adopting = false }()
	seenBefore, waiting := slices.Clone(s.mailbox.SeenSignals), len(s.mailbox.Inbox)
	s.collect()
	sentAgain := len(s.mailbox.Inbox)
	answer, _, err := s.fetchCheckpoint(protocol.AdoptRequest{N: s.mailbox.Checkpoint.N})
	if err != nil {
		return err
	}
	s.collect()
	if !s.isNewer(answer) {
		s.keepState(answer, reset)
		return nil
	}
	s.cancelWork()
	s.entity.resetWork()
	if err := workflow.Await(s.ctx, func() bool { return s.inFlight == 0 }); err != nil {
		return err
	}
	if err := s.lock.Lock(s.ctx); err != nil {
		return err
	}
	defer s.lock.Unlock()
	s.startWork()
	if err := workflow.Sleep(s.ctx, time.Millisecond); err != nil { // ends the workflow task
		return err
	}
	s.collect()
	known := len(s.mailbox.Inbox)
	request := protocol.AdoptRequest{N: s.mailbox.Checkpoint.N}
	if !reset {
		request.OwnUpTo = int64(workflow.GetInfo(s.ctx).GetCurrentHistoryLength())
	}
	answer, missed, err := s.fetchCheckpoint(request)
	if err != nil {
		return err
	}
	s.collect()
	if !s.isNewer(answer) { // the store was restored in between
		s.keepState(answer, reset)
		return nil
	}
	own := s.mailbox.Inbox
	if err := s.applyCheckpoint(answer, missed, &protocol.Restart{At: s.now(), Why: why}); err != nil {
		return err
	}
	s.readNewest(answer)
	if reset { // messages that waited before are in the checkpoint
		own = slices.Concat(s.dropDuplicates(own[waiting:sentAgain], missed, seenBefore), own[sentAgain:])
	} else { // messages that arrived before are among the missed
		own = own[known:]
	}
	s.appendAfterCheckpoint(missed, own)
	return nil
}

// isNewer reports whether a checkpoint is later than the state of the run, and of a workflow that continues.
func (s *shell) isNewer(c protocol.AdoptAnswer) bool { return c.N > s.mailbox.Checkpoint.N && !c.Over }

// keepState continues with the state of the run, whose audit trail follows the last line in the store.
func (s *shell) keepState(c protocol.AdoptAnswer, reset bool) {
	s.mailbox.ContinueTrail(c.Trail)
	if reset {
		s.renumberCheckpoints()
		received := s.mailbox.Inbox
		s.mailbox.Inbox = nil
		s.readNewest(c)
		s.mailbox.Inbox = append(s.mailbox.Inbox, received...)
	}
}

// readNewest makes an entity that continues from an earlier state read its newest configuration, before the messages that arrived meanwhile.
func (s *shell) readNewest(c protocol.AdoptAnswer) {
	if e, ok := s.entity.(interface {
		queueNewestConfiguration(protocol.AdoptAnswer)
	}); ok {
		e.queueNewestConfiguration(c)
	}
}

// dropDuplicates returns the messages that arrived in a reset run without those that its checkpoint and the missed messages have. With the
// first task after the old history the server sends again all signals that arrived after the reset point. For each signal recorded since
// then, and for each missed one, one equal message is dropped; a further equal message is intended.
func (s *shell) dropDuplicates(received, missed []*state.Message, seenBefore []string) []*state.Message {
	duplicates := map[string]int{}
	for _, digest := range seenSince(s.mailbox.SeenSignals, seenBefore) {
		duplicates[digest]++
	}
	for _, m := range missed {
		duplicates[digestOf(m.Verb, m.Payload)]++
	}
	return slices.DeleteFunc(slices.Clone(received), func(m *state.Message) bool {
		for _, payload := range [...]json.RawMessage{m.Payload, compactPayload(m.Payload)} {
			if digest := digestOf(m.Verb, payload); duplicates[digest] > 0 {
				duplicates[digest]--
				return true
			}
		}
		return false
	})
}

// appendAfterCheckpoint appends messages after a checkpoint and the missed ones, and records both as seen: the run may be reset again.
func (s *shell) appendAfterCheckpoint(missed, own []*state.Message) {
	s.mailbox.Inbox = append(s.mailbox.Inbox, own...)
	for _, m := range slices.Concat(missed, own) {
		s.recordSeen(m.Verb, m.Payload)
	}
}

// seenSince are the digests that were recorded after those in before; the oldest of these may have been dropped.
func seenSince(seen, before []string) []string {
	for n := range before {
		if kept := before[n:]; len(kept) <= len(seen) && slices.Equal(kept, seen[:len(kept)]) {
			return seen[len(kept):]
		}
	}
	return seen
}

// compactPayload is a payload in the form that it has when it is read from a history: without white space.
func compactPayload(payload json.RawMessage) json.RawMessage {
	if out, err := json.Marshal(payload); err == nil {
		return out
	}
	return payload
}

// startWork creates the context of all work in progress.
func (s *shell) startWork() { s.workCtx, s.cancelWork = workflow.WithCancel(s.ctx) }

// awaitAdoption waits, in a reset run, until the run has adopted the checkpoint: an update that arrives earlier would be carried out on an
// outdated state.
func (s *shell) awaitAdoption(ctx workflow.Context) error {
	if !s.mustAdopt() {
		return nil
	}
	return workflow.Await(ctx, func() bool { return s.adopted })
}

// adopt starts a first run with the newest checkpoint, if there is one.
func (s *shell) adopt(restart *protocol.Restart) error {
	reset := s.collectRedelivered()
	answer, missed, err := s.fetchCheckpoint(protocol.AdoptRequest{Explain: restart == nil && !s.wasReset()})
	if err != nil {
		return err
	}
	reset = s.collectRedelivered() || reset
	s.adopted = reset
	sent := s.mailbox.Inbox
	if h, ok := s.entity.(interface{ replaceInitialPause([]protocol.ScopePause) }); ok {
		h.replaceInitialPause(answer.Pauses)
	}
	s.entity.onFirstRun(answer.MinSequence)
	defer func() { // after the state was restored
		if r, ok := s.entity.(interface{ setRules(protocol.Rules) }); ok && answer.Rules != nil {
			r.setRules(*answer.Rules)
		}
	}()
	if answer.N == 0 {
		s.mailbox.ContinueTrail(answer.Trail)
		if reset {
			s.renumberCheckpoints()
		}
		return nil
	}
	if answer.Over {
		s.mailbox.ContinueTrail(answer.Trail)
		s.mailbox.Checkpoint.N = answer.N
		s.renumberCheckpoints()
		return nil
	}
	if restart == nil && answer.Why != "" {
		restart = &protocol.Restart{At: s.now(), Why: answer.Why}
	}
	if err := s.applyCheckpoint(answer, missed, restart); err != nil {
		return err
	}
	s.readNewest(answer)
	s.appendAfterCheckpoint(missed, s.dropDuplicates(sent, missed, nil))
	return nil
}

// collectRedelivered collects, in a run that was reset to its start, the signals that the server sends again.
func (s *shell) collectRedelivered() bool {
	if !s.mustAdopt() {
		return false
	}
	s.collect()
	return true
}

// applyCheckpoint makes a checkpoint the state, followed by the messages that were accepted after it.
func (s *shell) applyCheckpoint(c protocol.AdoptAnswer, missed []*state.Message, restart *protocol.Restart) error {
	if err := s.unpack(c.CarriedState, true); err != nil {
		return err
	}
	s.mailbox.Checkpoint.N, s.mailbox.Checkpoint.Adopted = c.N, c.N
	s.continueTrail(c.Trail)
	s.renumberCheckpoints()
	s.auditCommit = auditCommit{task: workflow.GetInfo(s.ctx).GetCurrentHistoryLength(), lines: s.mailbox.AuditCount}
	s.mailbox.Inbox = append(s.mailbox.Inbox, missed...)
	s.entity.adoptedState(c, s.recordRestart(restart))
	return nil
}

// continueTrail continues the audit trail from its end in the store. Lines there that the checkpoint does not have were written by the
// previous run, or by someone with write access to the store. The line about the restart says so (G7).
func (s *shell) continueTrail(end *entities.TrailEnd) {
	known := s.mailbox.AuditCount
	if s.mailbox.ContinueTrail(end); s.mailbox.AuditCount > known {
		s.uncheckpointedLines = fmt.Sprintf("lines %d to %d of its history are in the store, but were not in its checkpoint", known+1, s.mailbox.AuditCount)
	}
}

// fetchCheckpoint reads from the store, page by page, the state of this workflow that is requested. It waits without a limit: to act on an
// older state would undo actions of people.
func (s *shell) fetchCheckpoint(request protocol.AdoptRequest) (first protocol.AdoptAnswer, missed []*state.Message, err error) {
	info := workflow.GetInfo(s.ctx)
	request.ID, request.Run = info.WorkflowExecution.ID, info.WorkflowExecution.RunID
	for {
		var answer protocol.AdoptAnswer
		if err := s.callStoreUntilAnswered(s.ctx, protocol.ActivityAdopt, request, &answer); err != nil {
			return first, nil, err
		}
		if request.After == (protocol.Cursor{}) {
			first = answer
		}
		for _, m := range answer.Missed {
			if row := verb.Find(s.verbs, m.Verb); row != nil || s.messages[m.Verb].handle != nil {
				missed = append(missed, &state.Message{Verb: m.Verb, Payload: withRequestID(m.Payload, m.UpdateID), At: m.At})
			}
		}
		if request.After = answer.Next; answer.Next == (protocol.Cursor{}) {
			return first, missed, nil
		}
	}
}

// callStoreUntilAnswered retries until the store answers.
func (s *shell) callStoreUntilAnswered(ctx workflow.Context, name string, request, answer any) error {
	for {
		err := s.callStore(ctx, name, request, answer)
		if !isStoreError(err) {
			return err
		}
		if err := workflow.Sleep(ctx, margin); err != nil {
			return err
		}
	}
}

// recordSeen records a signal of a person that has no request id. Signals of other workflows are idempotent.
func (s *shell) recordSeen(name string, raw json.RawMessage) {
	var act protocol.RequestMeta
	_ = json.Unmarshal(raw, &act) // the sender, if it can be read
	if act.By != "" && act.RequestID == "" {
		s.mailbox.RecordSeen(digestOf(name, raw))
	}
}

func digestOf(name string, payload json.RawMessage) string {
	return entities.ShortDigestOf([]string{name, string(payload)})
}

// withRequestID adds a request id to a payload without one. A payload that is not an object is not changed.
func withRequestID(payload json.RawMessage, id string) json.RawMessage {
	var fields map[string]json.RawMessage
	if id == "" || json.Unmarshal(payload, &fields) != nil || fields == nil {
		return payload
	}
	var own string
	if _ = json.Unmarshal(fields["requestId"], &own); own != "" {
		return payload
	}
	fields["requestId"], _ = json.Marshal(id) // a string
	out, err := json.Marshal(fields)
	if err != nil {
		return payload
	}
	return out
}

// recordRestart counts a restart, and returns the text about it for the journal and the audit trail.
func (s *shell) recordRestart(r *protocol.Restart) string {
	why, now := "it was started again", s.now()
	if r != nil {
		why = clip(r.Why)
	}
	s.mailbox.Restarts = s.mailbox.Restarts.Add(why, now)
	text := "continues from its checkpoint: " + why
	if all := s.mailbox.Restarts; all.Repeated(now) {
		text += fmt.Sprintf("; restarted %s since %s", entities.Times(all.Count), all.First.UTC().Format("15:04 MST"))
	}
	return text
}

// lostApplyGrace is the grace period for an apply that ran when its workflow ended: its worker learns of the end with its next heartbeat,
// and cancels it.
const lostApplyGrace = heartbeat + time.Second
