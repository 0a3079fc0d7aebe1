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

// This file holds how a workflow gets to the store what it accepted, and back from there what it does not know any more
// because an operator ended it or reset it (F1): docs/decisions/0005-checkpoints-and-fences.md.

// Checkpointer keeps checkpoints, later and elsewhere: Take returns at once, and whether one was kept is no business of
// the workflow, whose history has all of it. Only the newest one of a workflow counts.
type Checkpointer interface {
	// Take gets a checkpoint that lacks its state, and the state as JSON.
	Take(c protocol.Checkpoint, state []byte)
}

// Watcher is a Checkpointer that knows whether the store answers at present.
type Watcher interface {
	// Away returns at once.
	Away() bool
}

// Checkpoints is the interceptor that hands a worker's Checkpointer to its workflows.
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

// checkpoint hands over what the state is, once something was accepted or decided since the last time. It is no command:
// history does not know of it, and a replay does not repeat it. So it costs an idle workflow nothing, and what is
// handed over in a workflow task that is lost is followed by that of the one in its place, which is placed after it.
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
		workflow.GetLogger(s.ctx).Error("no checkpoint", "error", err)
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

// handOverAgain hands over what was handed over before, to a worker that is not there any more: only between two turns, when
// all that was accepted is in state once.
func (s *shell) handOverAgain() (bool, error) {
	if s.idle && s.desk.Checkpoint.N > 0 {
		s.handOver(false)
	}
	return s.idle, nil
}

// place is the number of a checkpoint that is handed over now. It grows with each workflow task, not with what was accepted
// there: a task that is lost may have accepted more than the one in its place.
func (s *shell) place() int64 {
	return s.base + int64(workflow.GetInfo(s.ctx).GetCurrentHistoryLength())
}

// longestRun is more events than a server lets a run have.
const longestRun = 1 << 16

// replaces places the checkpoints of this run after all of the run that it goes on in place of, whichever of them reach the
// store late.
func (s *shell) replaces() { s.base = s.desk.Checkpoint.N + longestRun }

// wasReset: an operator reset this run. Its past is what it was up to there, as far as the history that it was made from
// goes; what was accepted later is known to the checkpoint alone.
func (s *shell) wasReset() bool {
	info := workflow.GetInfo(s.ctx)
	return info.OriginalRunID != "" && info.OriginalRunID != info.WorkflowExecution.RunID
}

// mustAdopt is true, in a run that was reset, from the first workflow task on that is not its past any more, until it has
// adopted. That is asked once in each task, and answered ever after as it was the first time.
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

