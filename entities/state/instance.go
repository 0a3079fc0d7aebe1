package state

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Channel is the stored state of a release channel as a whole.
type Channel struct {
	// Key is its first name, if it was renamed: runtimes identify it by that name.
	Key string `json:"key,omitempty"`
	// Position of the channel in the spec when it was last declared.
	Position int `json:"position,omitempty"`
	// ReportOnly: it was report-only when it was last declared (A25).
	ReportOnly bool `json:"reports,omitempty"`
	// Adopted: a person let Converge apply here, although the channel is declared report-only; nil: nobody did.
	Adopted *Adoption `json:"adopted,omitempty"`
	Gates   `json:"gates,omitzero"`
	// Takedown: a person deleted it, until a person restores it.
	Takedown *ChannelDeletion `json:"down,omitempty"`
	// Status that was last shown to people, and since when.
	Status entities.Status `json:"status,omitempty"`
	Since  time.Time       `json:"since,omitzero"`
	// AnnouncedWait: the last announced wait for an approval here: of a release (id), or of an apply.
	AnnouncedWait string `json:"announced,omitempty"`
	// Candidate is the release (id) that was last next here, by a strategy: it continues until a gate refuses it (B3).
	Candidate string `json:"candidate,omitempty"`
}

// Gates are the readings for the gates of a channel: of the release next in line, of the one in progress, or of a repair.
type Gates struct {
	Checks    map[string]*CheckState `json:"checks,omitempty"` // by Evaluation.ReadingKey
	Preflight *Preflight             `json:"preflight,omitempty"`
	// StableSince: all instances are stable at the release in progress, and its post-deployment window runs.
	StableSince time.Time `json:"stableSince,omitzero"`
	// StableFrom is when that was first observed. Unlike StableSince, a pause does not move it.
	StableFrom time.Time `json:"stableFrom,omitzero"`
	// Soaked are the windows that ended with a fresh PASS.
	Soaked []string `json:"soaked,omitempty"`
	// StoppedAt: the window is suspended since then.
	StoppedAt time.Time `json:"stoppedAt,omitzero"`
}

// Instance is a service in a channel on a runtime: its observations, its delivery, and the approvals of its applies.
type Instance struct {
	ID       entities.InstanceID `json:"id"`
	Runtime  string              `json:"runtime,omitempty"` // its current runtime: the following fields refer to it
	Observed Observation         `json:"observed,omitzero"`
	Delivery Delivery            `json:"delivery,omitzero"`
	Approval ApplyApproval       `json:"approval,omitzero"`
	// Steer is a requested action on its rollouts, until it is done.
	Steer *Steer `json:"steer,omitempty"`
	// Returning: a person gave it back, and its objects are not given up yet.
	Returning bool `json:"returning,omitempty"`
	// LastRuntime is the last spec of its runtime, if it is not declared any more.
	LastRuntime *entities.RuntimeSpec `json:"lastRuntime,omitempty"`
	// OnDelete is the onDelete of its channel when it was last declared.
	OnDelete entities.OnDelete `json:"onDelete,omitempty"`
	// RemovalStarted: the removal of its objects was started.
	RemovalStarted bool `json:"removed,omitempty"`
	// TakenDown: its objects are removed, and the instance is still declared.
	TakenDown bool `json:"down,omitempty"`
	// Drained: its runtime is drained, or was and the instance has not returned yet.
	Drained bool `json:"drained,omitempty"`
	// PreviousPlacements are the objects that it left on other runtimes when it moved, oldest first.
	PreviousPlacements []PreviousPlacement `json:"left,omitempty"`
}

