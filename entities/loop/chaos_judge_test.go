package loop_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// judge checks the invariants of one pass.
func (c *chaos) judge(d *decide.Decision, mode decide.Mode) {
	c.decided = d.Changes
	for _, ch := range d.Changes {
		c.judgeChange(ch, mode, d)
		c.judgeSteps(ch, d)
	}
	for _, op := range d.Ends {
		if r := c.s.ReleaseByID(op.Release); r != nil {
			c.judgeEndOf(r, op, d)
			continue
		}
		if i := c.s.Instances[op.Instance]; i.Delivery.Cancelled != "" && !i.Delivery.Converged && i.Delivery.Apply.Running {
			continue
		}
		next := c.nextIn(op.Instance.Channel, d)
		i := c.s.Instances[op.Instance]
		maintains := i.Delivery.Failure != "" && i.Delivery.Apply.PutBacks > 0 // an apply that only maintains a failed target ends for a newer one
		if _, runs := c.applies[op.Instance]; !runs || mode.NoNewWork || next == nil || c.s.Strategy(next) != maestro.Immediate && !maintains {
			c.t.Fatalf("the end of an apply of %s must not be requested:\n%s", op.Instance, d)
		}
	}
	c.judgeWrites(d)
	applied := map[entities.InstanceID]bool{}
	for _, op := range d.Applies {
		if applied[op.Instance] {
			c.t.Fatalf("two applies of %s:\n%s", op.Instance, d)
		}
		applied[op.Instance] = true
		c.judgeApply(op, mode, d)
	}
	removing := 0 // instances, one by one; objects left elsewhere do not count, nor does an instance that was declared again since
	for id, op := range c.removes {
		i := c.s.Instances[id] // it may have been on another runtime when the removal started
		if op.From == "" && !c.s.Declared(id) && i != nil && i.Delivery.Target != nil {
			removing++
		}
	}
	for _, op := range d.Removes {
		if op.From != "" {
			c.judgeLeftoverRemoval(op, mode, d)
			continue
		}
		if c.s.Declared(op.Instance) {
			c.judgeDrainRemoval(op, mode, d)
			continue
		}
		if i := c.s.Instances[op.Instance]; c.s.Deletion == nil && i.OnDelete == entities.DeleteOrphans {
			c.t.Fatalf("removed although its channel orphans its objects:\n%s", d)
		}
		_, paused := c.s.PauseOf(op.Instance)
		_, applying := c.applies[op.Instance]
		if paused || applying || mode.NoNewWork || removing > 0 {
			c.t.Fatalf("must not be removed (paused %v, applying %v, drain %v, removing %d):\n%s", paused, applying, mode.NoNewWork, removing, d)
		}
		removing++
	}
	for _, op := range d.Preflights {
		if p, runs := c.preflights[op.Channel]; runs || mode.NoNewWork {
			c.t.Fatalf("a second concurrent preflight (%v):\n%s", p, d)
		}
	}
	for _, op := range d.Extensions {
		_, paused := c.s.PauseIn(op.Channel)
		if r := c.s.ReleaseByID(op.Release); paused || mode.NoNewWork || r.Phases[op.Channel].Phase.Over() {
			c.t.Fatalf("an extension while paused, draining, or of a release that is over:\n%s", d)
		}
	}
}

// judgeEndOf: the end of a run of an extension is requested only if it was cancelled, once, and if no channel waits for it.
func (c *chaos) judgeEndOf(r *state.Release, op state.EndOp, d *decide.Decision) {
	e := r.Extensions[op.Extension]
	for channel, p := range r.Phases {
		spec, _ := c.s.Spec.Channel(channel)
		for _, x := range spec.Extensions {
			if x.RunKey() == op.Extension && !p.Phase.Over() && !e.Cancelled {
				c.t.Fatalf("%s waits for a run that is being ended:\n%s", channel, d)
			}
		}
	}
	if !e.Running || !e.EndRequested.IsZero() {
		c.t.Fatalf("the end of a run must not be requested:\n%s", d)
	}
}

func (c *chaos) nextIn(channel string, d *decide.Decision) *state.Release {
	for n := range d.Channels {
		if d.Channels[n].Channel == channel {
			return d.Channels[n].Next
		}
	}
	return nil
}

// judgeWrites: nothing is written in a report-only channel, or in an undeclared one that was report-only (A25).
func (c *chaos) judgeWrites(d *decide.Decision) {
	var written []string
	for _, op := range d.Applies {
		written = append(written, op.Instance.Channel)
	}
	for _, op := range d.Removes {
		written = append(written, op.Instance.Channel)
	}
	for _, op := range d.Extensions {
		written = append(written, op.Channel)
	}
	for _, name := range written {
		spec, declared := c.s.Spec.Channel(name)
		if spec.Report != "" || !declared && c.s.Channels[name].ReportOnly {
			c.t.Fatalf("%s is report-only:\n%s", name, d)
		}
	}
}

// judgeDrainRemoval: a declared instance is removed only from a drained runtime, with a permit, and, except with force, while others remain.
func (c *chaos) judgeDrainRemoval(op state.RemoveOp, mode decide.Mode, d *decide.Decision) {
	i := c.s.Instances[op.Instance]
	p := c.s.DrainOf(i.Runtime)
	_, held := c.s.PauseBesidesDrain(op.Instance)
	_, twice := c.removes[op.Instance]
	_, applying := c.applies[op.Instance]
	if p == nil || p.Drain.Restoring || !p.Drain.OwnPermit().Allowed || held || twice || applying || mode.NoNewWork || i.TakenDown {
		c.t.Fatalf("must not be removed from its drained runtime:\n%s", d)
	}
	remains := slices.ContainsFunc(c.s.InstancesIn(op.Instance.Channel), func(o *state.Instance) bool {
		return c.s.DrainOf(o.Runtime) == nil && o.Delivery.Converged
	})
	if !p.Drain.Force && !i.RemovalStarted && !remains {
		c.t.Fatalf("no other instance remains in its channel:\n%s", d)
	}
}

