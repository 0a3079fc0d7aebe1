package state

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Channel is what is remembered of a release channel as a whole.
type Channel struct {
	// Key is the name that it had first, where that is another one: what runtimes know it by.
	Key string `json:"key,omitempty"`
	// Position of the channel in the spec when it was last declared.
	Position int `json:"position,omitempty"`
	// Reports: nothing was written here when it was last declared (A25).
	Reports bool `json:"reports,omitempty"`
	Gates   `json:"gates,omitzero"`
	// Down: a person had what runs here removed, until somebody brings it back.
	Down *Down `json:"down,omitempty"`
	// Status that people were last shown, and since when.
	Status entities.Status `json:"status,omitempty"`
	Since  time.Time       `json:"since,omitzero"`
	// Announced: what was last announced to wait for an approval here: a release (id), or an apply.
	Announced string `json:"announced,omitempty"`
	// Candidate is the release (id) that was next here, by a strategy: it goes on as long as nothing says no (B3).
	Candidate string `json:"candidate,omitempty"`
}

// Gates is what was read for the gates of a channel: of the release that is next in line, in progress, or
// of a repair.
type Gates struct {
	Checks    map[string]*CheckState `json:"checks,omitempty"` // by Evaluation.ReadingKey
	Preflight *Preflight             `json:"preflight,omitempty"`
	// StableSince: all instances are stable at the release in progress, and its post-deployment window runs.
	StableSince time.Time `json:"stableSince,omitzero"`
	// StableFrom is when that was seen: no pause moves it, as it moves StableSince with the window.
	StableFrom time.Time `json:"stableFrom,omitzero"`
	// Soaked are the windows that have ended with a fresh PASS.
	Soaked []string `json:"soaked,omitempty"`
	// StoppedAt: the window stands still since then.
	StoppedAt time.Time `json:"stoppedAt,omitzero"`
}

// Instance is a service in a channel on a runtime: what was observed of it, what is delivered to it, and
// what a person said about its applies.
type Instance struct {
	ID       entities.InstanceID `json:"id"`
	Runtime  string              `json:"runtime,omitempty"` // where it is: all that follows was seen and done there
	Observed Observation         `json:"observed,omitzero"`
	Delivery Delivery            `json:"delivery,omitzero"`
	Approval ApplyApproval       `json:"approval,omitzero"`
	// Steer is what a person asked of its rollouts, until that is done.
	Steer *Steer `json:"steer,omitempty"`
	// LastRuntime is its runtime as it was, once it is no longer declared.
	LastRuntime *entities.RuntimeSpec `json:"lastRuntime,omitempty"`
	// OnDelete is what its channel said of that when it was last declared.
	OnDelete entities.OnDelete `json:"onDelete,omitempty"`
	// Removed: what ran here was begun to be taken down.
	Removed bool `json:"removed,omitempty"`
	// Down: what ran here is removed, and the instance is still declared.
	Down bool `json:"down,omitempty"`
	// Drained: its runtime is drained, or was, and the instance is not back yet.
	Drained bool `json:"drained,omitempty"`
	// Left is what it left on other runtimes when it moved, oldest first.
	Left []Left `json:"left,omitempty"`
}

// Observation is what was read of an instance.
type Observation struct {
	// Reading holds the last good objects; its Err is set while readings fail.
	Reading entities.Reading `json:"reading"`
	Digest  string           `json:"digest,omitempty"` // of the last reading, errors included; "" before the first
	// Fresh: the reading was taken after the last apply ended.
	Fresh    bool      `json:"fresh,omitempty"`
	At       time.Time `json:"at,omitzero"` // by the engine's clock, failed readings included
	ErrSince time.Time `json:"errSince,omitzero"`
	// Requested: a reading is wanted now, whatever is known.
	Requested bool   `json:"requested,omitempty"`
	Asked     *Asked `json:"asked,omitempty"`
	refreshed int    // how often a reading was asked for in this run
}

// Asked is what an exit-code runtime answered about a version that is not yet the target (C7).
type Asked struct {
	Target  entities.Target  `json:"target"`
	Running bool             `json:"running,omitempty"`
	Reading entities.Reading `json:"reading"`
}