// Observation is the last reading of an instance.
type Observation struct {
	// Reading holds the last good objects; its Err is set while readings fail.
	Reading entities.Reading `json:"reading"`
	Digest  string           `json:"digest,omitempty"` // of the last reading, including errors; "" before the first
	// Fresh: the reading was taken after the end of the last apply.
	Fresh    bool      `json:"fresh,omitempty"`
	At       time.Time `json:"at,omitzero"` // by the engine's clock, including failed readings
	ErrSince time.Time `json:"errSince,omitzero"`
	// AnsweredAt is when the runtime last answered before its readings failed, as far as known. It is set while they fail.
	AnsweredAt time.Time `json:"answered,omitzero"`
	// Requested: a reading is required now, regardless of the last one.
	Requested    bool          `json:"requested,omitempty"`
	Query        *VersionQuery `json:"asked,omitempty"`
	refreshCount int           // number of requested readings in this run
}

// VersionQuery is the answer of an exit-code runtime about a version that is not yet the target (C7).
type VersionQuery struct {
	Target  entities.Target  `json:"target"`
	Running bool             `json:"running,omitempty"`
	Reading entities.Reading `json:"reading"`
}

// Delivery is the target of an instance, and its progress.
type Delivery struct {
	Target *entities.Target `json:"target,omitempty"`
	Since  time.Time        `json:"since,omitzero"` // of the target
	// Converged: the current target has been stable once; any later difference is drift.
	Converged bool `json:"converged,omitempty"`
	// ConvergedAt is when it converged, if releases go through the channel in steps; or when steps were declared, if it had converged before.
	ConvergedAt time.Time        `json:"arrived,omitzero"`
	LastGood    *entities.Target `json:"lastGood,omitempty"`
	// EarlierGood are the good targets before LastGood, oldest first, at most MaxEarlier.
	EarlierGood []entities.Target `json:"earlier,omitempty"`
	// Failure is why the current target failed here permanently, until it is retried or replaced.
	Failure string `json:"failure,omitempty"`
	// Applied: an apply of the current target succeeded.
	Applied bool  `json:"applied,omitempty"`
	Apply   Apply `json:"apply,omitzero"`
	// Cancelled: by whom and why the release of the current target was cancelled before it succeeded here. Unless it has converged,
	// it is not applied any more, and nothing returns to it.
	Cancelled string `json:"cancelled,omitempty"`
	// StoppedAt: the progress deadline is suspended since then.
	StoppedAt time.Time          `json:"stoppedAt,omitzero"`
	Rollback  *entities.Rollback `json:"rollback,omitempty"`
	// Reapply: the target was set before, and is applied even if the current objects match it.
	Reapply bool `json:"reapply,omitempty"`
	// ReportedOnly: the target was not reached while its channel was report-only. It is applied once a release enters again.
	ReportedOnly bool `json:"reported,omitempty"`
	// ChannelRemoved: the channel was removed before the release of the current target had succeeded there. It is still applied, but it is not
	// good, and a release does not count it as already delivered.
	ChannelRemoved bool `json:"cut,omitempty"`
	// RestartedAt is when a person last restarted the instance: runtimes that write it into objects keep it for every target. Restarting:
	// the current target is applied for a restart.
	RestartedAt time.Time `json:"restarted,omitzero"`
	Restarting  bool      `json:"restarting,omitempty"`
	// ReappliedAfterDrain: the current target is applied again after a drain, so a failure is no evidence against the version.
	ReappliedAfterDrain bool `json:"comesBack,omitempty"`
	// BeforePin is the target that the instance returns to when its channel is unpinned.
	BeforePin *BeforePin `json:"beforePin,omitempty"`
	Lease     *Lease     `json:"lease,omitempty"`
	// Sequence counts the targets that were ever set here. It is sent with each apply, so none is carried out after one of a later target
	// (F2). FencedBy is the sequence that refused an apply of the current target; 0: none.
	Sequence int64 `json:"sequence,omitempty"`
	FencedBy int64 `json:"fenced,omitempty"`
}

