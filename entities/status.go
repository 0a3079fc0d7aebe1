package entities

import (
	"strings"
	"time"
)

// Status is the convergence status of one channel of a service, or of one instance in it.
type Status string

// The statuses.
const (
	StatusDeleted        Status = "DELETED"
	StatusOrphaned       Status = "ORPHANED"
	StatusPaused         Status = "PAUSED"
	StatusFailedRollback Status = "FAILED_ROLLBACK"
	StatusRollingBack    Status = "ROLLING_BACK"
	StatusFailed         Status = "FAILED"
	StatusUnknown        Status = "UNKNOWN"
	StatusSuspended      Status = "SUSPENDED"
	StatusConverging     Status = "CONVERGING"
	StatusDegraded       Status = "DEGRADED"
	StatusManualApproval Status = "WAITING_MANUAL_APPROVAL"
	StatusBlocked        Status = "BLOCKED"
	StatusPreconditions  Status = "WAITING_PRECONDITIONS"
	StatusRolledBack     Status = "ROLLED_BACK"
	StatusCancelled      Status = "CANCELLED"
	StatusProgressing    Status = "PROGRESSING"
	StatusConverged      Status = "CONVERGED"
)

// StatusUnmanaged is the status of a service without a workflow, so nothing more is known: it is unmanaged, or was not restarted yet. It is
// not in the table, which is for channels.
const StatusUnmanaged Status = "UNMANAGED"

// Exit codes of `converge wait`. ExitWaiting: the status ends without an action, or by waiting, so the command keeps waiting.
const (
	ExitConverged   = 0
	ExitFailed      = 2
	ExitNeedsPerson = 8
	ExitWaiting     = -1
)

// Facts are the input of a status.
type Facts struct {
	Deleted, Orphaned, Paused     bool
	RollbackFailed, RollingBack   bool
	Failed                        bool // the release in progress failed here
	Unknown                       bool // no reading yet, readings fail, or no worker polls
	Suspended                     bool // the target is in progress, and waits at its own step for a user
	Converging                    bool // target set, not stable yet
	Degraded                      bool // had converged, now unhealthy or drifted
	Progressing                   bool // had converged, is as declared, and not all of it is ready
	WaitsApproval, Blocked, Waits bool // of the next release
	RolledBack                    bool
	Cancelled                     bool // the release of the current version was cancelled before it succeeded
	ApplyNeedsApproval            bool // the apply of the target waits for an approval
}

// StatusRow is one row of the status table.
type StatusRow struct {
	Status   Status
	When     string
	EndsBy   string
	Exit     int // of `converge wait`
	Severity int // the service's status is that of its worst channel: the highest
	Match    func(Facts) bool
}

// StatusTable returns the table of statuses. The first match wins. docs/ prints it.
func StatusTable() []StatusRow { return statusTable[:] }

var statusTable = [...]StatusRow{
	{StatusDeleted, "deleted, and its objects are removed", "", ExitConverged, 0, func(f Facts) bool { return f.Deleted }},
	{StatusOrphaned, "no longer declared, left in place", "declare or remove", ExitWaiting, 2, func(f Facts) bool { return f.Orphaned }},
	{StatusPaused, "paused at any scope", "resume", ExitNeedsPerson, 6, func(f Facts) bool { return f.Paused }},
	{StatusFailedRollback, "a rollback target failed", "its target becomes stable after all, retry, or a later release", ExitFailed, 16, func(f Facts) bool { return f.RollbackFailed }},
	{StatusRollingBack, "moving to a rollback target", "converged or failed", ExitWaiting, 9, func(f Facts) bool { return f.RollingBack }},
	{StatusFailed, "the release in progress failed here, no rollback", "retry, a newer release, cancel", ExitFailed, 15, func(f Facts) bool { return f.Failed }},
	{StatusUnknown, "no reading yet, readings fail, or no worker polls", "a reading", ExitWaiting, 10, func(f Facts) bool { return f.Unknown }},
	{StatusSuspended, "a rollout waits at one of its own steps for a person", "rollout promote, rollout abort", ExitNeedsPerson, 8, func(f Facts) bool { return f.Suspended }},
	{StatusConverging, "target set, objects not yet stable", "stable, or deadline", ExitWaiting, 5, func(f Facts) bool { return f.Converging }},
	{StatusDegraded, "had converged, now unhealthy or drifted", "repair", ExitFailed, 12, func(f Facts) bool { return f.Degraded }},
	{StatusManualApproval, "the next release waits, and an approval can be given now", "approve, reject", ExitNeedsPerson, 7, func(f Facts) bool { return f.WaitsApproval }},
	{StatusBlocked, "the next release or step waits for something that failed", "a fix of that, or a newer release", ExitFailed, 11, func(f Facts) bool { return f.Blocked }},
	{StatusPreconditions, "the next release or step waits for other conditions", "they pass", ExitWaiting, 4, func(f Facts) bool { return f.Waits }},
	{StatusRolledBack, "at its rollback target; the release is barred", "a newer release", ExitFailed, 14, func(f Facts) bool { return f.RolledBack }},
	{StatusCancelled, "the release was cancelled before it succeeded here", "rollback, retry, another release", ExitFailed, 13, func(f Facts) bool { return f.Cancelled }},
	{StatusProgressing, "as declared, but not everything is ready: pods restart or scale", "ready", ExitWaiting, 3, func(f Facts) bool { return f.Progressing }},
	{StatusConverged, "at its target, which is the desired one", "", ExitConverged, 1, func(Facts) bool { return true }},
}