// judgeLeftoverRemoval: objects left on another runtime are removed only if that is declared, and once nothing would return to them.
func (c *chaos) judgeLeftoverRemoval(op state.RemoveOp, mode decide.Mode, d *decide.Decision) {
	_, paused := c.s.PauseOn(op.Instance, op.From)
	_, twice := c.removes[op.Instance]
	i := c.s.Instances[op.Instance]
	spec, declared := c.s.Spec.Instance(op.Instance)
	declaredRemoval := !declared && c.s.WillRemove(i) || declared && spec.MovedFrom != nil && spec.MovedFrom.Runtime == op.From && spec.MovedFrom.Remove
	ready := !declared || i.Delivery.Converged && i.Delivery.Rollback == nil && !i.Delivery.Apply.Running
	if paused || twice || mode.NoNewWork || !declaredRemoval || !ready || i.Runtime == op.From || i.PreviousPlacementOn(op.From) == nil {
		c.t.Fatalf("must not be removed from %s:\n%s", op.From, d)
	}
}

func (c *chaos) judgeChange(ch state.Change, mode decide.Mode, d *decide.Decision) {
	refuse := func(why string) {
		c.t.Fatalf("%s of %s %s:\n%s%s%s", ch.Kind, ch.Channel, why, d, c.phases(), c.deliveries())
	}
	_, pinned := c.s.PinOf(ch.Channel)
	spec, _ := c.s.Spec.Channel(ch.Channel)
	for _, m := range ch.Moves {
		if _, paused := c.s.PauseOf(m.Instance); paused {
			refuse("moves " + m.Instance.String() + ", which is paused")
		}
	}
	switch ch.Kind {
	case state.ChangePromote, state.ChangeUnchanged:
		r := c.s.ReleaseByID(ch.Release)
		leftOver := r.Phases[ch.Channel].Phase == maestro.InProgress && ch.Kind == state.ChangeUnchanged // it ends, nothing begins
		if (pinned || mode.NoNewWork) && !leftOver {
			refuse("while pinned or draining")
		}
		if leftOver {
			c.judgeUnchangedEnd(r, ch, refuse)
			break
		}
		c.judgeEntry(ch, d, refuse)
		c.judgeGates(c.s.ReleaseByID(ch.Release), ch, refuse)
	case state.ChangeTarget:
		if r := c.s.ReleaseByID(ch.Release); pinned || mode.NoNewWork || r.Phases[ch.Channel].Phase != maestro.InProgress {
			refuse("while pinned or draining, or of a release that is not in progress")
		}
	case state.ChangeRollback:
		r := c.s.ReleaseByID(ch.Release)
		failed := r != nil && r.Phases[ch.Channel].Phase == maestro.Failed // in the window after all of a fleet that shrank
		for _, m := range ch.Moves {
			d := &c.s.Instances[m.Instance].Delivery
			alone := len(spec.Instances) == 1 && (d.Apply.Running || d.Converged && !failed)
			if pinned || d.Rollback != nil || spec.NoRollback || alone || mode.NoNewWork && !mode.Rollbacks {
				refuse("although it must not be rolled back")
			}
		}
	case state.ChangePin:
		if r := c.s.ReleaseByID(ch.Release); r != nil {
			c.mayReenter[ch.Channel+"/"+r.ID] = true
		}
	case state.ChangeConverged:
		c.judgeSuccess(ch, refuse)
	}
	c.judgeMoves(ch, refuse)
}

// judgeSteps: a release goes to no more instances than the policy of the channel allows now (D23–D25). It uses its own observations,
// not the state's record of steps, and is implemented separately from entities/selection.
func (c *chaos) judgeSteps(ch state.Change, d *decide.Decision) {
	key := ch.Channel + "/" + ch.Release
	switch ch.Kind {
	case state.ChangeConverged:
		for _, id := range ch.Instances {
			if !c.s.Instances[id].Delivery.Converged {
				c.convergedAt[id] = c.now
			}
		}
		return
	case state.ChangePromote:
		c.enteredInstances[key] = map[entities.InstanceID]bool{}
		delete(c.pauseWaited, key)
	case state.ChangeTarget:
	default:
		return
	}
	if c.enteredInstances[key] == nil {
		c.enteredInstances[key] = map[entities.InstanceID]bool{}
	}
	moved := map[entities.InstanceID]bool{}
	for _, m := range ch.Moves {
		moved[m.Instance] = true
	}
	r := c.s.ReleaseByID(ch.Release)
	spec, _ := c.s.Spec.Channel(ch.Channel)
	if spec.Rollout != nil && len(spec.Instances) > 1 && spec.Report == "" && !r.Return {
		c.judgeSelected(r, &spec, moved, d)
	}
	if ch.Kind == state.ChangeTarget && spec.Rollout != nil && len(spec.Instances) > 1 && spec.Report == "" && !r.Return {
		c.judgeStepGates(r, ch, d)
	}
	c.enteredWithPolicy[key] = c.enteredWithPolicy[key] || spec.Rollout != nil
	for id := range moved {
		c.enteredInstances[key][id] = true
		delete(c.convergedAt, id)
	}
}

func (c *chaos) judgeSelected(r *state.Release, spec *entities.ChannelSpec, moved map[entities.InstanceID]bool, d *decide.Decision) {
	updated, met, before, after := len(moved), 0, 0, 0
	var since []time.Time
	for _, declared := range spec.Instances {
		id := spec.ID(declared)
		i := c.s.Instances[id]
		if i == nil {
			i = &state.Instance{Runtime: declared.Runtime}
		}
		if c.s.DrainOf(i.Runtime) != nil {
			continue // it is not in its channel
		}
		stable := c.isHealthy(i)
		came := c.enteredInstances[spec.Name+"/"+r.ID][id]
		// Or another tool brought it, while it was only reported. A damaged instance is applied again.
		others := !came && !i.Delivery.Since.Before(r.At) && i.Delivery.Converged && i.Delivery.Cancelled == "" && stable
		if i.IsAt(r) && (came || others) {
			if moved[id] && i.Delivery.Cancelled == "" && !i.Delivery.ReportedOnly {
				c.t.Fatalf("%s is deployed to %s twice:\n%s", r.FullVersion, id, d)
			}
			updated++
			if others {
				met++
			}
			if stable = stable && i.Delivery.Converged; stable {
				since = append(since, c.convergedAt[id])
			}
		}
		if !stable {
			before++
		}
		if !stable || moved[id] {
			after++
		}
	}
	if most := spec.Rollout.MaxUnavailable; most != nil && after > max(before, most.Number) {
		c.t.Fatalf("%d instances are unavailable in %s, at most %d allowed:\n%s", after, spec.Name, most.Number, d)
	}
	slices.SortFunc(since, time.Time.Compare)
	done := 0
	for _, step := range spec.Rollout.Steps {
		if step.Instances != nil {
			done = step.Instances.Number
		}
		if updated <= done {
			return
		}
		if done < met || done <= c.pauseWaited[spec.Name+"/"+r.ID] {
			continue // a step that it did not have to take, or whose pause ended before the next one: a later damage and repair changes nothing
		}
		if len(since) < done || c.now.Before(since[done-1].Add(step.Pause)) {
			c.t.Fatalf("%s is deployed to %d instances in %s, but %d must have been stable for %s:\n%s%s%s", r.FullVersion, updated, spec.Name, done, step.Pause, d, c.phases(), c.deliveries())
		}
		c.pauseWaited[spec.Name+"/"+r.ID] = done
	}
}