// Delivery is what an instance should be at, and how far that is.
type Delivery struct {
	Target *entities.Target `json:"target,omitempty"`
	Since  time.Time        `json:"since,omitzero"` // of the target
	// Converged: the present target has been stable once; any later difference is drift.
	Converged bool `json:"converged,omitempty"`
	// Arrived is when it converged, where releases go through the channel in steps; or when that was declared, after it had.
	Arrived  time.Time        `json:"arrived,omitzero"`
	LastGood *entities.Target `json:"lastGood,omitempty"`
	// Earlier are the good targets before LastGood, oldest first, at most MaxEarlier.
	Earlier []entities.Target `json:"earlier,omitempty"`
	// Failure says why the present target failed here for good, until it is retried or replaced.
	Failure string `json:"failure,omitempty"`
	Apply   Apply  `json:"apply,omitzero"`
	// Cancelled: the release of the present target was cancelled before it had succeeded here, by whom and why. Unless it has
	// arrived all the same it is applied no more, and nothing leads back to it.
	Cancelled string `json:"cancelled,omitempty"`
	// StoppedAt: the progress deadline stands still since then.
	StoppedAt time.Time          `json:"stoppedAt,omitzero"`
	Rollback  *entities.Rollback `json:"rollback,omitempty"`
	// Reapply: the target was there before, and is applied even when what is there looks like it.
	Reapply bool `json:"reapply,omitempty"`
	// Reported: the target was not reached while its channel only reported. It is applied once a release enters anew.
	Reported bool `json:"reported,omitempty"`
	// Cut: the channel was removed before the release of the present target had succeeded there. It is applied as ever, and is neither good nor what a
	// release finds there already.
	Cut bool `json:"cut,omitempty"`
	// Restarted is when a person last had the instance restarted: runtimes that write that down keep it, whatever the target.
	// Restarting: the present target is applied for that.
	Restarted  time.Time `json:"restarted,omitzero"`
	Restarting bool      `json:"restarting,omitempty"`
	// ComesBack: the present target is applied again after a drain, so that it says nothing against the version if it fails.
	ComesBack bool `json:"comesBack,omitempty"`
	// BeforePin: what the instance returns to when its channel is pinned no longer.
	BeforePin *BeforePin `json:"beforePin,omitempty"`
	Lease     *Lease     `json:"lease,omitempty"`
	// Sequence counts the targets that were ever set here: it goes with each apply, so that none is carried out after one of
	// a later target (F2). Fenced is the one that refused an apply of the present target; 0: none did.
	Sequence int64 `json:"sequence,omitempty"`
	Fenced   int64 `json:"fenced,omitempty"`
}

// Apply is what is known of the applies of the present target.
type Apply struct {
	Running  bool      `json:"running,omitempty"`
	First    time.Time `json:"first,omitzero"`   // start of the first one: the progress deadline counts from here
	Started  time.Time `json:"started,omitzero"` // start of the last one
	Ended    time.Time `json:"ended,omitzero"`
	Attempts int       `json:"attempts,omitempty"` // failed in a row, or repairs without effect
	OK       bool      `json:"ok,omitempty"`       // the last one succeeded
	Err      string    `json:"err,omitempty"`
	Next     time.Time `json:"next,omitzero"`    // not before
	Overdue  time.Time `json:"overdue,omitzero"` // the progress deadline has passed, and a last reading was asked for
	Untaken  time.Time `json:"untaken,omitzero"` // since then no worker takes it
	Ending   time.Time `json:"ending,omitzero"`  // since then it is asked to end
	// Of is the full version that runs, which may be that of the target before. Terminated: it is to end at once.
	Of         string `json:"of,omitempty"`
	Terminated bool   `json:"terminated,omitempty"`
	// Approved is the word on the one that was started last, which counts again where that did not begin.
	Approved *entities.Approval `json:"approved,omitempty"`
}

// ApplyApproval is a person's word on an apply, where every apply is approved (C10).
type ApplyApproval struct {
	Given *entities.Approval `json:"given,omitempty"` // for the next apply
	// Also are those that were given before for applies of other versions, which may still come.
	Also  []*entities.Approval `json:"also,omitempty"`
	Asked time.Time            `json:"asked,omitzero"` // an apply of the present target waits for it since then
}

// BeforePin is what an instance returns to when its channel is unpinned.
type BeforePin struct {
	Target   entities.Target    `json:"target"`
	Rollback *entities.Rollback `json:"rollback,omitempty"`
}

// IsAt tells whether the instance's target is that of a release.
func (i *Instance) IsAt(r *Release) bool {
	return i != nil && i.Delivery.Target != nil && i.Delivery.Target.Same(r.Target(i.ID))
}

// has tells whether the values of a release of an aspect are at the instance.
func (i *Instance) has(r *Release) bool {
	_, values := entities.SplitVersion(i.present())
	return slices.Contains(values, r.FullVersion)
}