// StatusOf returns the status for the facts.
func StatusOf(f Facts) Status {
	return rowOf(func(r *StatusRow) bool { return r.Match(f) }).Status
}

// Health returns the status of the current version alone, without pauses and pending releases. CONVERGED is healthy.
func (f Facts) Health() Status {
	f.Paused, f.WaitsApproval, f.Blocked, f.Waits = false, false, false, false
	f.Converging = f.Converging || f.ApplyNeedsApproval
	return StatusOf(f)
}

// RollUp returns the facts of a channel from those of its instances. One instance is enough for most facts. But a channel is paused,
// removed or left in place only if all its instances are.
func (f Facts) RollUp(instances []Facts) Facts {
	all := len(instances) > 0
	paused, orphaned, deleted := all, all, all
	for _, i := range instances {
		paused, orphaned, deleted = paused && i.Paused, orphaned && i.Orphaned, deleted && i.Deleted
		f = f.or(i)
	}
	f.Paused, f.Orphaned, f.Deleted = f.Paused || paused, orphaned, deleted
	return f
}

// or combines the problems of an instance with those of the channel.
func (f Facts) or(i Facts) Facts {
	f.RollbackFailed, f.RollingBack = f.RollbackFailed || i.RollbackFailed, f.RollingBack || i.RollingBack
	f.Failed, f.Unknown, f.Converging = f.Failed || i.Failed, f.Unknown || i.Unknown, f.Converging || i.Converging
	f.Suspended = f.Suspended || i.Suspended
	f.Degraded, f.RolledBack, f.Cancelled = f.Degraded || i.Degraded, f.RolledBack || i.RolledBack, f.Cancelled || i.Cancelled
	f.Progressing = f.Progressing || i.Progressing
	f.WaitsApproval, f.ApplyNeedsApproval = f.WaitsApproval || i.WaitsApproval, f.ApplyNeedsApproval || i.ApplyNeedsApproval
	return f
}

// Row returns the table row of a status. An unknown one (of a newer version) counts as in progress.
func (s Status) Row() StatusRow {
	r := rowOf(func(r *StatusRow) bool { return r.Status == s })
	if r.Status == "" {
		return StatusRow{Status: s, Exit: ExitWaiting}
	}
	return r
}

// Stuck reports whether a status only ends by a user action or a newer release.
func (s Status) Stuck() bool {
	switch s {
	case StatusFailed, StatusFailedRollback, StatusRolledBack, StatusCancelled, StatusBlocked, StatusOrphaned, StatusDeleted:
		return true
	}
	return false
}

// Worst returns the status with the highest severity; CONVERGED if there is none.
func Worst(all ...Status) Status {
	worst := StatusConverged
	for _, s := range all {
		if s.Row().Severity > worst.Row().Severity {
			worst = s
		}
	}
	return worst
}

func rowOf(match func(*StatusRow) bool) StatusRow {
	for i := range statusTable {
		if match(&statusTable[i]) {
			return statusTable[i]
		}
	}
	return StatusRow{}
}

// Verdict is the current result of a condition.
type Verdict string

// The verdicts. Everything but PASS delays (fail closed). WAIT ends without an action or by a user, FAIL only when the failure is fixed,
// ERROR when the check itself works again.
const (
	Pass  Verdict = "PASS"
	Wait  Verdict = "WAIT"
	Fail  Verdict = "FAIL"
	Error Verdict = "ERROR"
)

// severity orders verdicts: PASS < WAIT < ERROR < FAIL. Zero is an unknown verdict.
func (v Verdict) severity() int {
	switch v {
	case Pass:
		return 1
	case Wait:
		return 2
	case Error:
		return 3
	case Fail:
		return 4
	}
	return 0
}

// Known reports whether this version knows the verdict.
func (v Verdict) Known() bool { return v.severity() > 0 }

// Worse reports whether a verdict is worse than another: PASS < WAIT < ERROR < FAIL.
func (v Verdict) Worse(than Verdict) bool { return v.severity() > than.severity() }

