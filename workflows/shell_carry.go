package workflows

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// endRun continues as new, if possible not in the workflow task that answers an update: a signal that arrives just then makes the server
// discard that task, and the answer with it. It waits only once, or a stream of updates would prevent the run from ending.
func (s *shell) endRun() error {
	if s.answered && !s.postponed {
		s.postponed = true
		return workflow.Sleep(s.ctx, time.Millisecond)
	}
	return s.continueAsNew()
}

// continueAsNew hands the state to the next run, including signals that arrived in the meantime. It returns nil if this run has to continue
// for now: the store does not accept the state, without which the workflow would be lost, or an update arrived during the write.
func (s *shell) continueAsNew() error {
	if s.asksForState() {
		return nil
	}
	s.collect()
	s.desk.Checkpoint.N = s.place() // the next run continues from there
	s.storeTrail()                  // lines that the store does not accept now are carried along
	s.reached(theStore)             // otherwise the next run would start with a trouble that may be over; if not, it shows up again
	carried, err := s.packAll()
	s.takesState = false
	switch {
	case isStoreError(err):
		s.backOff(theNextRun, err)
		return nil
	case isStoreError(err):
		s.trouble(silences[theStore].trouble, errorText(err))
		return workflow.Sleep(s.ctx, margin)
	}
	if err != nil || !s.atRest() {
		return err
	}
	workflowType, in := s.of.next(carried)
	return workflow.NewContinueAsNewErrorWithOptions(s.ctx, onward, workflowType, in)
}

// asksForState is true after the store did not accept the state, which blocked all callers. Before the next try, the store is called
// outside the task to learn whether it would accept the state, until it does.
func (s *shell) asksForState() bool {
	if s.outages[theNextRun].tries == 0 || s.takesState {
		return false
	}
	s.await(func(ctx workflow.Context) {
		err := s.fromStore(beside(ctx), protocol.ActivitySpill, protocol.SpillRequest{}, nil)
		if s.takesState = err == nil; !s.takesState {
			s.backOff(theNextRun, err)
		}
	})
	return true
}

// onward makes the next run start on the version of workers that is current then, pinned to it. Without versions it has no effect.
var onward = workflow.ContinueAsNewErrorOptions{InitialVersioningBehavior: workflow.ContinueAsNewVersioningBehaviorAutoUpgrade}

// packAll packs until no message arrives during the packing, which may wait for the store. Updates wait for the lock, so that none changes
// the packed state.
func (s *shell) packAll() (protocol.Carried, error) {
	if err := s.lock.Lock(s.ctx); err != nil {
		return protocol.Carried{}, err
	}
	defer s.lock.Unlock()
	for {
		s.woken = false
		carried, err := s.pack()
		s.collect()
		if err != nil || !s.woken {
			return carried, err
		}
	}
}

// packedLimit is the size in bytes of packed state up to which it is carried from run to run. Larger state goes to the store, so that no
// payload exceeds 64 KiB (base64 in JSON adds a third).
const packedLimit = 44 << 10

// pack converts the state to the input of the next run.
func (s *shell) pack() (protocol.Carried, error) {
	out := protocol.Carried{StateVersion: protocol.Version}
	plain, err := json.Marshal(s.whole)
	if err == nil && len(plain) <= protocol.PlainLimit {
		out.State = plain
		return out, nil
	}
	var packed protocol.Packed
	if err == nil {
		packed, err = protocol.Pack(json.RawMessage(plain))
	}
	if err != nil {
		return out, fmt.Errorf("state of %s: %w", s.name, err)
	}
	if len(packed) <= packedLimit {
		out.Packed = packed
		return out, nil
	}
	return out, s.fromStore(s.ctx, protocol.ActivitySpill, protocol.SpillRequest{Packed: packed}, &out.Spilled)
}

// restore loads the state that the last run packed; a first run starts without state.
//
// State in a newer format than this worker knows, or that it cannot read, is not touched. The workflow task fails, not the workflow, and is
// retried until a worker takes it that can read the state. No data is lost in the meantime.
//
// A first run that is to adopt starts with the state in the store.
func (s *shell) restore(in protocol.Carried, first protocol.Beginning) error {
	if err := s.unpack(in, false); err != nil {
		return err
	}
	s.trail.lines, s.base = s.desk.AuditLines, s.desk.Checkpoint.N // of the last run
	if first.Adopt {
		if err := s.adopt(first.Restart); err != nil {
			return err
		}
	}
	s.restored = true
	return nil
}

// unpack reads a state; anew: over an existing one.
func (s *shell) unpack(in protocol.Carried, anew bool) error {
	if in.StateVersion > protocol.Version {
		panic(fmt.Sprintf("state version %d of %s is newer than this worker knows (%d): upgrade the worker", in.StateVersion, s.name, protocol.Version))
	}
	packed, err := in.Packed, error(nil)
	if in.Spilled != "" {
		if packed, err = s.fetchSpilled(s.ctx, in.Spilled); err != nil {
			return err
		}
	}
	if anew {
		reflect.ValueOf(s.whole).Elem().SetZero()
	}
	switch {
	case packed != nil:
		err = packed.Unpack(s.whole)
	case in.State != nil:
		err = json.Unmarshal(in.State, s.whole)
	}
	if err != nil {
		panic(fmt.Sprintf("carried state of %s: %s", s.name, err))
	}
	return nil
}

// partsAtOnce is how many parts of spilled state one workflow task reads: the history that it writes must stay far below the server's limit
// for one request (4 MiB).
const partsAtOnce = 16