// beyondHistory: the present workflow task is not in the history that the run was made from. Its marker says so to each replay.
func (s *shell) beyondHistory() bool {
	changeID := fmt.Sprintf("adopt-%d", workflow.GetInfo(s.ctx).GetCurrentHistoryLength())
	return workflow.GetVersion(s.ctx, changeID, workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// adoptWhenDue adopts the newest checkpoint before a run that was reset does anything, and when something later than the
// run knows of is known elsewhere.
func (s *shell) adoptWhenDue() error {
	reset, fenced := s.mustAdopt(), s.fenced
	s.fenced = false
	switch {
	case reset:
		err := s.readopt("it was reset", true)
		s.adopted, s.woken = true, true
		return err
	case fenced:
		return s.readopt("another run of it had gone on", false)
	}
	return nil
}

// readopt takes over the newest checkpoint, if it is newer than what the run knows, and gives up what is under way. What
// the run has accepted itself comes after it; of one that was reset that is in the checkpoint, and what it was sent
// a second time is left out. No update is carried out meanwhile: one that has begun ends before the checkpoint is read,
// in an earlier workflow task, so that the history has it.
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
	if answer.N <= s.desk.Checkpoint.N || answer.Over {
		s.desk.Follow(answer.Trail)
		if reset {
			s.replaces()
		}
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
	mine := s.desk.Inbox
	if err := s.takeOver(answer, missed, &protocol.Restart{At: s.now(), Why: why}); err != nil {
		return err
	}
	if reset { // what waited before is in the checkpoint
		mine = slices.Concat(s.meant(mine[waiting:sentAgain], missed, heard), mine[sentAgain:])
	} else { // what came before is among the missed
		mine = mine[known:]
	}
	s.comesAfter(missed, mine)
	return nil
}

// meant is what came to a run that was reset, without what its checkpoint and the missed have: with the first task that is not its past the server
// sends it again all that came after the place that it was reset to. Of what was heard since, and was missed, one is left out for each; whoever
// says the same once more means it.
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

// comesAfter puts messages behind a checkpoint and the missed, and notes both as heard: the run may be reset once more.
func (s *shell) comesAfter(missed, mine []*state.Message) {
	s.desk.Inbox = append(s.desk.Inbox, mine...)
	for _, m := range slices.Concat(missed, mine) {
		s.hear(m.Verb, m.Payload)
	}
}

// heardSince are the digests that were heard after those before, the oldest of which may be forgotten by now.
func heardSince(heard, before []string) []string {
	for n := range before {
		if kept := before[n:]; len(kept) <= len(heard) && slices.Equal(kept, heard[:len(kept)]) {
			return heard[len(kept):]
		}
	}
	return heard
}

// asMissed is a payload as it is once it was read from a history: without blanks.
func asMissed(payload json.RawMessage) json.RawMessage {
	if out, err := json.Marshal(payload); err == nil {
		return out
	}
	return payload
}

// beginWork makes the context of all that a run has under way.
func (s *shell) beginWork() { s.work, s.dropWork = workflow.WithCancel(s.ctx) }

// settled waits, in a run that was reset, until it has adopted what it does not know any more: an update that comes
// earlier would be carried out upon what was.
func (s *shell) settled(ctx workflow.Context) error {
	if !s.mustAdopt() {
		return nil
	}
	return workflow.Await(ctx, func() bool { return s.adopted })
}

// adopt begins a first run with the newest checkpoint, if there is one.
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
	defer func() { // after the state was taken over
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

// sentAgain takes in, in a run that was reset to where it begins, what the server sends it again.
func (s *shell) sentAgain() bool {
	if !s.mustAdopt() {
		return false
	}
	s.collect()
	return true
}

// takeOver makes a checkpoint the state, with what was accepted after it.
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

// follow has the audit trail go on from its end in the store. What that has beyond the checkpoint was written by the run before,
// or by whoever can write to the store: the line that says that the workflow goes on says so too (G7).
func (s *shell) follow(end *entities.TrailEnd) {
	known := s.desk.AuditLines
	if s.desk.Follow(end); s.desk.AuditLines > known {
		s.followed = fmt.Sprintf("lines %d to %d of its history are in the store, and were not in its checkpoint", known+1, s.desk.AuditLines)
	}
}

// fetchCheckpoint asks the store for what is newer than a number, page by page. It waits for as long as that takes: acting
// upon what is older would undo what people did.
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

// fromStorePatiently asks until the store answers.
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

// hear notes a signal of a person that has no request id; other workflows say nothing that may not come twice.
func (s *shell) hear(name string, raw json.RawMessage) {
	var act protocol.Act
	_ = json.Unmarshal(raw, &act) // who it is from, as far as that can be told
	if act.By != "" && act.RequestID == "" {
		s.desk.Hear(digestOf(name, raw))
	}
}

func digestOf(name string, payload json.RawMessage) string {
	return entities.ShortDigestOf([]string{name, string(payload)})
}

// withRequestID puts a request id into a payload that has none; what is no object is left as it is.
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

// restarted says why a workflow begins anew, for people.
func restarted(r *protocol.Restart) string {
	if r == nil {
		return "it was started again"
	}
	return r.Why
}

// letGo is how long an apply is given that was under way when its workflow ended: its worker learns of that with its next
// heartbeat, and ends it.
const letGo = heartbeat + time.Second