// CheckReading is the result of evaluating a check.
type CheckReading struct {
	Verdict Verdict   `json:"verdict"`
	Reason  string    `json:"reason,omitempty"`
	Next    time.Time `json:"next,omitzero"` // when it may next change without an action
	At      time.Time `json:"at"`
	// Errors is how often in a row the evaluation failed. Retry is when it is retried, if the evaluator knows that. Without an error, Retry is
	// when the check requests its next evaluation.
	Errors int       `json:"errors,omitempty"`
	Retry  time.Time `json:"retry,omitzero"`
	// Selected are the next instances that a check of kind selection selected, in order.
	Selected []string `json:"selected,omitempty"`
}

// ReasonDigest identifies a reason. The part before the slash ignores numbers, the part after it does not.
func (r CheckReading) ReasonDigest() string {
	words := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, r.Reason)
	return ShortDigestOf(words) + "/" + ShortDigestOf(r.Reason)
}

// numberChangeInterval is how long a reason is kept if only its numbers changed, such as those of a metric. Each report of a new reason
// costs history.
const numberChangeInterval = 5 * time.Minute

// ReasonChanged reports whether a reading with a new reason, but the same verdict, has to be reported. Reasons of other services are
// compared including their numbers.
func (r CheckReading) ReasonChanged(e Evaluation) bool {
	digest := r.ReasonDigest()
	if e.ReasonDigest == "" || digest == e.ReasonDigest {
		return false
	}
	words, _, _ := strings.Cut(digest, "/")
	known, _, _ := strings.Cut(e.ReasonDigest, "/")
	return words != known || e.Kind.OnOthers() || r.At.Sub(e.ReasonAt) >= numberChangeInterval
}

// Digest identifies a verdict and when it may change. A new reason alone is reported by ReasonChanged.
func (r CheckReading) Digest() string {
	if r.Verdict == "" {
		return ""
	}
	next := ""
	if !r.Next.IsZero() {
		next = r.Next.UTC().Format(time.RFC3339)
	}
	text := string(r.Verdict) + " " + next
	if len(r.Selected) > 0 {
		text += " " + ShortDigestOf(r.Selected)
	}
	return text
}

// Evaluation is one check to be evaluated, and the last known result.
type Evaluation struct {
	Channel        string        `json:"channel"`
	ID             string        `json:"id"`
	Kind           CheckKind     `json:"kind"`
	Definition     string        `json:"definition"`
	Release        string        `json:"release,omitempty"` // id; "" for a repair
	FullVersion    string        `json:"fullVersion"`       // to be checked
	Payload        string        `json:"payload,omitempty"` // digest, of the version to be checked
	CurrentPayload string        `json:"present,omitempty"` // digest of the current payload
	KnownDigest    string        `json:"known,omitempty"`   // CheckReading.Digest of the known result; "": any reading is news
	Errors         int           `json:"errors,omitempty"`  // known errors in a row
	Retry          time.Time     `json:"retry,omitzero"`    // when it is due after them; zero: now
	ReasonDigest   string        `json:"said,omitempty"`    // CheckReading.ReasonDigest of the known result; "": it is not reported
	ReasonAt       time.Time     `json:"saidAt,omitzero"`   // when that was read
	Interval       time.Duration `json:"interval"`
	Runtime        string        `json:"runtime,omitempty"` // whose own worker evaluates it; "": any worker
	// Remaining of Total instances stay while the others leave drained runtimes; 0 of 0: all do.
	Remaining int `json:"stay,omitempty"`
	Total     int `json:"of,omitempty"`
	// Incarnation of the version to be checked, and the lowest current one, for a check of kind deniedCommits; 0: there is no current version.
	Incarnation int64 `json:"incarnation,omitempty"`
	Since       int64 `json:"since,omitempty"`
	// Candidates are the candidates of a check of kind selection: a list of selection.Candidate as JSON.
	Candidates string `json:"candidates,omitempty"`
}

// WithoutResult returns the evaluation without the known result.
func (e Evaluation) WithoutResult() Evaluation {
	e.KnownDigest, e.Errors, e.Retry, e.ReasonDigest, e.ReasonAt = "", 0, time.Time{}, "", time.Time{}
	return e
}

// CandidatesDigest identifies the candidates of a selection; "" if there are none.
func (e Evaluation) CandidatesDigest() string {
	if e.Candidates == "" {
		return ""
	}
	return ShortDigestOf(e.Candidates)
}

// Key identifies an evaluation among those of a service.
func (e Evaluation) Key() string { return e.Channel + "/" + e.ReadingKey() }

// ReadingKey identifies a reading among those of a channel. A repair and a release may both run the same check.
func (e Evaluation) ReadingKey() string {
	if e.Release == "" {
		return RepairKey(e.ID)
	}
	return e.ID
}

// RepairKey is the key of the reading of a check for a repair.
func RepairKey(check string) string { return "repair:" + check }
