package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// Commit applies a decision to the state that it was made from: its changes, and the work that it starts (marked as running).
func (s *State) Commit(changes []Change, w *Work, now time.Time) {
	var skipped map[string]*Release
	for _, c := range changes {
		if c.Kind != ChangeSkip {
			s.applyChange(c, now)
			continue
		}
		if skipped == nil { // thousands may have waited
			skipped = s.byID()
		}
		s.skip(c, skipped[c.Release], now)
	}
	for _, op := range w.Applies {
		s.applyStarted(op, now)
	}
	for _, op := range w.Queries {
		s.Instance(op.Instance).Observed.Query = &VersionQuery{Target: op.Target, Running: true}
	}
	for _, op := range w.Preflights {
		s.Channel(op.Channel).preflightStarted(op)
	}
	for _, op := range w.Extensions {
		s.extensionStarted(op, now)
	}
	for _, op := range w.Leases {
		s.leaseAsked(op, now)
	}
	for _, op := range w.Ends {
		if r := s.ReleaseByID(op.Release); r != nil {
			r.Extensions[op.Extension].EndRequested = now
			continue
		}
		s.Instance(op.Instance).Delivery.Apply.EndRequested = now
	}
	for _, op := range w.Removes {
		i := s.Instance(op.Instance)
		if l := i.PreviousPlacementOn(op.From); op.From != "" {
			l.Apply.Running, l.Apply.Started = true, now
			continue
		}
		if !i.RemovalStarted { // no apply of an earlier target may follow it
			i.Delivery.Sequence++
		}
		i.Delivery.Apply.Running, i.Delivery.Apply.Started, i.RemovalStarted = true, now, true
		i.Delivery.Apply.RunningVersion = ""
	}
}

func (s *State) applyChange(c Change, now time.Time) {
	s.dropStableTimes(c)
	switch c.Kind {
	case ChangePromote, ChangeTarget:
		s.promote(c, now)
	case ChangeUnchanged:
		s.recordUnchanged(c, now)
	case ChangeConverged:
		s.recordConverged(c, now)
	case ChangeFail:
		s.recordFailure(c, now)
	case ChangeRollback:
		s.applyRollback(c, nil, now)
	case ChangePin:
		s.applyPin(c, now)
	case ChangeDrained:
		s.markDrained(c)
	case ChangeRestored:
		s.restoreDrained(c, now)
	case ChangeStable:
		s.startWindow(c, now)
	case ChangeAside:
		s.setAside(c, now)
	case ChangeResume:
		s.continueAside(c, now)
	case ChangeStopClock, ChangeStartClock:
		s.setWindowClock(c, now)
	case ChangeUnstable:
		s.Channel(c.Channel).endWindow()
		s.AppendJournal(now, c.Channel, "no longer stable"+entities.Because(c.Cause))
	}
	for _, id := range c.Instances {
		s.Instance(id).applyChange(c, now)
	}
}

// countRepair counts a repair that succeeded, and records once that the instance does not stay stable.
func (s *State) countRepair(i *Instance, now time.Time) {
	a := &i.Delivery.Apply
	if a.Repairs++; a.Repairs == 1 {
		a.RepairedFrom = now
	}
	if a.Repairs != flappingRepairs {
		return
	}
	text := "does not stay stable: " + i.RepairsText()
	if name := s.DisplayName(i.ID); name != i.ID.Channel {
		text = name + " " + text
	}
	s.AppendJournal(now, i.ID.Channel, text+entities.Because(a.RepairCause))
	s.recordAudit(entities.AuditEntry{At: now, Kind: entities.EventFlapping, Channel: i.ID.Channel, Version: i.currentVersion(), Text: text, Reason: a.RepairCause})
}

