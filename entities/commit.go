package entities

import (
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// Settle decides and commits until nothing changes any more, and returns the last decision with
// the changes and the work of every pass. It ends: every change moves a release or an instance one
// way only.
func (s *State) Settle(now time.Time, mode Mode) *Decision {
	var all Decision
	for {
		d := Decide(s, now, mode)
		s.Commit(d, now)
		idle := !d.acts()
		all.join(d)
		if idle {
			d.take(&all)
			for i := range d.Channels {
				s.commitStatus(&d.Channels[i], now)
				s.commitWants(&d.Channels[i])
			}
			s.prune()
			return d
		}
	}
}

// Commit carries a decision into the state it was made from: its changes and the work it starts
// (marked as running).
func (s *State) Commit(d *Decision, now time.Time) {
	for _, c := range d.Changes {
		s.commitChange(c, now)
	}
	for _, op := range d.Applies {
		s.applyStarted(op, now)
	}
	for _, op := range d.Asks {
		s.Instance(op.Channel).Asked = &Asked{Target: op.Target, Running: true}
	}
	for _, op := range d.Preflights {
		s.Instance(op.Channel).Preflight = &Preflight{Release: op.Release, Running: true, Window: op.Window}
	}
	for _, op := range d.Extensions {
		s.extensionStarted(op, now)
	}
	for _, op := range d.Leases {
		s.leaseAsked(op, now)
	}
	for _, op := range d.Removes {
		s.removeStarted(op, now)
	}
}

// extensionStarted marks an extension as running; how often it was tried is counted as it ends.
func (s *State) extensionStarted(op ExtensionOp, now time.Time) {
	r := s.ReleaseByID(op.Release)
	if r == nil {
		return
	}
	if r.Extensions == nil {
		r.Extensions = map[string]*ExtensionState{}
	}
	key := op.Extension.ExtensionKey()
	e := r.Extensions[key]
	if e == nil {
		e = &ExtensionState{}
		r.Extensions[key] = e
	}
	e.Running, e.Channel, e.Since, e.Next = true, op.Channel, now, time.Time{}
}

// Instance returns the instance of a channel, made when it is first spoken of.
func (s *State) Instance(channel string) *Instance {
	i := s.Instances[channel]
	if i == nil {
		if s.Instances == nil {
			s.Instances = map[string]*Instance{}
		}
		i = &Instance{Channel: channel}
		s.Instances[channel] = i
	}
	return i
}

// ReleaseByID returns the release of that id, or nil.
func (s *State) ReleaseByID(id string) *Release {
	for _, r := range s.Releases {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func (s *State) commitChange(c Change, now time.Time) {
	i := s.Instance(c.Channel)
	switch c.Kind {
	case ChangeSkip:
		s.setPhase(c, maestro.Skipped, now)
	case ChangePromote:
		s.commitPromote(c, now)
	case ChangeUnchanged:
		s.setPhase(c, maestro.Succeeded, now)
		i.Rollback = nil // what is there is what a newer release wants
		s.Record(now, c.Channel, s.ReleaseByID(c.Release).FullVersion+" unchanged: "+c.Cause)
		s.noteChange(c, EventSucceeded, "unchanged", now)
	case ChangeConverged:
		s.commitConverged(c, now)
	case ChangeRepaired:
		i.Progress.Attempts, i.Progress.Err, i.Progress.Next = 0, "", time.Time{}
	case ChangeFail:
		s.commitFail(c, now)
	case ChangeRollback:
		s.commitRollback(c, nil, now)
	case ChangePin:
		s.commitPin(c, now)
	case ChangeLook:
		i.Look, i.Progress.Overdue = true, now
	default:
		s.commitClock(c, i, now)
	}
}

// commitClock carries what concerns the progress deadline and the post-deployment window.
func (s *State) commitClock(c Change, i *Instance, now time.Time) {
	switch c.Kind {
	case ChangeStable:
		i.StableSince = now
		if spec, ok := s.Spec.Channel(c.Channel); ok {
			i.begins(spec)
		}
		s.Record(now, c.Channel, "stable at "+c.Target.FullVersion+" ("+short(now.Sub(i.TargetSince))+"), soaking")
	case ChangeUnsettled:
		i.settle()
		i.Progress.First, i.Progress.Overdue, i.PausedAt = now, time.Time{}, time.Time{}
		s.Record(now, c.Channel, "no longer stable"+because(c.Cause))
	case ChangeAwait:
		i.ApplyAsked = time.Time{}
		if c.Target != nil {
			i.ApplyAsked = now
		}
	case ChangeFreeze:
		i.PausedAt = now
	case ChangeThaw:
		still := now.Sub(i.PausedAt)
		if !i.Progress.First.IsZero() {
			i.Progress.First = i.Progress.First.Add(still)
			i.Progress.Overdue = time.Time{}
		}
		if !i.StableSince.IsZero() {
			i.StableSince = i.StableSince.Add(still)
		}
		i.PausedAt = time.Time{}
	}
}

func (s *State) commitPromote(c Change, now time.Time) {
	i := s.Instance(c.Channel)
	s.setPhase(c, maestro.InProgress, now)
	move := "target " + from(i.Target) + c.Target.FullVersion
	s.Record(now, c.Channel, move+" ("+c.Cause+")")
	s.noteChange(c, EventTarget, move, now)
	i.setTarget(*c.Target, now)
	if c.Reading != nil {
		i.look(*c.Reading, now)
		i.Fresh = true
	}
}

func (s *State) commitConverged(c Change, now time.Time) {
	i := s.Instance(c.Channel)
	i.Converged, i.Return = true, false
	i.good(*c.Target)
	i.settle()
	i.Progress = ApplyState{Started: i.Progress.Started, Ended: i.Progress.Ended, First: i.Progress.First, OK: true}
	i.PausedAt = time.Time{}
	took := c.Target.FullVersion + " (" + short(now.Sub(i.TargetSince)) + ")"
	if b := i.Rollback; b != nil {
		s.Record(now, c.Channel, "ROLLED_BACK to "+took+"; "+b.From+" is barred here")
		s.noteChange(c, EventSucceeded, "rolled back to "+c.Target.FullVersion, now)
		return
	}
	s.Record(now, c.Channel, "CONVERGED at "+took)
	s.noteChange(c, EventSucceeded, "converged at "+c.Target.FullVersion, now)
	s.setPhase(c, maestro.Succeeded, now)
}

func (s *State) commitFail(c Change, now time.Time) {
	i := s.Instance(c.Channel)
	i.Failure = c.Cause
	i.settle()
	s.setPhase(c, maestro.Failed, now)
	text := "failed"
	if i.Rollback != nil {
		i.Rollback.Failed = now
		text = "the way back failed"
	}
	c.Target = i.Target
	s.noteChange(c, EventFailed, text, now)
}

func from(t *Target) string {
	if t == nil {
		return ""
	}
	return t.FullVersion + " → "
}

// setPhase moves a change's release on; a change without one concerns the instance alone.
func (s *State) setPhase(c Change, p maestro.Phase, now time.Time) {
	if r := s.ReleaseByID(c.Release); r != nil {
		r.Phases[c.Channel] = &PhaseState{Phase: p, Since: now, Reason: c.Cause}
	}
}

func (i *Instance) setTarget(t Target, now time.Time) {
	i.Target, i.TargetSince = &t, now
	i.Converged, i.Failure = false, ""
	i.settle()
	i.Rollback, i.Away, i.Return = nil, nil, false
	// An apply that runs is of what was the target: it ends first.
	i.Progress, i.PausedAt, i.Asked = ApplyState{Running: i.Progress.Running, Started: i.Progress.Started}, time.Time{}, nil
	i.Checks, i.ApplyAsked = nil, time.Time{}
	if i.Preflight != nil && !i.Preflight.Running {
		i.Preflight = nil
	}
}

// commitStatus keeps since when a status holds, and writes the transitions that a person wants to
// read into the journal.
func (s *State) commitStatus(c *ChannelDecision, now time.Time) {
	i := s.Instance(c.Channel)
	s.noteWaiting(c, i, now)
	if i.Status == c.Status {
		return
	}
	before, since := i.Status, i.Since
	i.Status, i.Since = c.Status, now
	switch {
	case before == "" || i.Target == nil && c.Status == StatusConverged: // nothing happened yet
	case c.Status == StatusConverged && before.disturbed():
		s.Record(now, c.Channel, "CONVERGED again after "+string(before)+" for "+short(now.Sub(since)))
	case c.Status.disturbed() || c.Status.failed() || c.Status == StatusPaused:
		s.Record(now, c.Channel, string(c.Status)+because(strings.Join(c.Reasons, "; ")))
	}
}

// disturbed: what had converged is not as it was.
func (s Status) disturbed() bool {
	return s == StatusDegraded || s == StatusUnknown || s == StatusBlocked
}

// failed: a person may want to know at once.
func (s Status) failed() bool {
	return s == StatusFailed || s == StatusRollingBack || s == StatusFailedRollback
}

func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// at tells whether a channel is at a release: such a one can be retried, and tells which version a
// full version is of.
func (s *State) at(r *Release) bool {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for c := range r.Phases {
		if s.isAt(c, r) || s.comesBackTo(c, r) {
			return true
		}
	}
	return false
}

// comesBackTo: the channel may come back to the release, or a person may try it again there.
func (s *State) comesBackTo(channel string, r *Release) bool {
	i := s.Instances[channel]
	if i == nil {
		return false
	}
	t := r.Target(channel)
	return i.LastGood != nil && i.LastGood.Same(t) || i.Away != nil && i.Away.Target.Same(t) ||
		i.Rollback != nil && i.Rollback.Release == r.ID
}

func (s *State) isAt(channel string, r *Release) bool {
	i := s.Instances[channel]
	return i != nil && i.Target != nil && i.Target.Same(r.Target(channel))
}

// shorten drops what extensions that succeeded have said, once their release is over; the store has
// all of it.
func (r *Release) shorten() {
	// In any order: the answer is the same.
	//workflowcheck:ignore
	for _, e := range r.Extensions {
		if e.Done {
			e.Tail = ""
		}
	}
}

// prune forgets releases that are over, but for a bounded tail and those that a channel is still
// at.
func (s *State) prune() {
	over := 0
	for _, r := range s.Releases {
		if r.Over() {
			over++
			r.shorten()
		}
	}
	if over <= MaxFinishedReleases {
		return
	}
	kept := make([]*Release, 0, len(s.Releases))
	for n, r := range s.Releases {
		if r.Over() && over > MaxFinishedReleases && n < len(s.Releases)-1 && !s.at(r) {
			over--
			continue
		}
		kept = append(kept, r)
	}
	s.Releases = kept
}
