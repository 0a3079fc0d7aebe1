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
	s.ending = true
	defer func() { s.ending = false }()
	if s.updateAnswered && !s.endPostponed {
		s.endPostponed = true
		return workflow.Sleep(s.ctx, time.Millisecond)
	}
	return s.continueAsNew()
}

// continueAsNew hands the state to the next run, including signals that arrived in the meantime. It returns nil if this run has to continue
// for now: the store does not accept the state, without which the workflow would be lost, or an update arrived during the write.
func (s *shell) continueAsNew() error {
	if s.probeStoreForState() {
		return nil
	}
	s.collect()
	s.mailbox.Checkpoint.N = s.checkpointNumber() // the next run continues from there
	s.flushAuditBeforeEnd()                       // lines that the store does not accept now are carried along
	s.markReached(depStore)                       // otherwise the next run would start with a problem that may be over
	carried, err := s.packAll()
	s.storeAcceptsState = false
	switch {
	case isStoreError(err):
		s.backOff(depStateSpill, err)
		return nil
	case isStoreError(err):
		s.setProblem(dependencyErrors[depStore].problem, errorText(err))
		return workflow.Sleep(s.ctx, margin)
	}
	if err != nil || !s.quiescent() {
		return err
	}
	workflowType, in := s.entity.nextRun(carried)
	return workflow.NewContinueAsNewErrorWithOptions(s.ctx, continueOptions, workflowType, in)
}

// probeStoreForState is true after the store did not accept the state, which blocked all callers. Before the next try, the store is called
// outside the task to learn whether it would accept the state, until it does.
func (s *shell) probeStoreForState() bool {
	if s.outages[depStateSpill].tries == 0 || s.storeAcceptsState {
		return false
	}
	s.trackOperation(func(ctx workflow.Context) {
		err := s.callStore(outsideTask(ctx), protocol.ActivitySpill, protocol.SpillRequest{}, nil)
		if s.storeAcceptsState = err == nil; !s.storeAcceptsState {
			s.backOff(depStateSpill, err)
		}
	})
	return true
}

// continueOptions makes the next run start on the version of workers that is current then, pinned to it. Without versions it has no effect.
var continueOptions = workflow.ContinueAsNewErrorOptions{InitialVersioningBehavior: workflow.ContinueAsNewVersioningBehaviorAutoUpgrade}