// judgeUnchangedEnd: a release in progress ends unchanged only if no declared instance waits for it.
func (c *chaos) judgeUnchangedEnd(r *state.Release, ch state.Change, refuse func(string)) {
	for _, i := range c.s.InstancesIn(ch.Channel) {
		nothing := i.Delivery.Target == nil && !r.KeepsVersion(ch.Channel) // there is no version that it keeps
		if i.IsAt(r) || r.Payloads[i.ID] != "" && (nothing || i.Delivery.Target != nil && r.Present[i.ID].Payload != i.Delivery.Target.Payload) {
			refuse("although it concerns " + i.ID.String())
		}
	}
}

// deliveries formats the instances with a target and their state, the journal, and the kept targets of releases.
func (c *chaos) deliveries() string {
	var b strings.Builder
	for _, id := range entities.SortedIDs(c.s.Instances) {
		if i := c.s.Instances[id]; i.Delivery.Target != nil {
			d := &i.Delivery
			fmt.Fprintf(&b, "%s: at %s of %q, converged %v, reported %v, cancelled %q, failure %q\n",
				id, d.Target.FullVersion, c.s.VersionOf(i), d.Converged, d.ReportedOnly, d.Cancelled, d.Failure)
		}
	}
	for _, l := range c.s.Journal {
		fmt.Fprintf(&b, "J %s %s %s: %s\n", l.At.Format("15:04:05"), l.Channel, l.Release, l.Text)
	}
	for _, r := range c.s.Releases {
		fmt.Fprintf(&b, "R %s %s keeping %v\n", r.ID, r.FullVersion, r.KeepsVersionIn)
	}
	return b.String()
}

// judgeCancelledTargets: only a release leads back to a target that was cancelled before it was good.
func (c *chaos) judgeCancelledTargets(ch state.Change, refuse func(string)) {
	r := c.s.ReleaseByID(ch.Release)
	for _, m := range ch.Moves {
		switch {
		case (ch.Kind == state.ChangePromote || ch.Kind == state.ChangeTarget) && !r.Return:
			base, _, _ := strings.Cut(m.Target.FullVersion, "-i")
			// Another release, or another tool, brought the target.
			isThere := slices.ContainsFunc(c.s.InstancesIn(ch.Channel), func(i *state.Instance) bool {
				d := &i.Delivery
				return (d.Converged || !d.ReportedOnly && !c.s.IsReportOnly(ch.Channel)) && d.Cancelled == "" && c.s.VersionOf(i) == base
			})
			if c.cancelledVersions[ch.Channel+"/"+base] && r.IsConfig() && !isThere {
				refuse("deploys " + m.Target.FullVersion + ", which was cancelled")
			}
			delete(c.cancelledVersions, ch.Channel+"/"+base)
			setFlag(c.cancelledPayloads, m.Instance, m.Target.Payload, false)
		case c.cancelledPayloads[m.Instance][m.Target.Payload]:
			refuse("restores " + m.Target.FullVersion + ", which was cancelled")
		}
	}
	for _, i := range c.s.InstancesIn(ch.Channel) {
		switch {
		case r == nil || !i.IsAt(r) || c.s.DrainOf(i.Runtime) != nil: // not there, or not in its channel
		case ch.Kind == state.ChangeUnchanged && c.cancelledPayloads[i.ID][i.Delivery.Target.Payload]:
			refuse("although the current target was cancelled")
		case ch.Kind == state.ChangeUnchanged || ch.Kind == state.ChangeConverged && !ch.Partial:
			setFlag(c.goodPayloads, i.ID, i.Delivery.Target.Payload, true)
		}
	}
}

// judgeMoves: no instance goes backwards except by a rollback or an action of a person.
func (c *chaos) judgeMoves(ch state.Change, refuse func(string)) {
	c.judgeCancelledTargets(ch, refuse)
	if ch.Kind == state.ChangeRestored {
		c.judgeReturns(ch, refuse)
		return
	}
	if ch.Kind != state.ChangePromote && ch.Kind != state.ChangeTarget {
		return
	}
	r := c.s.ReleaseByID(ch.Release)
	for _, m := range ch.Moves {
		newest := c.newestTarget[m.Instance]
		if newest > c.sequence[r.ID] && !(r.Return && c.wasUndone(newest, ch.Channel)) && (!c.reopened[ch.Channel+"/"+r.ID] || c.atNewer(m.Instance, r)) {
			refuse("moves " + m.Instance.String() + " to an older release")
		}
		if !m.Target.Same(r.Target(m.Instance)) {
			refuse("sets a target of another release")
		}
		c.newestTarget[m.Instance] = max(c.newestTarget[m.Instance], c.sequence[r.ID])
		delete(c.wasUndeclared, m.Instance)
		if c.delivered[m.Instance] == nil {
			c.delivered[m.Instance], c.payloadRuntime[m.Instance] = map[string]bool{}, map[string]string{}
		}
		c.delivered[m.Instance][m.Target.FullVersion] = true
		if c.payloadRuntime[m.Instance][m.Target.Payload] == "" || !r.Return { // the rollback target is on its earlier runtime
			c.payloadRuntime[m.Instance][m.Target.Payload] = c.rendered[r.ID][m.Instance]
		}
	}
}

