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

// Watcher is a Checkpointer that knows whether the store is available at present.
type Watcher interface {
	// Away reports whether the store is unavailable. It returns at once.
	Away() bool
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
func (s *shell) checkpoint(over bool) {
	mark := &s.desk.Checkpoint
	if of := s.of.accepted(); of != mark.Of || over {
		mark.Of, s.handed = of, false
		mark.N = s.place()
	}
	if !s.handed && mark.N > 0 && !workflow.IsReplaying(s.ctx) {
		s.handOver(over)
	}
}

func (s *shell) handOver(over bool) {
	to, ok := s.ctx.Value(checkpointerKey{}).(Checkpointer)
	if !ok {
		return
	}
	plain, err := json.Marshal(s.whole)
	if err != nil {
		workflow.GetLogger(s.ctx).Error("checkpoint not written", "error", err)
		return
	}
	s.handed = true
	info := workflow.GetInfo(s.ctx)
	c := protocol.Checkpoint{
		ID: info.WorkflowExecution.ID, N: s.place(), Run: info.WorkflowExecution.RunID, Event: int64(info.GetCurrentHistoryLength()),
		At: s.now().UTC(), Over: over, StateVersion: protocol.Version,
	}
	s.of.mark(&c)
	to.Take(c, plain)
}

// handOverAgain submits the last checkpoint again, for the case that the worker that received it is gone. It does so only between two
// turns, when everything that was accepted is in state exactly once.
func (s *shell) handOverAgain() (bool, error) {
	if s.idle && s.desk.Checkpoint.N > 0 {
		s.handOver(false)
	}
	return s.idle, nil
}

// place is the number of a checkpoint that is submitted now. It grows with each workflow task, not with the number of accepted messages: a
// lost task may have accepted more than the one that replaces it.
func (s *shell) place() int64 {
	return s.base + int64(workflow.GetInfo(s.ctx).GetCurrentHistoryLength())
}

// longestRun is more events than a server allows in a run.
const longestRun = 1 << 16

// replaces numbers the checkpoints of this run after all those of the run that it replaces, including any that reach the store late.
func (s *shell) replaces() { s.base = s.desk.Checkpoint.N + longestRun }

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
	if at := workflow.GetInfo(s.ctx).GetCurrentHistoryLength(); !s.beyond && at != s.asked {
		s.asked = at
		s.beyond = s.beyondHistory()
	}
	return s.beyond
}

// beyondHistory reports whether the current workflow task is not in the history that the run was made from. A version marker gives each
// replay the same answer.
func (s *shell) beyondHistory() bool {
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
	heard, waiting := slices.Clone(s.desk.Heard), len(s.desk.Inbox)
	s.collect()
	sentAgain := len(s.desk.Inbox)
	answer, _, err := s.fetchCheckpoint(s.desk.Checkpoint.N, false)
	if err != nil {
		return err
	}
	s.collect()
	if !s.newer(answer) {
		s.keeps(answer, reset)
		return nil
	}
	s.dropWork()
	s.of.dropped()
	if err := workflow.Await(s.ctx, func() bool { return s.busy == 0 }); err != nil {
		return err
	}
	if err := s.lock.Lock(s.ctx); err != nil {
		return err
	}
	defer s.lock.Unlock()
	s.beginWork()
	if err := workflow.Sleep(s.ctx, time.Millisecond); err != nil { // ends the workflow task
		return err
	}
	s.collect()
	known := len(s.desk.Inbox)
	answer, missed, err := s.fetchCheckpoint(s.desk.Checkpoint.N, !reset)
	if err != nil {
		return err
	}
	s.collect()
	if !s.newer(answer) { // the store was restored in between
		s.keeps(answer, reset)
		return nil
	}
	mine := s.desk.Inbox
	if err := s.takeOver(answer, missed, &protocol.Restart{At: s.now(), Why: why}); err != nil {
		return err
	}
	if reset { // messages that waited before are in the checkpoint
		mine = slices.Concat(s.meant(mine[waiting:sentAgain], missed, heard), mine[sentAgain:])
	} else { // messages that arrived before are among the missed
		mine = mine[known:]
	}
	s.comesAfter(missed, mine)
	return nil
}