// applyChange is the part of a change that concerns a single instance only.
func (i *Instance) applyChange(c Change, now time.Time) {
	d := &i.Delivery
	switch c.Kind {
	case ChangeRepaired:
		a := &d.Apply
		a.Attempts, a.Repairs, a.RepairedFrom, a.RepairCause, a.PutBacks, a.Err, a.NotBefore = 0, 0, time.Time{}, "", 0, "", time.Time{}
	case ChangeRequestReading:
		i.Observed.Requested, d.Apply.Overdue = true, now
	case ChangeUnstable:
		d.Apply.FirstStarted, d.Apply.Overdue, d.StoppedAt = now, time.Time{}, time.Time{}
		if d.Converged { // it is in progress again
			d.Converged, d.ConvergedAt = false, time.Time{}
			d.markBad(*d.Target)
		}
	case ChangeAwaitApproval:
		i.Approval.WaitingSince = time.Time{}
		if c.Target != nil {
			i.Approval.WaitingSince = now
		}
	case ChangeStopClock:
		d.StoppedAt = i.clockStop(now)
	case ChangeStartClock:
		if !d.Apply.FirstStarted.IsZero() {
			d.Apply.FirstStarted = d.Apply.FirstStarted.Add(now.Sub(d.StoppedAt))
			d.Apply.Overdue = time.Time{}
		}
		d.StoppedAt = time.Time{}
	}
}

// clockStop is when the progress deadline of an instance stops: now, or at the last answer of its runtime if nothing can be observed.
func (i *Instance) clockStop(now time.Time) time.Time {
	first, answered := i.Delivery.Apply.FirstStarted, i.Observed.AnsweredAt
	switch {
	case !i.Observed.Reading.Err.SaysNothing() || answered.After(now):
		return now
	case answered.Before(first):
		return first
	}
	return answered
}

// setWindowClock stops the post-deployment window of a channel, or restarts it where it stopped.
func (s *State) setWindowClock(c Change, now time.Time) {
	g := &s.Channel(c.Channel).Gates
	switch {
	case !c.Window:
	case c.Kind == ChangeStopClock:
		g.StoppedAt = now
	default:
		g.StableSince = g.StableSince.Add(now.Sub(g.StoppedAt))
		g.StoppedAt = time.Time{}
	}
}

// skip ends a release in a channel that another one enters. A release that yields leaves no good target (B3): if an instance of a fleet
// had converged at it, nothing returns to it.
func (s *State) skip(c Change, r *Release, now time.Time) {
	if r.Phases[c.Channel].Phase == maestro.InProgress {
		s.AppendJournal(now, c.Channel, r.FullVersion+" "+c.Cause)
		s.Channel(c.Channel).endWindow()
		for _, i := range s.InstancesIn(c.Channel) {
			if i.IsAt(r) && i.Delivery.Converged {
				i.Delivery.markBad(*i.Delivery.Target)
			}
		}
	}
	r.Phases[c.Channel] = &PhaseState{Phase: maestro.Skipped, Since: now, Reason: c.Cause}
	s.recordRolledBack(r, c.Channel, now)
}

func (s *State) promote(c Change, now time.Time) {
	if c.Kind == ChangePromote {
		s.setPhase(c, maestro.InProgress, now)
		s.Channel(c.Channel).clearReadings()
	}
	text := s.moveText(c.Moves)
	if s.IsReportOnly(c.Channel) {
		text = reportOnlyPrefix + text
	}
	s.AppendJournal(now, c.Channel, text+" ("+c.Cause+")")
	s.recordChange(c, entities.EventTarget, text, now)
	by := s.ReleaseByID(c.Release)
	s.recordRolledBack(by, c.Channel, now)
	if c.Kind == ChangePromote && by != nil {
		for _, i := range s.InstancesIn(c.Channel) { // failed instances restart with it, including its window
			switch d := &i.Delivery; {
			case !i.IsAt(by):
			case d.Converged:
				d.Failure, d.ChannelRemoved = "", false
			case d.Failure != "":
				i.resetAttempts(now)
			}
		}
	}
	for _, m := range c.Moves {
		i := s.Instance(m.Instance)
		if i.Delivery.Target != nil && by.isRollback() {
			s.markReleaseBad(i, s.ReleaseByID(by.RollsBack)) // a person rolled it back
		}
		s.setTarget(i, m.Target, now)
		if m.Reading != nil {
			i.setReading(*m.Reading, now)
			i.Observed.Fresh = true
		}
	}
}