// judgeReturns: an instance that returns to a runtime after a drain gets a target that has succeeded in its channel.
func (c *chaos) judgeReturns(ch state.Change, refuse func(string)) {
	for _, m := range ch.Moves {
		at := slices.IndexFunc(c.s.Releases, func(r *state.Release) bool {
			p, _ := r.PhaseIn(ch.Channel)
			return p == maestro.Succeeded && m.Target.Same(r.Target(m.Instance))
		})
		if at < 0 {
			refuse("restores a target that has not succeeded")
		}
		r := c.s.Releases[at]
		c.newestTarget[m.Instance] = max(c.newestTarget[m.Instance], c.sequence[r.ID])
		if c.delivered[m.Instance] == nil {
			c.delivered[m.Instance], c.payloadRuntime[m.Instance] = map[string]bool{}, map[string]string{}
		}
		c.delivered[m.Instance][m.Target.FullVersion] = true
		c.payloadRuntime[m.Instance][m.Target.Payload] = c.rendered[r.ID][m.Instance]
	}
}

// atNewer reports whether an instance is at a target that only a newer release brought.
func (c *chaos) atNewer(id entities.InstanceID, r *state.Release) bool {
	newer := false
	for _, other := range c.s.Releases {
		p := other.Phases[id.Channel]
		if p == nil || p.Phase == maestro.Pending || p.Phase == maestro.Skipped || !c.s.Instances[id].IsAt(other) {
			continue
		}
		if c.ignored[id.Channel+"/"+r.ID][c.sequence[other.ID]] {
			continue
		}
		if c.wasUndeclared[id] && (p.Phase == maestro.Failed || p.Phase == maestro.RolledBack) {
			continue // it was not declared when a person let the older one wait again: nothing of the newer one was there
		}
		if c.sequence[other.ID] <= c.sequence[r.ID] {
			return false
		}
		i := c.s.Instances[id]
		onlyReported := p.Phase == maestro.Cancelled && !i.Delivery.Converged && (i.Delivery.ReportedOnly || c.s.IsReportOnly(id.Channel))
		newer = newer || !onlyReported
	}
	return newer
}

// mayOvertake reports whether a release may enter before an older one that waits, by its strategy. (Implemented separately from maestro.)
func (c *chaos) mayOvertake(r, older *state.Release, spec *entities.ChannelSpec) bool {
	approved := slices.ContainsFunc(r.Bypasses, func(b entities.Bypass) bool { return b.Channel == spec.Name })
	for _, a := range r.Approvals {
		approved = approved || slices.ContainsFunc(spec.Conditions, func(cond entities.Condition) bool { return cond.Topic == a.Topic })
	}
	for _, i := range c.s.InstancesIn(spec.Name) {
		approved = approved || i.EntryApproved(r)
	}
	switch c.s.Strategy(r) {
	case maestro.Latest, maestro.Immediate:
		return !older.Return
	case maestro.Train:
		return approved
	}
	return false
}

// isOvertaken reports whether a newer release entered a channel before, and the decision skips this one for that.
func (c *chaos) isOvertaken(older *state.Release, channel string, d *decide.Decision) bool {
	skipped := slices.ContainsFunc(d.Changes, func(ch state.Change) bool {
		return ch.Kind == state.ChangeSkip && ch.Channel == channel && ch.Release == older.ID
	})
	return skipped && slices.ContainsFunc(c.s.Releases, func(r *state.Release) bool {
		p, _ := r.PhaseIn(channel)
		return p.Entered() && c.sequence[r.ID] > c.sequence[older.ID]
	})
}

// isReplaced reports whether the release in progress yields, in this decision, to a release that may end it.
func (c *chaos) isReplaced(other, r *state.Release, channel string, d *decide.Decision) bool {
	replaces := c.s.Strategy(r) == maestro.Immediate || c.s.Strategy(r) == maestro.Latest && c.failedAttempt(other, channel)
	return replaces && c.sequence[other.ID] < c.sequence[r.ID] &&
		slices.ContainsFunc(d.Changes, func(ch state.Change) bool {
			return ch.Kind == state.ChangeSkip && ch.Channel == channel && ch.Release == other.ID
		})
}

// failedAttempt reports whether the last apply of a release in a channel ended with a failure, and none runs.
func (c *chaos) failedAttempt(r *state.Release, channel string) bool {
	failed := false
	for _, i := range c.s.InstancesIn(channel) {
		if _, runs := c.applies[i.ID]; runs {
			return false
		}
		a := &i.Delivery.Apply
		failed = failed || i.IsAt(r) && a.Err != "" && !a.OK && a.Attempts > 0 && !a.FirstStarted.IsZero() && i.Delivery.FencedBy == 0 && a.NoWorkerSince.IsZero()
	}
	return failed
}

// judgeEntry: the channel is free, its state is known, and no release is overtaken.
func (c *chaos) judgeEntry(ch state.Change, d *decide.Decision, refuse func(string)) {
	r := c.s.ReleaseByID(ch.Release)
	spec, _ := c.s.Spec.Channel(ch.Channel)
	if r.Phases[ch.Channel].Phase != maestro.Pending {
		refuse("although it is barred or over")
	}
	if _, paused := c.s.PauseIn(ch.Channel); paused {
		refuse("while the channel is paused")
	}
	for _, i := range c.s.InstancesIn(ch.Channel) {
		if c.s.DrainOf(i.Runtime) != nil {
			continue // it is not of the channel
		}
		_, applying := c.applies[i.ID]
		_, rt := c.s.Runtime(i.ID)
		reads := rt.Observable && (rt.Mode != entities.FetchExitCode || i.Delivery.Target != nil)
		b := i.Delivery.Rollback
		switch {
		case applying || i.Delivery.Apply.Running:
			refuse("while an apply runs")
		case reads && i.Observed.Reading.Err != nil && !c.bypassed[bypassKey(r.ID, ch.Channel, "reading")]:
			refuse("although the state is unknown")
		case b != nil && !i.Delivery.Converged && (b.Failed.IsZero() || r.At.Before(b.Failed)) && !c.retriedAfterRollback(r, ch.Channel, b):
			refuse("before a rollback has ended")
		}
	}
	for _, other := range c.s.Releases {
		p := other.Phases[ch.Channel]
		if other == r || p == nil {
			continue
		}
		if p.Phase == maestro.InProgress && !c.isReplaced(other, r, ch.Channel, d) && !slices.ContainsFunc(c.decided, func(ch state.Change) bool {
			return (spec.Report != "" || spec.Rollout != nil || c.enteredWithPolicy[spec.Name+"/"+other.ID]) && ch.Kind == state.ChangeSkip && ch.Channel == spec.Name && ch.Release == other.ID
		}) {
			refuse("while " + other.FullVersion + " is in progress")
		}
		if p.Phase == maestro.Pending && c.sequence[other.ID] < c.sequence[r.ID] && !c.cannotEnter(other, &spec) && !c.mayOvertake(r, other, &spec) && !c.isOvertaken(other, ch.Channel, d) {
			refuse("overtaking " + other.FullVersion)
		}
	}
	newest, key := c.newestEntered[ch.Channel], ch.Channel+"/"+r.ID
	if r.Return && c.wasUndone(newest, ch.Channel) {
		newest = 0 // this one leads back to the version before
	}
	if newest > c.sequence[r.ID] && c.retried[key] && c.ignored[key][newest] {
		c.reopened[key] = true
	}
	if newest > c.sequence[r.ID] && !c.reopened[key] || newest == c.sequence[r.ID] && !c.mayReenter[key] {
		refuse("after a newer release, or a second time")
	}
	delete(c.mayReenter, key)
	delete(c.retried, key)
	c.newestEntered[ch.Channel] = max(c.newestEntered[ch.Channel], c.sequence[r.ID])
}

