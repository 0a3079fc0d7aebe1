package decide

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file removes instances from a drained runtime and restores them afterwards. Until then the rest of the engine treats the channel
// as if it did not have them: releases neither enter there nor wait for them.

// restoreAfterDrain restores the instances whose runtime is not drained any more, at the current version of the channel.
func (v *view) restoreAfterDrain() {
	c := state.Change{Kind: state.ChangeRestored, Cause: "the runtime is restored"}
	for n := range v.insts {
		i := &v.insts[n]
		if !i.Drained || i.paused || i.Delivery.Apply.Running {
			continue
		}
		if t := v.s.MissedTarget(i.Instance); t != nil {
			to, _ := v.s.TargetRuntime(i.ID, *t)
			if _, held := v.s.PauseOn(i.ID, to); held { // it moves there
				continue
			}
			c.Moves = append(c.Moves, state.Move{Instance: i.ID, Target: *t})
		}
		c.Instances = append(c.Instances, i.ID)
	}
	if len(c.Instances) > 0 {
		v.change(c)
	}
}

// concernsDrained reports whether a release concerns an instance on a drained runtime.
func (v *view) concernsDrained(r *state.Release) bool {
	return slices.ContainsFunc(v.drained, func(i instance) bool { return r.HasPayload(i.ID) })
}

// decideAllDrained decides about the channel if all its instances are on drained runtimes. Releases wait until one is not.
func (v *view) decideAllDrained() bool {
	if len(v.insts) > 0 || len(v.drained) == 0 {
		return false
	}
	v.skipOvertaken()
	p := v.s.DrainOf(v.drained[0].Runtime)
	if v.out.Next = v.release(v.slot.Next); v.out.Next != nil {
		v.out.Gates = append(v.out.Gates, Judgement{
			Kind: KindPaused, ID: string(KindPaused), Verdict: entities.Wait, Since: p.At, Unblock: v.s.ResumeCommand(*p),
			Reason: "all instances are on drained runtimes",
		})
	}
	v.drainInstances()
	v.conclude()
	v.d.wakeBy(v.out.Due)
	return true
}

// drainInstances removes the instances on drained runtimes, and reports the progress of each.
func (v *view) drainInstances() {
	c := state.Change{Kind: state.ChangeDrained}
	for n := range v.drained {
		i := &v.drained[n]
		if !i.Drained {
			c.Instances = append(c.Instances, i.ID)
		}
		if l := i.Delivery.Lease; l != nil && (i.RemovalStarted || !i.Delivery.Apply.Running) {
			v.d.returnLease(i.ID, l)
		}
		p := v.s.DrainOf(i.Runtime)
		i.facts, i.drainProgress = v.drainInstance(i, p)
		i.drainProgress = fmt.Sprintf("%s is drained by %s%s: %s", i.Runtime, p.By, entities.Because(p.Reason), i.drainProgress)
		v.instanceReason(i, ReasonPause, "%s", i.drainProgress)
		v.out.Drained = i.drainProgress
	}
	if len(c.Instances) > 0 {
		v.addChange(c)
	}
}

// drainInstance removes an instance from a drained runtime when it may leave.
func (v *view) drainInstance(i *instance, p *entities.Pause) (entities.Facts, string) {
	a, permit := &i.Delivery.Apply, p.Drain.OwnPermit()
	if reason := whyNotRemovable(v, i); reason != "" {
		return entities.Facts{Paused: true}, reason
	}
	switch {
	case a.Running && i.RemovalStarted:
		return entities.Facts{Converging: true}, "being removed"
	case a.Running:
		return entities.Facts{Converging: true}, "it is removed once the apply has ended"
	case p.Drain.Restoring:
		return entities.Facts{Paused: true}, "it returns " + permitText(permit)
	case i.TakenDown:
		return entities.Facts{Paused: true}, "removed until: " + v.s.ResumeCommand(*p)
	}
	if why := v.drainWaitsFor(i, p, permit); why != "" {
		return entities.Facts{Paused: true}, "it is removed " + why
	}
	switch {
	case v.now.Before(a.NotBefore):
		v.due(a.NotBefore)
	case !v.mode.NoNewWork && !v.changed:
		v.d.Removes = append(v.d.Removes, state.RemoveOp{Instance: i.ID, Target: *i.Delivery.Target})
	}
	if a.Err != "" && i.RemovalStarted {
		return entities.Facts{Converging: true}, fmt.Sprintf("the removal failed %s: %s", entities.Times(a.Attempts), a.Err)
	}
	return entities.Facts{Converging: true}, "being removed"
}

// whyNotRemovable returns why nothing is removed from a drained runtime, or "".
func whyNotRemovable(v *view, i *instance) string {
	switch {
	case i.Delivery.Target == nil:
		return "nothing was released to it yet"
	case v.isReportOnly():
		return "it stays: its channel is report-only"
	case !i.runtime.CanRemove:
		return "it stays: the runtime cannot remove objects"
	}
	return ""
}

// drainWaitsFor returns what an instance waits for before it leaves, or "".
func (v *view) drainWaitsFor(i *instance, p *entities.Pause, permit entities.DrainPermit) string {
	v.requestCapacityChecks(p)
	for _, l := range i.PreviousPlacements {
		if l.Apply.Running { // one removal at a time
			return "once the objects left on " + l.Runtime + " are removed"
		}
	}
	if pause, held := v.s.PauseBesidesDrain(i.ID); held {
		return fmt.Sprintf("after the pause by %s%s", pause.By, entities.Because(pause.Reason))
	}
	switch {
	case !permit.Allowed:
		return permitText(permit)
	case p.Drain.Force || i.RemovalStarted:
		return ""
	}
	return v.othersNotReady(p)
}

// permitText returns what the permit of a service to leave waits for.
func permitText(permit entities.DrainPermit) string {
	if permit.WaitsFor == "" {
		return "in the order of the drain"
	}
	return permit.WaitsFor
}

// othersNotReady returns why the remaining instances of the channel cannot replace an instance, or "".
func (v *view) othersNotReady(p *entities.Pause) string {
	anyStable := false
	for n := range v.insts {
		i := &v.insts[n]
		switch d := &i.Delivery; {
		case d.Target == nil:
		case !d.Converged || !i.current.Stable || i.runtime.Observable && !i.Observed.Fresh:
			return "once " + i.ID.Name + " is stable"
		default:
			anyStable = true
		}
	}
	if !anyStable {
		return "only with --force: no other instance is left in " + v.spec.Name
	}
	for n := range v.spec.Checks {
		c := &v.spec.Checks[n]
		if c.Kind != entities.CheckCapacity {
			continue
		}
		j := v.judgeCheck(c, nil)
		st := v.channelState().LastReading(v.s.Evaluation(v.spec, c, nil))
		if j.Verdict != entities.Pass || st.At.Before(p.At) {
			return "once " + j.ID + " passes without it" + entities.Because(j.Reason)
		}
	}
	return ""
}

// requestCapacityChecks requests an evaluation of the capacity checks while an instance is about to leave.
func (v *view) requestCapacityChecks(p *entities.Pause) {
	if p.Drain.Force {
		return
	}
	for n := range v.spec.Checks {
		if c := &v.spec.Checks[n]; c.Kind == entities.CheckCapacity && !slices.Contains(v.neededChecks().Repairs, c.ID) {
			v.neededChecks().Repairs = append(v.neededChecks().Repairs, c.ID)
		}
	}
}