// fetchSpilled waits for the store without a limit: a workflow cannot continue without its state, and to give up would lose it.
func (s *shell) fetchSpilled(ctx workflow.Context, digest string) (protocol.Packed, error) {
	return fetchParts(ctx, digest, func(r protocol.RestoreRequest, answer *protocol.RestoreAnswer) error {
		return s.fromStorePatiently(ctx, protocol.ActivityRestore, r, answer)
	})
}

// fetchParts reads an object in the store, part by part.
func fetchParts(ctx workflow.Context, digest string, ask func(protocol.RestoreRequest, *protocol.RestoreAnswer) error) (protocol.Packed, error) {
	var packed protocol.Packed
	for part := 1; ; part++ {
		if part%partsAtOnce == 0 {
			if err := workflow.Sleep(ctx, time.Millisecond); err != nil { // ends the task
				return nil, err
			}
		}
		var answer protocol.RestoreAnswer
		if err := ask(protocol.RestoreRequest{Digest: digest, Offset: len(packed)}, &answer); err != nil {
			return nil, err
		}
		packed = append(packed, answer.Part...)
		if len(packed) >= answer.Total {
			return packed, nil
		}
	}
}

// note adds an audit line; a nil who means Converge itself.
func (s *shell) note(kind string, who *entities.Who, text, reason string) {
	if kind == entities.EventRestart {
		reason = joined(reason, s.followed)
	}
	line := s.desk.Note(entities.AuditLine{At: s.now(), Kind: kind, Who: who, Text: clip(text), Reason: clip(reason)})
	if s.noted != nil {
		s.noted(line)
	}
}

// history returns the lines that the store does not have yet.
func (s *shell) history() (protocol.HistoryAnswer, error) {
	stored, last := s.desk.AuditLines, s.desk.TrailEnd()
	if len(s.desk.Audit) > 0 {
		stored = s.desk.Audit[0].N - 1
	}
	return protocol.HistoryAnswer{
		Schema: protocol.HistorySchema, Application: s.application, Service: s.service,
		Stored: stored, Lines: append([]entities.AuditLine{}, s.desk.Audit...), Last: &last,
	}, nil
}

// trail tracks which workflow task noted which part of the audit trail.
type trail struct {
	task        int   // the last one that was checked, by the length of history
	lines       int64 // how many lines there were at that time
	atTaskStart int64 // a lower bound of how many of them existed before that task
}

// committed are the lines that earlier workflow tasks noted. The current task may be lost, and the task that replaces it, which includes
// later messages, would note other lines under the same numbers. So its own lines are not written yet.
func (s *shell) committed() []entities.AuditLine {
	t := &s.trail
	if task := workflow.GetInfo(s.ctx).GetCurrentHistoryLength(); task != t.task {
		t.task, t.atTaskStart = task, t.lines
	}
	t.lines = s.desk.AuditLines
	later := slices.IndexFunc(s.desk.Audit, func(l entities.AuditLine) bool { return l.N > t.atTaskStart })
	if later < 0 {
		return s.desk.Audit
	}
	return s.desk.Audit[:later]
}

// keepTrail writes audit lines to the store once enough committed lines are buffered. It does not block. If every line must be written soon
// and none is committed yet, the next workflow task writes them, and that task follows at once.
func (s *shell) keepTrail() {
	enough, committed := s.of.flushAt(), len(s.committed())
	soon := enough == 1 && len(s.desk.Audit) > 0
	if s.storing || enough == 0 || committed < enough && !soon || s.outages.open(theTrail) {
		return
	}
	s.storing = true
	switch {
	case committed > 0:
		s.await(s.trailStored)
	default: // the server may need a second: a run that ends in the meantime carries the lines along
		workflow.Go(s.ctx, func(ctx workflow.Context) {
			if workflow.Sleep(ctx, time.Millisecond) == nil {
				s.await(s.trailStored)
			}
		})
	}
}

// trailStored writes the committed lines, or schedules a retry.
func (s *shell) trailStored(ctx workflow.Context) {
	if s.patient(theTrail) {
		ctx = beside(ctx)
	}
	err := s.storeLines(ctx)
	s.storing = false
	if err != nil {
		s.backOff(theTrail, err)
		return
	}
	s.outages[theTrail] = outage{}
}

// storeTrail writes the buffered lines before a run ends. Lines that the store does not accept, and those of the last workflow task, stay
// in state.
func (s *shell) storeTrail() {
	if !s.storing {
		_ = s.storeLines(s.ctx) // on failure they are carried along, and the next run retries
	}
}

func (s *shell) storeLines(ctx workflow.Context) error {
	lines := s.committed()
	if len(lines) == 0 {
		return nil
	}
	lines = slices.Clone(lines[:fitting(lines)])
	err := s.fromStore(ctx, protocol.ActivityHistory, protocol.HistoryRequest{
		Application: s.application, Service: s.service, Lines: lines,
	}, nil)
	if err != nil {
		return err
	}
	s.desk.AuditStored(lines[len(lines)-1].N)
	return nil
}

// atOnce is how many bytes of audit lines one call writes, so that they fit into an event.
const atOnce = 48 << 10

// fitting is how many of the first lines one call writes, at least one.
func fitting(lines []entities.AuditLine) int {
	size := 0
	for n, line := range lines {
		raw, err := json.Marshal(line)
		if size += len(raw); n > 0 && (err != nil || size > atOnce) {
			return n
		}
	}
	return len(lines)
}