// newer reports whether a checkpoint is later than the state of the run, and of a workflow that continues.
func (s *shell) newer(c protocol.AdoptAnswer) bool { return c.N > s.desk.Checkpoint.N && !c.Over }

// keeps continues with the state of the run, whose audit trail follows the last line in the store.
func (s *shell) keeps(c protocol.AdoptAnswer, reset bool) {
	s.desk.Follow(c.Trail)
	if reset {
		s.replaces()
	}
}

// meant returns the messages that arrived in a reset run without those that its checkpoint and the missed messages have. With the first
// task after the old history the server sends again all signals that arrived after the reset point. For each signal recorded since then,
// and for each missed one, one equal message is dropped; a further equal message is intended.
func (s *shell) meant(came, missed []*state.Message, before []string) []*state.Message {
	again := map[string]int{}
	for _, digest := range heardSince(s.desk.Heard, before) {
		again[digest]++
	}
	for _, m := range missed {
		again[digestOf(m.Verb, m.Payload)]++
	}
	return slices.DeleteFunc(slices.Clone(came), func(m *state.Message) bool {
		for _, payload := range [...]json.RawMessage{m.Payload, asMissed(m.Payload)} {
			if digest := digestOf(m.Verb, payload); again[digest] > 0 {
				again[digest]--
				return true
			}
		}
		return false
	})
}

// comesAfter appends messages after a checkpoint and the missed ones, and records both as seen: the run may be reset again.
func (s *shell) comesAfter(missed, mine []*state.Message) {
	s.desk.Inbox = append(s.desk.Inbox, mine...)
	for _, m := range slices.Concat(missed, mine) {
		s.hear(m.Verb, m.Payload)
	}
}

// heardSince are the digests that were recorded after those in before; the oldest of these may have been dropped.
func heardSince(heard, before []string) []string {
	for n := range before {
		if kept := before[n:]; len(kept) <= len(heard) && slices.Equal(kept, heard[:len(kept)]) {
			return heard[len(kept):]
		}
	}
	return heard
}

// asMissed is a payload in the form that it has when it is read from a history: without white space.
func asMissed(payload json.RawMessage) json.RawMessage {
	if out, err := json.Marshal(payload); err == nil {
		return out
	}
	return payload
}

// beginWork creates the context of all work in progress.
func (s *shell) beginWork() { s.work, s.dropWork = workflow.WithCancel(s.ctx) }

// settled waits, in a reset run, until the run has adopted the checkpoint: an update that arrives earlier would be carried out on an
// outdated state.
func (s *shell) settled(ctx workflow.Context) error {
	if !s.mustAdopt() {
		return nil
	}
	return workflow.Await(ctx, func() bool { return s.adopted })
}

// adopt starts a first run with the newest checkpoint, if there is one.
func (s *shell) adopt(restart *protocol.Restart) error {
	reset := s.sentAgain()
	answer, missed, err := s.fetchCheckpoint(0, false)
	if err != nil {
		return err
	}
	reset = s.sentAgain() || reset
	s.adopted = reset
	sent := s.desk.Inbox
	if h, ok := s.of.(interface{ holds([]protocol.ScopePause) }); ok {
		h.holds(answer.Holds)
	}
	s.of.begins(answer.Floor)
	defer func() { // after the state was restored
		if r, ok := s.of.(interface{ knows(protocol.Rules) }); ok && answer.Rules != nil {
			r.knows(*answer.Rules)
		}
	}()
	if answer.N == 0 {
		s.desk.Follow(answer.Trail)
		if reset {
			s.replaces()
		}
		return nil
	}
	if answer.Over {
		s.desk.Follow(answer.Trail)
		s.desk.Checkpoint.N = answer.N
		s.replaces()
		return nil
	}
	if err := s.takeOver(answer, missed, restart); err != nil {
		return err
	}
	s.comesAfter(missed, s.meant(sent, missed, nil))
	return nil
}