// moveText describes the new targets: "target v1 → v2", with the number of instances if there are several.
func (s *State) moveText(moves []Move) string {
	if len(moves) == 0 {
		return "target"
	}
	first := moves[0]
	from := ""
	if t := s.Instance(first.Instance).Delivery.Target; t != nil {
		from = t.FullVersion + " → "
	}
	text := "target " + from + first.Target.FullVersion + s.runtimeChangeText(first)
	if c, ok := s.Spec.Channel(first.Instance.Channel); ok && len(c.Instances) > 1 {
		text += fmt.Sprintf(" in %d of %d", len(moves), len(c.Instances))
	}
	return text
}

func (s *State) recordUnchanged(c Change, now time.Time) {
	s.setPhase(c, maestro.Succeeded, now)
	s.recordRolledBack(s.ReleaseByID(c.Release), c.Channel, now)
	for _, id := range c.Instances {
		s.Instance(id).Delivery.Rollback = nil // the current version is what a newer release wants
	}
	s.AppendJournal(now, c.Channel, s.ReleaseByID(c.Release).FullVersion+" unchanged: "+c.Cause)
	s.recordChange(c, entities.EventSucceeded, "unchanged", now)
}

// recordConverged records that targets are stable. If the change has a release, it has succeeded in the channel. Without one, other
// instances are still in progress, or a rollback or a pin is complete.
func (s *State) recordConverged(c Change, now time.Time) {
	var rolledBack *entities.Rollback
	since := now
	spec, _ := s.Spec.Channel(c.Channel)
	for _, id := range c.Instances {
		d := &s.Instance(id).Delivery
		if spec.Rollout != nil && !d.Converged {
			d.ConvergedAt = now
		}
		d.Converged, d.Reapply, d.Restarting, d.ReappliedAfterDrain = true, false, false, false
		if d.Cancelled == "" && !d.ChannelRemoved {
			d.markGood(*d.Target)
		}
		d.Apply = Apply{Started: d.Apply.Started, Ended: d.Apply.Ended, FirstStarted: d.Apply.FirstStarted, OK: true}
		d.StoppedAt = time.Time{}
		if d.Rollback != nil {
			rolledBack = d.Rollback
			d.endRollback()
		}
		if d.Since.Before(since) {
			since = d.Since
		}
	}
	if c.Partial {
		return
	}
	s.Channel(c.Channel).endWindow()
	took := c.Target.FullVersion + " (" + entities.RoundDuration(now.Sub(since)) + ")"
	if rolledBack != nil && c.Release == "" {
		s.AppendJournal(now, c.Channel, "ROLLED_BACK to "+took+"; "+rolledBack.From+" is barred here")
		s.recordChange(c, entities.EventSucceeded, "rolled back to "+c.Target.FullVersion, now)
		return
	}
	if c.Release == "" && s.hasCancelledTarget(c.Channel) {
		s.AppendJournal(now, c.Channel, took+" converged although it was cancelled")
		return
	}
	s.AppendJournal(now, c.Channel, "CONVERGED at "+took)
	s.recordChange(c, entities.EventSucceeded, "converged at "+c.Target.FullVersion, now)
	s.setPhase(c, maestro.Succeeded, now)
}

// endRollback records that a rollback target is stable, perhaps after the rollback had failed.
func (d *Delivery) endRollback() {
	arrived := *d.Rollback
	arrived.WhilePaused = false // it applied only on the way to the rollback target
	if !arrived.Failed.IsZero() {
		arrived.Failed, d.Failure = time.Time{}, ""
	}
	d.Rollback = &arrived
}

func (s *State) recordFailure(c Change, now time.Time) {
	s.Channel(c.Channel).endWindow()
	if r := s.ReleaseByID(c.Release); r != nil {
		s.setPhase(c, maestro.Failed, now)
		defer s.withdraw(r, c.Channel, false, r.FullVersion+" failed in "+c.Channel, now)
	}
	text := "failed"
	for _, id := range c.Instances {
		d := &s.Instance(id).Delivery
		_, rt := s.Runtime(id)
		s.Instance(id).fail(rt.Timing, cmp.Or(c.Failure, c.Cause), now)
		if d.Rollback != nil {
			d.Rollback.Failed = now
			text = "the rollback failed"
		}
		c.Target = d.Target
	}
	s.recordChange(c, entities.EventFailed, text, now)
}