// recordIgnored records the newer releases that wait in a channel, or were cancelled, and are at most reported there, when a person lets an
// older one enter again: the older one continues, even if another tool brings them or a pin keeps them afterwards.
func (c *chaos) recordIgnored(key, channel string) {
	c.ignored[key] = map[int]bool{}
	for _, r := range c.s.Releases {
		p := r.Phases[channel]
		there := slices.ContainsFunc(c.s.InstancesIn(channel), func(i *state.Instance) bool {
			d := &i.Delivery
			return i.IsAt(r) && (d.Converged || d.Cancelled != "" || !d.ReportedOnly && !c.s.IsReportOnly(channel))
		})
		c.ignored[key][c.sequence[r.ID]] = p != nil && (p.Phase == maestro.Pending || p.Phase == maestro.Cancelled && !there)
	}
}

// wasUndone: a release that had entered was cancelled, or a pin undid it.
func (c *chaos) wasUndone(sequence int, channel string) bool {
	for id, n := range c.sequence {
		other := c.s.ReleaseByID(id)
		cancelled := other != nil && other.Phases[channel] != nil && other.Phases[channel].Phase == maestro.Cancelled
		if n == sequence && (cancelled || c.mayReenter[channel+"/"+id]) {
			return true
		}
	}
	return false
}

// cannotEnter: a release that cannot enter unless a person acts. (Implemented separately from maestro and decide.)
func (c *chaos) cannotEnter(r *state.Release, spec *entities.ChannelSpec) bool {
	for _, i := range c.s.InstancesIn(spec.Name) {
		if b := i.Delivery.Rollback; b != nil && !b.Failed.IsZero() && r.At.Before(b.Failed) && !c.retriedAfterRollback(r, spec.Name, b) {
			return true
		}
	}
	for _, a := range r.Approvals {
		for _, cond := range spec.Conditions {
			if a.Reject && a.Topic == cond.Topic && !c.bypassed[bypassKey(r.ID, spec.Name, cond.ID)] {
				return true
			}
		}
	}
	for _, e := range spec.Extensions {
		if st := r.Extensions[e.RunKey()]; st != nil && st.Failed && e.Stage != entities.PostDeployment {
			return true
		}
	}
	return len(r.Phases[spec.Name].FailedChecks) > 0 || c.endedUpstream(r, spec.Name) || c.atMaxUnavailable(r, spec)
}

// atMaxUnavailable: the maximum number of instances is unavailable, the release changes none of them, and one of them needs another release
// to become healthy.
func (c *chaos) atMaxUnavailable(r *state.Release, spec *entities.ChannelSpec) bool {
	if spec.Rollout == nil || spec.Rollout.MaxUnavailable == nil {
		return false
	}
	unavailable, stuck := 0, false
	for _, declared := range spec.Instances {
		i := c.s.Instances[spec.ID(declared)]
		if i == nil || c.s.DrainOf(i.Runtime) != nil || c.isHealthy(i) {
			continue
		}
		d := &i.Delivery
		_, paused := c.s.PauseOf(i.ID)
		there := r.IsConfig() && d.Converged && d.Cancelled == "" && r.Present[i.ID].Payload == d.Target.Payload
		if r.Payloads[i.ID] != "" && !there && !paused {
			return false
		}
		unavailable++
		stuck = stuck || d.Failure != "" || d.Cancelled != "" || d.ReportedOnly || d.Converged && spec.Drift == entities.DriftObserve
	}
	return stuck && unavailable >= spec.Rollout.MaxUnavailable.Number
}

// isHealthy reports whether an instance is known to be healthy. An instance without a target counts as healthy.
func (c *chaos) isHealthy(i *state.Instance) bool {
	o := &i.Observed
	known := o.Digest != "" && o.Reading.Err == nil && o.Fresh
	return i.Delivery.Target == nil || known && entities.FetchObjects(o.Reading.Objects, i.Delivery.Target).Stable
}

// retriedAfterRollback: a person retries the release that was rolled back.
func (c *chaos) retriedAfterRollback(r *state.Release, channel string, b *entities.Rollback) bool {
	return b.Release == r.ID && c.retried[channel+"/"+r.ID]
}

// notePhases records the releases that people let enter again, and how many of their approvals are not valid any more: those from before
// a failure upstream, or a rollback here.
func (c *chaos) notePhases() {
	for _, r := range c.s.Releases {
		for channel, p := range r.Phases {
			key := channel + "/" + r.ID
			before := c.phase[key]
			c.phase[key] = p.Phase
			switch {
			case before == p.Phase:
			case before == "" && !r.IsConfig() && !r.Return: // a person releases it, perhaps again
				delete(c.cancelledVersions, channel+"/"+r.Version)
			case before == maestro.Cancelled && p.Phase == maestro.InProgress: // a person retries it
				delete(c.cancelledVersions, channel+"/"+r.Version)
				for id, payload := range r.Payloads {
					if id.Channel == channel {
						setFlag(c.cancelledPayloads, id, payload, false)
					}
				}
			case before == maestro.Skipped && p.Phase == maestro.Pending:
				c.reopened[key] = true
				c.recordIgnored(key, channel)
				delete(c.cancelledVersions, channel+"/"+r.Version)
			case before == maestro.InProgress && p.Phase == maestro.Pending:
				c.mayReenter[key] = true // it was only reported
			case before == maestro.RolledBack && p.Phase == maestro.Pending:
				c.mayReenter[key], c.retried[key] = true, true
				c.recordIgnored(key, channel)
			case before == maestro.Cancelled && p.Phase == maestro.Pending: // a person retries a release that was only reported
				c.mayReenter[key] = true
				delete(c.cancelledVersions, channel+"/"+r.Version)
			case p.Phase == maestro.RolledBack:
				c.voidApprovals[key] = len(r.Approvals)
				c.voidApprovalsBelow(r, channel)
			case p.Phase == maestro.Failed:
				c.voidApprovalsBelow(r, channel)
			}
		}
	}
}