// present is the full version that is the target, or "".
func (i *Instance) present() string {
	if i.Delivery.Target == nil {
		return ""
	}
	return i.Delivery.Target.FullVersion
}

// RollbackFailed tells whether the instance stands at a rollback that failed.
func (i *Instance) RollbackFailed() bool {
	d := &i.Delivery
	return d.Rollback != nil && !d.Rollback.Failed.IsZero() && d.Target != nil
}

// RollingBack tells whether a rollback is under way, which no gate holds.
func (i *Instance) RollingBack() bool { return i.Delivery.Rollback != nil && !i.Delivery.Converged }

// isGood: the present target is the newest good one.
func (d *Delivery) isGood() bool {
	return d.Target != nil && d.Converged && d.LastGood != nil && d.LastGood.Same(*d.Target)
}

// good notes that a target converged: it is the newest good one.
func (d *Delivery) good(t entities.Target) {
	if d.LastGood != nil && !d.LastGood.Same(t) {
		d.Earlier = entities.KeepLast(append(slices.DeleteFunc(slices.Clone(d.Earlier), t.Same), *d.LastGood), MaxEarlier)
	}
	d.LastGood = &t
}

// bad notes that a target is good no longer: nothing returns to it by itself.
func (d *Delivery) bad(t entities.Target) {
	d.Earlier = slices.DeleteFunc(slices.Clone(d.Earlier), t.Same)
	if d.LastGood == nil || !d.LastGood.Same(t) {
		return
	}
	d.LastGood = nil
	if n := len(d.Earlier); n > 0 {
		last := d.Earlier[n-1]
		d.LastGood, d.Earlier = &last, d.Earlier[:n-1]
	}
}

// setTarget moves an instance to a target, on the runtime that its payload is for. An apply that runs is of what was the
// target: it ends first.
func (s *State) setTarget(i *Instance, t entities.Target, now time.Time) {
	if runtime, _ := s.Bound(i.ID, t); runtime != i.Runtime {
		i.moveTo(runtime, now)
	}
	d := &i.Delivery
	d.Target, d.Since = &t, now
	d.Sequence, d.Fenced = d.Sequence+1, 0
	d.Converged, d.Arrived, d.Failure, d.Cancelled = false, time.Time{}, "", ""
	d.Rollback, d.BeforePin, d.Reapply, d.Reported, d.Restarting, d.ComesBack, d.Cut = nil, nil, false, false, false, false, false
	d.Apply, d.StoppedAt = d.Apply.running(), time.Time{}
	i.Observed.Asked, i.Approval.Asked = nil, time.Time{}
}

// running is what is known of an apply that runs, whatever becomes of its target.
func (a Apply) running() Apply {
	out := Apply{Running: a.Running, Started: a.Started}
	if a.Running {
		out.Of, out.Terminated = a.Of, a.Terminated
	}
	return out
}

// returnTo sets a target that was there before: it is applied even when what is there looks like it,
// since what was just there may still be on its way.
func (s *State) returnTo(i *Instance, t entities.Target, now time.Time) {
	s.setTarget(i, t, now)
	i.Delivery.Reapply = true
}

// restart begins the attempts at the present target anew; an apply that runs is the first of them.
func (i *Instance) restart(now time.Time) {
	d := &i.Delivery
	if d.Cancelled != "" && d.Converged { // it has arrived, and is good only once its release has succeeded
		d.Converged, d.Arrived = false, time.Time{}
	}
	d.Failure, d.Cancelled, d.StoppedAt = "", "", time.Time{}
	if d.Fenced >= d.Sequence && d.Fenced > 0 { // a person says that this target is the one
		d.Sequence, d.Fenced = d.Fenced+1, 0
	}
	ended := d.Apply.Ended
	d.Apply = d.Apply.running()
	d.Apply.Ended = ended
	if d.Apply.Running {
		d.Apply.First = now
	}
}

// targetSet forgets what the gates of a channel read about what was there before.
func (c *Channel) targetSet() {
	c.endWindow()
	c.Checks = nil
	if c.Preflight != nil && !c.Preflight.Running {
		c.Preflight = nil
	}
}

// endWindow ends a post-deployment window, however it went.
func (c *Channel) endWindow() {
	c.StableSince, c.StableFrom, c.Soaked, c.StoppedAt = time.Time{}, time.Time{}, nil, time.Time{}
	if c.Preflight != nil && c.Preflight.Window && !c.Preflight.Running {
		c.Preflight = nil
	}
}