// Apply is the state of the applies of the current target.
type Apply struct {
	Running       bool      `json:"running,omitempty"`
	FirstStarted  time.Time `json:"first,omitzero"`   // start of the first one: the progress deadline counts from here
	Started       time.Time `json:"started,omitzero"` // start of the last one
	Until         time.Time `json:"until,omitzero"`   // the last one times out
	Ended         time.Time `json:"ended,omitzero"`
	Attempts      int       `json:"attempts,omitempty"` // consecutive failures, or repairs since it was last stable for long
	Repairs       int       `json:"repairs,omitempty"`  // those repairs that succeeded
	RepairedFrom  time.Time `json:"repaired,omitzero"`  // end of the first of them
	RepairCause   string    `json:"cause,omitempty"`    // of the last repair
	PutBacks      int       `json:"putBacks,omitempty"` // applies of the target since it failed, which put back what is gone
	OK            bool      `json:"ok,omitempty"`       // the last one succeeded
	Err           string    `json:"err,omitempty"`
	NotBefore     time.Time `json:"next,omitzero"`    // earliest time of the next one
	Overdue       time.Time `json:"overdue,omitzero"` // the progress deadline has passed, and a last reading was requested
	NoWorkerSince time.Time `json:"untaken,omitzero"` // since then no worker takes it
	EndRequested  time.Time `json:"ending,omitzero"`  // since then its end is requested
	// RunningVersion is the full version of the running apply, which may be of the previous target. Terminated: it must end at once.
	RunningVersion string `json:"of,omitempty"`
	Terminated     bool   `json:"terminated,omitempty"`
	// Approval is the approval of the last started apply. It is valid again if that apply did not start.
	Approval *entities.Approval `json:"approved,omitempty"`
}

// ApplyApproval is the approval of an apply, if every apply is approved (C10).
type ApplyApproval struct {
	Given *entities.Approval `json:"given,omitempty"` // for the next apply
	// Others are earlier approvals of applies of other versions, which may still come.
	Others       []*entities.Approval `json:"also,omitempty"`
	WaitingSince time.Time            `json:"asked,omitzero"` // an apply of the current target waits for it since then
}

// BeforePin is the state that an instance returns to when its channel is unpinned.
type BeforePin struct {
	Target   entities.Target    `json:"target"`
	Rollback *entities.Rollback `json:"rollback,omitempty"`
}

// flappingRepairs is how many repairs within the maximum backoff of each other make an instance flap.
const flappingRepairs = 5

// Flapping reports whether a converged instance does not stay stable after repairs. It ends once the instance was stable for the maximum
// backoff of its runtime.
func (i *Instance) Flapping() bool {
	return i.Delivery.Converged && i.Delivery.Apply.Repairs >= flappingRepairs
}

// RepairsText says how often the instance was repaired, and since when.
func (i *Instance) RepairsText() string {
	a := &i.Delivery.Apply
	return "repaired " + entities.Times(a.Repairs) + " since " + a.RepairedFrom.UTC().Format("15:04:05 UTC")
}

// IsAt reports whether the instance's target is that of a release.
func (i *Instance) IsAt(r *Release) bool {
	return i != nil && i.Delivery.Target != nil && i.Delivery.Target.Same(r.Target(i.ID))
}

// hasValues reports whether the values of a release of an aspect are at the instance.
func (i *Instance) hasValues(r *Release) bool {
	_, values := entities.SplitVersion(i.currentVersion())
	return slices.Contains(values, r.FullVersion)
}

// currentVersion is the full version of the target, or "".
func (i *Instance) currentVersion() string {
	if i.Delivery.Target == nil {
		return ""
	}
	return i.Delivery.Target.FullVersion
}

// RollbackFailed reports whether the instance is at a failed rollback.
func (i *Instance) RollbackFailed() bool {
	d := &i.Delivery
	return d.Rollback != nil && !d.Rollback.Failed.IsZero() && d.Target != nil
}

// RollingBack reports whether a rollback is in progress, which no gate holds.
func (i *Instance) RollingBack() bool { return i.Delivery.Rollback != nil && !i.Delivery.Converged }

// AppliesAgain reports whether the instance was at its target before: it is restarted, or returns after a drain.
func (d *Delivery) AppliesAgain() bool { return d.Restarting || d.ReappliedAfterDrain }