// voidApprovalsBelow: the approvals of a release are not valid any more downstream of the channel in which it failed.
func (c *chaos) voidApprovalsBelow(r *state.Release, failed string) {
	below := map[string]bool{failed: true}
	for range c.s.Spec.Channels { // the maximum depth
		for _, spec := range c.s.Spec.Channels {
			for _, cond := range spec.Conditions {
				for _, up := range cond.Channels {
					below[spec.Name] = below[spec.Name] || below[up]
				}
			}
		}
	}
	for channel, p := range r.Phases {
		if below[channel] && p.Phase == maestro.Pending {
			c.voidApprovals[channel+"/"+r.ID] = len(r.Approvals)
		}
	}
}

// endedUpstream: an upstream channel ended this release permanently, or it would make more instances unavailable in addition to failed ones
// that wait for people.
func (c *chaos) endedUpstream(r *state.Release, channel string) bool {
	if c.blockedByFailed(r, channel) {
		return true
	}
	spec, _ := c.s.Spec.Channel(channel)
	for _, cond := range spec.Conditions {
		for _, up := range cond.Channels {
			p := r.Phases[up]
			if c.bypassed[bypassKey(r.ID, channel, cond.ID)] {
				continue
			}
			if p == nil || p.Phase.Over() && p.Phase != maestro.Succeeded || p.Phase == maestro.Pending && c.endedUpstream(r, up) || p.Phase == maestro.InProgress && c.endedMidRollout(r, up) {
				return true
			}
		}
	}
	return false
}

// blockedByFailed: a waiting release does not change the failed instance, or the one that was only reported, whose availability it waits
// for. Others may wait behind that release.
func (c *chaos) blockedByFailed(r *state.Release, channel string) bool {
	return slices.ContainsFunc(c.decision.Channels, func(d decide.ChannelDecision) bool {
		stuck := d.Status == entities.StatusFailed && d.Next == r || c.onlyReported(channel) && d.Next != nil && c.sequence[d.Next.ID] <= c.sequence[r.ID]
		return d.Channel == channel && stuck && slices.ContainsFunc(d.Gates, func(g decide.Judgement) bool {
			return g.Kind == decide.KindRollout && g.Verdict == entities.Wait
		})
	})
}

// endedMidRollout: a release has reached some instances of a channel, and ended permanently upstream before it reached the others.
func (c *chaos) endedMidRollout(r *state.Release, channel string) bool {
	spec, _ := c.s.Spec.Channel(channel)
	return (spec.Rollout != nil || c.enteredWithPolicy[channel+"/"+r.ID]) && c.endedUpstream(r, channel) && slices.ContainsFunc(c.s.InstancesIn(channel), func(i *state.Instance) bool {
		return r.Payloads[i.ID] != "" && !i.IsAt(r)
	})
}

// judgeGates: each condition holds, or a person let the release pass it.
func (c *chaos) judgeGates(r *state.Release, ch state.Change, refuse func(string)) {
	spec, _ := c.s.Spec.Channel(ch.Channel)
	waived := func(id string) bool { return c.bypassed[bypassKey(r.ID, ch.Channel, id)] }
	for _, cond := range spec.Conditions {
		switch {
		case waived(cond.ID):
		case cond.Kind == entities.ManualApproval:
			c.judgeApprovals(r, ch.Channel, cond, refuse)
		case r.Return: // it went there under the same conditions before
			for _, m := range ch.Moves {
				if !c.delivered[m.Instance][m.Target.FullVersion] {
					refuse("as a rollback to a version that never ran there")
				}
			}
		default:
			for _, up := range cond.Channels {
				if p := r.Phases[up]; p == nil || p.Phase != maestro.Succeeded {
					refuse("before it succeeded in " + up)
				}
			}
		}
	}
	for _, check := range spec.Checks {
		if check.FirstGateStage() == "" || waived(check.ID) || ch.Kind != state.ChangePromote {
			continue // nothing is delivered: the last reading is sufficient
		}
		if c.checkResults[ch.Channel] != entities.Pass {
			refuse("although its check is " + string(c.checkResults[ch.Channel]))
		}
		if !c.preflightFresh[ch.Channel+"/"+r.ID] {
			refuse("without a preflight")
		}
	}
	for _, e := range spec.Extensions {
		if st := r.Extensions[e.RunKey()]; spec.Report == "" && e.Stage != entities.PostDeployment && (st == nil || !st.Done) && !waived("extension/"+e.Name) {
			refuse("before " + e.Name + " succeeded")
		}
	}
}

// judgeStepGates: no step passes a condition on other channels, or a check, that fails at that moment.
func (c *chaos) judgeStepGates(r *state.Release, ch state.Change, d *decide.Decision) {
	spec, _ := c.s.Spec.Channel(ch.Channel)
	waived := func(id string) bool { return c.bypassed[bypassKey(r.ID, ch.Channel, id)] }
	for _, cond := range spec.Conditions {
		for _, up := range cond.Channels {
			if p := r.Phases[up]; !waived(cond.ID) && (p == nil || p.Phase != maestro.Succeeded) {
				c.t.Fatalf("%s continues before it succeeded in %s:\n%s%s", r.FullVersion, up, d, c.phases())
			}
		}
	}
	for _, check := range spec.Checks {
		if check.FirstGateStage() != "" && !waived(check.ID) && (c.checkResults[ch.Channel] != entities.Pass || !c.preflightFresh[ch.Channel+"/"+r.ID]) {
			c.t.Fatalf("%s continues although %s does not pass, or without a preflight:\n%s", r.FullVersion, check.ID, d)
		}
	}
}

func (c *chaos) judgeApprovals(r *state.Release, channel string, cond entities.Condition, refuse func(string)) {
	who := map[string]bool{}
	for n, a := range r.Approvals {
		switch {
		case a.Topic != cond.Topic:
		case a.Reject:
			refuse("although it was rejected")
		case n < c.voidApprovals[channel+"/"+r.ID]: // it failed since
		case slices.Contains(cond.Approvers, a.Who.Name):
			who[a.Who.Name] = true
		}
	}
	if len(who) < cond.MinApprovers {
		refuse("without enough approvals")
	}
}