// packAll packs until no message arrives during the packing, which may wait for the store. Updates wait for the lock, so that none changes
// the packed state.
func (s *shell) packAll() (protocol.CarriedState, error) {
	if err := s.lock.Lock(s.ctx); err != nil {
		return protocol.CarriedState{}, err
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
func (s *shell) pack() (protocol.CarriedState, error) {
	out := protocol.CarriedState{StateVersion: protocol.Version}
	plain, err := json.Marshal(s.fullState)
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
	return out, s.callStore(s.ctx, protocol.ActivitySpill, protocol.SpillRequest{Packed: packed}, &out.Spilled)
}

// restore loads the state that the last run packed; a first run starts without state.
//
// State in a format that this worker does not know, newer or older, or that it cannot read, is not touched. The workflow task fails, not the workflow, and is
// retried until a worker takes it that can read the state. No data is lost in the meantime.
//
// A first run that is to adopt starts with the state in the store.
func (s *shell) restore(in protocol.CarriedState, first protocol.StartMode) error {
	if err := s.unpack(in, false); err != nil {
		return err
	}
	s.auditCommit.lines, s.checkpointBase = s.mailbox.AuditCount, s.mailbox.Checkpoint.N // of the last run
	if first.Adopt {
		if err := s.adopt(first.Restart); err != nil {
			return err
		}
	}
	s.restored = true
	return nil
}

// unpack reads a state; overwrite: over an existing one.
func (s *shell) unpack(in protocol.CarriedState, overwrite bool) error {
	if in.StateVersion > protocol.Version {
		panic(fmt.Sprintf("state version %d of %s is newer than this worker knows (%d): upgrade the worker", in.StateVersion, s.name, protocol.Version))
	}
	if in.StateVersion < protocol.OldestVersion && !in.Empty() {
		panic(fmt.Sprintf("state version %d of %s is older than this worker reads (%d and newer): start one of an earlier version, and upgrade without skipping a version",
			in.StateVersion, s.name, protocol.OldestVersion))
	}
	packed, err := in.Packed, error(nil)
	if in.Spilled != "" {
		if packed, err = s.fetchSpilled(s.ctx, in.Spilled); err != nil {
			return err
		}
	}
	if overwrite {
		reflect.ValueOf(s.fullState).Elem().SetZero()
	}
	switch {
	case packed != nil:
		err = packed.Unpack(s.fullState)
	case in.State != nil:
		err = json.Unmarshal(in.State, s.fullState)
	}
	if err != nil {
		panic(fmt.Sprintf("carried state of %s: %s", s.name, err))
	}
	return nil
}

// maxPartsPerTask is how many parts of spilled state one workflow task reads: the history that it writes must stay far below the server's
// limit for one request (4 MiB).
const maxPartsPerTask = 16

// fetchSpilled waits for the store without a limit: a workflow cannot continue without its state, and to give up would lose it.
func (s *shell) fetchSpilled(ctx workflow.Context, digest string) (protocol.Packed, error) {
	return fetchParts(ctx, digest, func(r protocol.RestoreRequest, answer *protocol.RestoreAnswer) error {
		return s.callStoreUntilAnswered(ctx, protocol.ActivityRestore, r, answer)
	})
}

// fetchParts reads an object in the store, part by part.
func fetchParts(ctx workflow.Context, digest string, ask func(protocol.RestoreRequest, *protocol.RestoreAnswer) error) (protocol.Packed, error) {
	var packed protocol.Packed
	for part := 1; ; part++ {
		if part%maxPartsPerTask == 0 {
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

// recordAudit adds an audit line; a nil who means Converge itself.
func (s *shell) recordAudit(kind string, who *entities.Who, text, reason string) {
	s.recordAuditOf("", kind, who, text, reason)
}

// recordAuditOf adds an audit line that concerns only the service with that key, or, if it is empty, everything that the workflow is for.
func (s *shell) recordAuditOf(service, kind string, who *entities.Who, text, reason string) {
	if kind == entities.EventRestart {
		reason = joinNotes(reason, s.uncheckpointedLines)
	}
	line := s.mailbox.AppendAudit(entities.AuditEntry{At: s.now(), Kind: kind, Who: who, Service: service, Text: clip(text), Reason: clip(reason)})
	if s.onAudit != nil {
		s.onAudit(line)
	}
}

// unstoredHistory returns the lines that the store does not have yet.
func (s *shell) unstoredHistory() (protocol.HistoryAnswer, error) {
	stored, last := s.mailbox.AuditCount, s.mailbox.TrailEnd()
	if len(s.mailbox.Audit) > 0 {
		stored = s.mailbox.Audit[0].N - 1
	}
	return protocol.HistoryAnswer{
		Schema: protocol.HistorySchema, Application: s.application, Service: s.service,
		Stored: stored, Entries: append([]entities.AuditEntry{}, s.mailbox.Audit...), Last: &last,
	}, nil
}

// auditCommit tracks which workflow task recorded which part of the audit trail.
type auditCommit struct {
	task        int   // the last one that was checked, by the length of history
	lines       int64 // how many lines there were at that time
	atTaskStart int64 // a lower bound of how many of them existed before that task
}

// committedLines are the lines that earlier workflow tasks recorded. The current task may be lost, and the task that replaces it, which
// includes later messages, would record other lines under the same numbers. So its own lines are not written yet.
func (s *shell) committedLines() []entities.AuditEntry {
	t := &s.auditCommit
	if task := workflow.GetInfo(s.ctx).GetCurrentHistoryLength(); task != t.task {
		t.task, t.atTaskStart = task, t.lines
	}
	t.lines = s.mailbox.AuditCount
	later := slices.IndexFunc(s.mailbox.Audit, func(l entities.AuditEntry) bool { return l.N > t.atTaskStart })
	if later < 0 {
		return s.mailbox.Audit
	}
	return s.mailbox.Audit[:later]
}

// flushAudit writes audit lines to the store once enough committed lines are buffered. It does not block. If every line must be written
// soon and none is committed yet, the next workflow task writes them, and that task follows at once.
func (s *shell) flushAudit() {
	enough, committed := s.entity.auditBufferSize(), len(s.committedLines())
	soon := enough == 1 && len(s.mailbox.Audit) > 0
	if s.storingAudit || enough == 0 || committed < enough && !soon || s.outages.isOpen(depAuditLog) {
		return
	}
	s.storingAudit = true
	switch {
	case committed > 0:
		s.trackOperation(s.storeCommitted)
	default: // the server may need a second: a run that ends in the meantime carries the lines along
		workflow.Go(s.ctx, func(ctx workflow.Context) {
			if workflow.Sleep(ctx, time.Millisecond) == nil {
				s.trackOperation(s.storeCommitted)
			}
		})
	}
}

// storeCommitted writes the committed lines, or schedules a retry.
func (s *shell) storeCommitted(ctx workflow.Context) {
	if s.failedBefore(depAuditLog) {
		ctx = outsideTask(ctx)
	}
	err := s.storeAudit(ctx)
	s.storingAudit = false
	if err != nil {
		s.backOff(depAuditLog, err)
		return
	}
	s.outages[depAuditLog] = outage{}
}

// flushAuditBeforeEnd writes the buffered lines before a run ends. Lines that the store does not accept, and those of the last workflow
// task, stay in state.
func (s *shell) flushAuditBeforeEnd() {
	if !s.storingAudit {
		_ = s.storeAudit(s.ctx) // on failure they are carried along, and the next run retries
	}
}

func (s *shell) storeAudit(ctx workflow.Context) error {
	lines := s.committedLines()
	if len(lines) == 0 {
		return nil
	}
	lines = slices.Clone(lines[:linesThatFit(lines)])
	err := s.callStore(ctx, protocol.ActivityHistory, protocol.HistoryRequest{
		Application: s.application, Service: s.service, Entries: lines,
	}, nil)
	if err != nil {
		return err
	}
	s.mailbox.AuditStored(lines[len(lines)-1].N)
	return nil
}

// maxAuditWriteBytes is how many bytes of audit lines one call writes, so that they fit into an event.
const maxAuditWriteBytes = 48 << 10

// linesThatFit is how many of the first lines one call writes, at least one.
func linesThatFit(lines []entities.AuditEntry) int {
	size := 0
	for n, line := range lines {
		raw, err := json.Marshal(line)
		if size += len(raw); n > 0 && (err != nil || size > maxAuditWriteBytes) {
			return n
		}
	}
	return len(lines)
}