// startWindow starts the post-deployment window. Only readings taken in the window count.
func (s *State) startWindow(c Change, now time.Time) {
	channel := s.Channel(c.Channel)
	channel.StableSince, channel.StableFrom = now, now
	spec, _ := s.Spec.Channel(c.Channel)
	for n := range spec.Checks {
		if spec.Checks[n].RunsAfterDeployment() {
			delete(channel.Checks, spec.Checks[n].ID) // the window needs new readings
		}
	}
	since := now
	for _, i := range s.InstancesIn(c.Channel) {
		if i.Delivery.Target != nil && i.Delivery.Target.FullVersion == c.Target.FullVersion && i.Delivery.Since.Before(since) {
			since = i.Delivery.Since
		}
	}
	s.AppendJournal(now, c.Channel, "stable at "+c.Target.FullVersion+" ("+entities.RoundDuration(now.Sub(since))+"), soaking")
}

// setPhase sets the phase of a change's release. A change without one concerns instances only.
func (s *State) setPhase(c Change, p maestro.Phase, now time.Time) {
	if r := s.ReleaseByID(c.Release); r != nil {
		r.Phases[c.Channel] = &PhaseState{Phase: p, Since: now, Reason: c.Cause}
	}
}

// extensionStarted marks an extension as running. Its attempts are counted at their end.
func (s *State) extensionStarted(op ExtensionOp, now time.Time) {
	r := s.ReleaseByID(op.Release)
	if r == nil {
		return
	}
	if r.Extensions == nil {
		r.Extensions = map[string]*ExtensionState{}
	}
	key := op.Extension.RunKey()
	e := r.Extensions[key]
	if e == nil {
		e = &ExtensionState{}
		r.Extensions[key] = e
	}
	if e.Over() {
		e.Done, e.Failed, e.Attempts, e.Restarts = false, false, 0, e.Restarts+1
	}
	e.Running, e.Channel, e.Since, e.Next = true, op.Channel, now, time.Time{}
	e.Cancelled, e.Terminated, e.EndRequested = false, false, time.Time{}
}

// RecordStatus stores the status of a channel and since when, and records the transitions that are of interest to people in the journal.
func (s *State) RecordStatus(channel string, status entities.Status, reasons []string, now time.Time) {
	c := s.Channel(channel)
	if c.Status == status {
		return
	}
	before, since := c.Status, c.Since
	c.Status, c.Since = status, now
	switch {
	case before == "" || status == entities.StatusConverged && !s.hasTarget(channel): // nothing happened yet
	case status == entities.StatusProgressing && isUnhealthy(before):
		s.AppendJournal(now, channel, "as declared again after "+string(before)+" for "+entities.RoundDuration(now.Sub(since)))
	case status == entities.StatusConverged && isUnhealthy(before):
		text := "CONVERGED again after " + string(before) + " for " + entities.RoundDuration(now.Sub(since))
		s.AppendJournal(now, channel, text)
		if before == entities.StatusDegraded {
			s.recordHealth(entities.EventRepaired, channel, text, now)
		}
	case isUnhealthy(status) || isFailure(status) || status == entities.StatusPaused:
		text := string(status) + entities.Because(strings.Join(reasons, "; "))
		s.AppendJournal(now, channel, text)
		if status == entities.StatusDegraded {
			s.recordHealth(entities.EventDegraded, channel, text, now)
		}
	}
}

// recordHealth records that a channel is degraded, or not any more. One that flaps stays degraded, so this happens a few times at most before
// it was stable for long.
func (s *State) recordHealth(kind, channel, text string, now time.Time) {
	version := ""
	for _, i := range s.InstancesIn(channel) {
		version = cmp.Or(version, i.currentVersion())
	}
	s.recordAudit(entities.AuditEntry{At: now, Kind: kind, Channel: channel, Version: version, Text: text})
}

func (s *State) hasTarget(channel string) bool {
	return slices.ContainsFunc(s.InstancesIn(channel), func(i *Instance) bool { return i.Delivery.Target != nil })
}

// isUnhealthy: a converged channel is no longer healthy.
func isUnhealthy(s entities.Status) bool {
	return s == entities.StatusDegraded || s == entities.StatusUnknown || s == entities.StatusBlocked
}

// isFailure: a person may want to know at once.
func isFailure(s entities.Status) bool {
	return s == entities.StatusFailed || s == entities.StatusRollingBack || s == entities.StatusFailedRollback
}