// sentAgain collects, in a run that was reset to its start, the signals that the server sends again.
func (s *shell) sentAgain() bool {
	if !s.mustAdopt() {
		return false
	}
	s.collect()
	return true
}

// takeOver makes a checkpoint the state, followed by the messages that were accepted after it.
func (s *shell) takeOver(c protocol.AdoptAnswer, missed []*state.Message, restart *protocol.Restart) error {
	if err := s.unpack(c.Carried, true); err != nil {
		return err
	}
	s.desk.Checkpoint.N = c.N
	s.follow(c.Trail)
	s.replaces()
	s.trail = trail{task: workflow.GetInfo(s.ctx).GetCurrentHistoryLength(), lines: s.desk.AuditLines}
	s.desk.Inbox = append(s.desk.Inbox, missed...)
	s.of.adoptedState(c, restart)
	return nil
}

// follow continues the audit trail from its end in the store. Lines there that the checkpoint does not have were written by the previous
// run, or by someone with write access to the store. The line about the restart says so (G7).
func (s *shell) follow(end *entities.TrailEnd) {
	known := s.desk.AuditLines
	if s.desk.Follow(end); s.desk.AuditLines > known {
		s.followed = fmt.Sprintf("lines %d to %d of its history are in the store, but were not in its checkpoint", known+1, s.desk.AuditLines)
	}
}

// fetchCheckpoint reads from the store the state that is newer than a number, page by page. It waits without a limit: to act on an older
// state would undo actions of people.
func (s *shell) fetchCheckpoint(n int64, own bool) (first protocol.AdoptAnswer, missed []*state.Message, err error) {
	info := workflow.GetInfo(s.ctx)
	request := protocol.AdoptRequest{ID: info.WorkflowExecution.ID, N: n, Run: info.WorkflowExecution.RunID}
	if own {
		request.OwnUpTo = int64(info.GetCurrentHistoryLength())
	}
	for {
		var answer protocol.AdoptAnswer
		if err := s.fromStorePatiently(s.ctx, protocol.ActivityAdopt, request, &answer); err != nil {
			return first, nil, err
		}
		if request.After == (protocol.Cursor{}) {
			first = answer
		}
		for _, m := range answer.Missed {
			if row := verb.Find(s.verbs, m.Verb); row != nil || s.messages[m.Verb].take != nil {
				missed = append(missed, &state.Message{Verb: m.Verb, Payload: withRequestID(m.Payload, m.UpdateID), At: m.At})
			}
		}
		if request.After = answer.Next; answer.Next == (protocol.Cursor{}) {
			return first, missed, nil
		}
	}
}

// fromStorePatiently retries until the store answers.
func (s *shell) fromStorePatiently(ctx workflow.Context, name string, request, answer any) error {
	for {
		err := s.fromStore(ctx, name, request, answer)
		if !isStoreError(err) {
			return err
		}
		if err := workflow.Sleep(ctx, margin); err != nil {
			return err
		}
	}
}

// hear records a signal of a person that has no request id. Signals of other workflows are idempotent.
func (s *shell) hear(name string, raw json.RawMessage) {
	var act protocol.Act
	_ = json.Unmarshal(raw, &act) // the sender, if it can be read
	if act.By != "" && act.RequestID == "" {
		s.desk.Hear(digestOf(name, raw))
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

// restarted says why a workflow was restarted, for display.
func restarted(r *protocol.Restart) string {
	if r == nil {
		return "it was started again"
	}
	return r.Why
}

// letGo is the grace period for an apply that ran when its workflow ended: its worker learns of the end with its next heartbeat, and
// cancels it.
const letGo = heartbeat + time.Second