// judgeApply: one at a time, of the current target, with the requirements of its runtime.
func (c *chaos) judgeApply(op state.ApplyOp, mode decide.Mode, d *decide.Decision) {
	on, _ := c.s.Runtime(op.Instance)
	if clearing, runs := c.removes[op.Instance]; runs && clearing.From == on {
		c.t.Fatalf("applied to %s while the objects left there are removed:\n%s", on, d)
	}
	if at := c.payloadRuntime[op.Instance][op.Target.Payload]; at != on {
		c.t.Fatalf("%s was rendered for %s but is applied to %s:\n%s%s%s", op.Target.FullVersion, at, on, d, c.phases(), c.deliveries())
	}
	// This includes the delivery to an instance that is back from a drained runtime.
	redelivered := slices.ContainsFunc(c.s.Releases, func(r *state.Release) bool {
		p, _ := r.PhaseIn(op.Instance.Channel)
		return p == maestro.InProgress && !r.IsConfig() && r.Payloads[op.Instance] == op.Target.Payload
	})
	if i := c.s.Instances[op.Instance]; c.cancelledPayloads[op.Instance][op.Target.Payload] && !i.Delivery.Converged && !redelivered {
		c.t.Fatalf("%s was cancelled but is applied:\n%s", op.Target.FullVersion, d)
	}
	_, paused := c.s.PauseOf(op.Instance)
	_, twice := c.applies[op.Instance]
	removal, removing := c.removes[op.Instance]
	removing = removing && removal.From == ""
	i := c.s.Instances[op.Instance]
	drained := mode.NoNewWork && !(mode.Rollbacks && i.RollingBack())
	if paused || twice || removing || drained || i.Delivery.Target == nil || *i.Delivery.Target != op.Target || op.Timeout <= 0 {
		c.t.Fatalf("%s must not be applied (paused %v, one runs %v, being removed %v, drain %v, timeout %s):\n%s",
			op.Instance, paused, twice, removing, drained, op.Timeout, d)
	}
	_, rt := c.s.Runtime(op.Instance)
	l := i.Delivery.Lease
	if rt.MaxApplies > 0 && (l == nil || l.GrantedAt.IsZero() || l.Used || l.Version != op.Target.FullVersion) {
		c.t.Fatalf("an apply without a lease of its own:\n%s", d)
	}
	back := i.Delivery.Rollback != nil && !i.Delivery.Converged
	waived := slices.ContainsFunc(c.s.Releases, func(r *state.Release) bool {
		return r.Target(op.Instance).FullVersion == op.Target.FullVersion && c.bypassed[bypassKey(r.ID, op.Instance.Channel, "approval/apply/"+op.Instance.Channel)]
	})
	if rt.ApproveApplies && !back && !waived && i.Approval.For(op.Target.FullVersion) == nil {
		c.t.Fatalf("an apply of %s without an approval:\n%s", op.Instance, d)
	}
}

// judgeSuccess: nothing succeeds before its extensions, and the windows of its checks; and in a fleet only once every instance that the
// release has a payload for has converged at it, or is not changed by it.
func (c *chaos) judgeSuccess(ch state.Change, refuse func(string)) {
	spec, _ := c.s.Spec.Channel(ch.Channel)
	for _, id := range ch.Instances {
		if i := c.s.Instances[id]; i.Delivery.Apply.Running {
			refuse("while an apply of " + id.String() + " runs")
		}
	}
	r := c.s.ReleaseByID(ch.Release)
	if r == nil {
		return // a rollback, a pin, or a cancelled target
	}
	for _, s := range spec.Instances {
		i := c.s.Instances[spec.ID(s)]
		if r.Payloads[i.ID] == "" || c.s.DrainOf(i.Runtime) != nil {
			continue
		}
		arrived := i.IsAt(r) && (i.Delivery.Converged || slices.Contains(ch.Instances, i.ID))
		untouched := r.IsConfig() && i.Delivery.Converged && r.Present[i.ID].Payload == i.Delivery.Target.Payload
		// There is no version that it keeps; or it was rendered for other instances, and this one came back from a drained runtime since.
		left := r.KeepsVersion(ch.Channel) && (i.Delivery.Target == nil || r.Present[i.ID].FullVersion == "")
		if !arrived && !untouched && !left {
			refuse("before " + i.ID.String() + " has converged")
		}
	}
	waived := func(id string) bool { return c.bypassed[bypassKey(r.ID, ch.Channel, id)] }
	for _, e := range spec.Extensions {
		if st := r.Extensions[e.RunKey()]; spec.Report == "" && e.Stage == entities.PostDeployment && (st == nil || !st.Done) && !waived("extension/"+e.Name) {
			refuse("before " + e.Name)
		}
	}
	for n := range spec.Checks {
		check := &spec.Checks[n]
		if !check.RunsAfterDeployment() || waived(check.ID) {
			continue
		}
		window := check.AtStage(entities.PostDeployment) != nil
		if !c.windowPassed[ch.Channel+"/"+r.ID] || window && c.now.Before(c.s.Channels[ch.Channel].StableSince.Add(time.Hour+time.Minute)) {
			refuse("before its post-deployment checks have passed")
		}
	}
}

// judgeState checks the invariants of the state after nothing changes any more.
func (c *chaos) judgeState(mode decide.Mode) {
	for _, ch := range c.decision.Channels {
		if ch.Status != entities.StatusConverged && len(ch.Reasons) == 0 {
			c.t.Fatalf("%s is %s without a reason:\n%s%s%s", ch.Channel, ch.Status, c.decision, c.phases(), c.deliveries())
		}
	}
	for _, id := range entities.SortedIDs(c.s.Instances) {
		i := c.s.Instances[id]
		if t := i.Delivery.Target; t != nil && !c.delivered[id][t.FullVersion] {
			c.t.Fatalf("%s is at %s, which no release deployed", id, t.FullVersion)
		}
		if _, runs := c.applies[id]; runs && !i.Delivery.Apply.Running {
			c.t.Fatalf("the state has lost an apply of %s", id)
		}
		_, evaluates := c.preflights[id.Channel]
		switch l := i.Delivery.Lease; {
		case l == nil || mode.NoNewWork:
		case l.Used && !i.Delivery.Apply.Running:
			c.t.Fatalf("%s keeps the lease of an apply that has ended:\n%s", id, c.decision)
		case !l.Used && !l.GrantedAt.IsZero() && !evaluates:
			c.t.Fatalf("%s holds a lease while it waits:\n%s%s%s", id, c.decision, c.phases(), c.deliveries())
		}
	}
	c.judgeReleases()
	c.judgeOffloaded()
	c.judgeAudit()
	if len(c.s.Journal) > state.MaxJournal || len(c.s.Refused) > state.MaxRefused {
		c.t.Fatal("the state is not bounded")
	}
}