// isGood reports whether the current target is the newest good one.
func (d *Delivery) isGood() bool {
	return d.Target != nil && d.Converged && d.LastGood != nil && d.LastGood.Same(*d.Target)
}

// markGood records that a target converged: it is the newest good one.
func (d *Delivery) markGood(t entities.Target) {
	if d.LastGood != nil && !d.LastGood.Same(t) {
		d.EarlierGood = entities.KeepLast(append(slices.DeleteFunc(slices.Clone(d.EarlierGood), t.Same), *d.LastGood), MaxEarlier)
	}
	d.LastGood = &t
}

// markBad records that a target is not good any more: nothing returns to it automatically.
func (d *Delivery) markBad(t entities.Target) {
	d.EarlierGood = slices.DeleteFunc(slices.Clone(d.EarlierGood), t.Same)
	if d.LastGood == nil || !d.LastGood.Same(t) {
		return
	}
	d.LastGood = nil
	if n := len(d.EarlierGood); n > 0 {
		last := d.EarlierGood[n-1]
		d.LastGood, d.EarlierGood = &last, d.EarlierGood[:n-1]
	}
}

// setTarget sets a target, on the runtime that its payload is for. A running apply belongs to the previous target: it ends first.
func (s *State) setTarget(i *Instance, t entities.Target, now time.Time) {
	if runtime, _ := s.TargetRuntime(i.ID, t); runtime != i.Runtime {
		i.moveTo(runtime, now)
	}
	d := &i.Delivery
	d.Target, d.Since = &t, now
	d.Sequence, d.FencedBy = d.Sequence+1, 0
	d.Converged, d.ConvergedAt, d.Failure, d.Cancelled, d.Applied = false, time.Time{}, "", "", false
	d.Rollback, d.BeforePin, d.Reapply, d.ReportedOnly, d.Restarting, d.ReappliedAfterDrain, d.ChannelRemoved = nil, nil, false, false, false, false, false
	d.Apply, d.StoppedAt = d.Apply.carriedOver(), time.Time{}
	i.Observed.Query, i.Approval.WaitingSince = nil, time.Time{}
}

// carriedOver is the state of a running apply, which survives a change of the target.
func (a Apply) carriedOver() Apply {
	out := Apply{Running: a.Running, Started: a.Started}
	if a.Running {
		out.RunningVersion, out.Terminated = a.RunningVersion, a.Terminated
	}
	return out
}

// restoreTarget sets an earlier target again. It is applied even if the current objects match it, because the target in between may still
// be in progress.
func (s *State) restoreTarget(i *Instance, t entities.Target, now time.Time) {
	s.setTarget(i, t, now)
	i.Delivery.Reapply = true
}

// resetAttempts resets the attempts at the current target. A running apply is the first of them.
func (i *Instance) resetAttempts(now time.Time) {
	d := &i.Delivery
	if d.Cancelled != "" && d.Converged { // it has arrived, and is good only once its release has succeeded
		d.Converged, d.ConvergedAt = false, time.Time{}
	}
	d.Failure, d.Cancelled, d.StoppedAt = "", "", time.Time{}
	if d.FencedBy >= d.Sequence && d.FencedBy > 0 { // a person confirms that this target is the right one
		d.Sequence, d.FencedBy = d.FencedBy+1, 0
	}
	ended := d.Apply.Ended
	d.Apply = d.Apply.carriedOver()
	d.Apply.Ended = ended
	if d.Apply.Running {
		d.Apply.FirstStarted = now
	}
}

// clearReadings removes the readings of a channel's gates about the previous target.
func (c *Channel) clearReadings() {
	c.endWindow()
	c.Checks = nil
	if c.Preflight != nil && !c.Preflight.Running {
		c.Preflight = nil
	}
}

// endWindow ends a post-deployment window, with any result.
func (c *Channel) endWindow() {
	c.StableSince, c.StableFrom, c.Soaked, c.StoppedAt = time.Time{}, time.Time{}, nil, time.Time{}
	if c.Preflight != nil && c.Preflight.Window && !c.Preflight.Running {
		c.Preflight = nil
	}
}