// judgeOffloaded: for releases that wait behind many others only the store has the payloads, and unknown payloads are not used.
func (c *chaos) judgeOffloaded() {
	for _, id := range entities.SortedIDs(c.s.Instances) {
		d := &c.s.Instances[id].Delivery
		for _, t := range append([]entities.Target{c.applies[id].Target, c.queries[id].Target}, d.EarlierGood...) {
			if t.Payload == state.OffloadedDigest {
				c.t.Fatalf("%s: the payload of %s is only in the store", id, t.FullVersion)
			}
		}
		if d.Target != nil && d.Target.Payload == state.OffloadedDigest || d.LastGood != nil && d.LastGood.Payload == state.OffloadedDigest {
			c.t.Fatalf("the payload of the target of %s is only in the store", id)
		}
	}
	for _, e := range c.decision.Evaluations(c.s) {
		if e.Payload == state.OffloadedDigest {
			c.t.Fatalf("%s of %s is evaluated for a payload that is only in the store", e.ID, e.Channel)
		}
	}
	complete := 0
	for _, r := range c.s.Releases {
		if !r.Over() && !r.Offloaded() {
			complete++
		}
	}
	// The current targets of instances, their possible rollback targets, the next releases, and those that roll one back also stay
	// complete.
	if most := state.MaxLoaded + 20 + len(c.s.Instances)*(state.MaxEarlier+5); complete > most {
		c.t.Fatalf("%d releases are complete, of %d", complete, len(c.s.Releases))
	}
}

// judgeReleases: none is lost before it is over, and they stay in order.
func (c *chaos) judgeReleases() {
	seen := map[string]bool{}
	for _, r := range c.s.Releases {
		seen[r.ID] = true
	}
	for id, over := range c.over {
		if !seen[id] && !over {
			c.t.Fatalf("release %s was lost", id)
		}
	}
	for n, r := range c.s.Releases[:max(0, len(c.s.Releases)-1)] {
		if c.sequence[r.ID] >= c.sequence[c.s.Releases[n+1].ID] {
			c.t.Fatalf("releases are out of order:\n%s", c.phases())
		}
	}
}

// judgeAudit: lines are numbered without gaps, even if some are removed.
func (c *chaos) judgeAudit() {
	for _, l := range c.s.Audit {
		if l.N <= c.audited {
			continue
		}
		if l.N != c.audited+1 {
			c.t.Fatalf("audit line %d follows %d", l.N, c.audited)
		}
		c.audited = l.N
	}
	if c.audited != c.s.AuditCount || len(c.s.Audit) > state.MaxAudit {
		c.t.Fatalf("%d audit lines of %d were seen, %d are kept", c.audited, c.s.AuditCount, len(c.s.Audit))
	}
}

// judgeWake: until the wake-up, nothing becomes due without an event.
func (c *chaos) judgeWake(mode decide.Mode) {
	if w := c.decision.Wake; !w.IsZero() && !w.After(c.now) {
		c.t.Fatalf("wake-up in the past:\n%s", c.decision)
	}
	if mode.NoNewWork {
		return
	}
	until := c.now.Add(24 * time.Hour)
	if w := c.decision.Wake; !w.IsZero() {
		until = w.Add(-1)
	}
	some := c.now.Add(time.Duration(rapid.Int64Range(0, int64(until.Sub(c.now))).Draw(c.t, "later")))
	for _, at := range []time.Time{some, until} {
		if d := decide.Decide(c.s, at, mode); d.HasEffects() {
			c.t.Fatalf("work is due at %s without a wake-up:\n%s\nbefore:\n%s", at, d, c.decision)
		}
	}
}

// onlyReported: a release that was cancelled while it was only reported is not applied afterwards.
func (c *chaos) onlyReported(channel string) bool {
	return slices.ContainsFunc(c.s.InstancesIn(channel), func(i *state.Instance) bool {
		return i.Delivery.ReportedOnly && !slices.ContainsFunc(c.s.Releases, func(r *state.Release) bool {
			p := r.Phases[channel]
			return p != nil && !p.Phase.Over() && i.IsAt(r)
		})
	})
}

// waitsForFailed reports whether a channel waits for one that has failed, or was only reported, where a newer release waits for people too.
func (c *chaos) waitsForFailed(ch *decide.ChannelDecision) bool {
	return slices.ContainsFunc(c.decision.Channels, func(o decide.ChannelDecision) bool {
		return (o.Status == entities.StatusFailed || o.Status == entities.StatusBlocked || c.onlyReported(o.Channel)) && slices.ContainsFunc(ch.Gates, func(g decide.Judgement) bool {
			return g.Verdict == entities.Wait && g.ID == "channel-stable/"+o.Channel
		})
	})
}

// judgeEnd: every release that can arrive has arrived; the others have a reason.
func (c *chaos) judgeEnd() {
	for _, ch := range c.decision.Channels {
		switch ch.Status {
		case entities.StatusConverged, entities.StatusOrphaned:
		case entities.StatusFailed, entities.StatusBlocked, entities.StatusCancelled:
			if len(c.s.Releases) > 0 {
				continue
			}
			fallthrough
		case entities.StatusPreconditions:
			if c.onlyReported(ch.Channel) || c.waitsForFailed(&ch) {
				continue
			}
			fallthrough
		default:
			c.t.Fatalf("%s ends %s:\n%s%s", ch.Channel, ch.Status, c.decision, c.phases())
		}
	}
	for _, r := range c.s.Releases {
		for channel, p := range r.Phases {
			if p.Phase == maestro.InProgress && !c.endedMidRollout(r, channel) || p.Phase == maestro.Pending && !c.endedUpstream(r, channel) {
				c.t.Fatalf("%s stays %s in %s:\n%s%s", r.FullVersion, p.Phase, channel, c.decision, c.phases())
			}
		}
	}
}
