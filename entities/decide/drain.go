package decide

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file removes instances from a drained runtime and restores them afterwards. Until then the rest of the engine treats the channel
// as if it did not have them: releases neither enter there nor wait for them.

// comeBack restores the instances whose runtime is not drained any more, at the current version of the channel.
func (v *view) comeBack() {
	c := state.Change{Kind: state.ChangeBack, Cause: "the runtime is turned up"}
	for n := range v.insts {
		i := &v.insts[n]
		if !i.Drained || i.paused || i.Delivery.Apply.Running {
			continue
		}
		if t := v.s.Missed(i.Instance); t != nil {
			to, _ := v.s.Bound(i.ID, *t)
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

// goesAway reports whether a release concerns an instance on a drained runtime.
func (v *view) goesAway(r *state.Release) bool {
	return slices.ContainsFunc(v.away, func(i instance) bool { return r.Concerns(i.ID) })
}

// isEmptied decides about the channel if all its instances are on drained runtimes. Releases wait until one is not.
func (v *view) isEmptied() bool {
	if len(v.insts) > 0 || len(v.away) == 0 {
		return false
	}
	v.skipOvertaken()
	p := v.s.DrainOf(v.away[0].Runtime)
	if v.out.Next = v.release(v.turn.Next); v.out.Next != nil {
		v.out.Gates = append(v.out.Gates, Judgement{
			Kind: KindPaused, ID: string(KindPaused), Verdict: entities.Wait, Since: p.At, Unblock: v.s.ResumeWith(*p),
			Reason: "all instances are on drained runtimes",
		})
	}
	v.leaveAll()
	v.conclude()
	v.d.wakeBy(v.out.Due)
	return true
}

// leaveAll removes the instances on drained runtimes, and reports the progress of each.
func (v *view) leaveAll() {
	c := state.Change{Kind: state.ChangeAway}
	for n := range v.away {
		i := &v.away[n]
		if !i.Drained {
			c.Instances = append(c.Instances, i.ID)
		}
		if l := i.Delivery.Lease; l != nil && (i.Removed || !i.Delivery.Apply.Running) {
			v.d.giveBack(i.ID, l)
		}
		p := v.s.DrainOf(i.Runtime)
		i.facts, i.drained = v.leave(i, p)
		i.drained = fmt.Sprintf("%s is drained by %s%s: %s", i.Runtime, p.By, entities.Because(p.Reason), i.drained)
		v.say(i, ReasonPause, "%s", i.drained)
		v.out.Drained = i.drained
	}
	if len(c.Instances) > 0 {
		v.note(c)
	}
}

// leave removes an instance from a drained runtime when it may leave.
func (v *view) leave(i *instance, p *entities.Pause) (entities.Facts, string) {
	a, turn := &i.Delivery.Apply, p.Drain.Mine()
	if stays := unremovable(v, i); stays != "" {
		return entities.Facts{Paused: true}, stays
	}
	switch {
	case a.Running && i.Removed:
		return entities.Facts{Converging: true}, "being removed"
	case a.Running:
		return entities.Facts{Converging: true}, "it is removed once the apply has ended"
	case p.Drain.Up:
		return entities.Facts{Paused: true}, "it returns " + waitsUntil(turn)
	case i.Down:
		return entities.Facts{Paused: true}, "removed until: " + v.s.ResumeWith(*p)
	}
	if why := v.mayNotLeave(i, p, turn); why != "" {
		return entities.Facts{Paused: true}, "it is removed " + why
	}
	switch {
	case v.now.Before(a.Next):
		v.due(a.Next)
	case !v.mode.Drain && !v.changed:
		v.d.Removes = append(v.d.Removes, state.RemoveOp{Instance: i.ID, Target: *i.Delivery.Target})
	}
	if a.Err != "" && i.Removed {
		return entities.Facts{Converging: true}, fmt.Sprintf("the removal failed %s: %s", entities.Times(a.Attempts), a.Err)
	}
	return entities.Facts{Converging: true}, "being removed"
}

// unremovable returns why nothing is removed from a drained runtime, or "".
func unremovable(v *view, i *instance) string {
	switch {
	case i.Delivery.Target == nil:
		return "nothing was released to it yet"
	case v.reports():
		return "it stays: its channel is report-only"
	case !i.runtime.CanRemove:
		return "it stays: the runtime cannot remove objects"
	}
	return ""
}

// mayNotLeave returns what an instance waits for before it leaves, or "".
func (v *view) mayNotLeave(i *instance, p *entities.Pause, turn entities.Turn) string {
	v.wantCapacity(p)
	for _, l := range i.Left {
		if l.Apply.Running { // one removal at a time
			return "once the objects left on " + l.Runtime + " are removed"
		}
	}
	if pause, held := v.s.PausedBeside(i.ID); held {
		return fmt.Sprintf("after the pause by %s%s", pause.By, entities.Because(pause.Reason))
	}
	switch {
	case !turn.Go:
		return waitsUntil(turn)
	case p.Drain.Force || i.Removed:
		return ""
	}
	return v.restFalters(p)
}

// waitsUntil returns what the turn of a service waits for.
func waitsUntil(turn entities.Turn) string {
	if turn.Waits == "" {
		return "in the order of the drain"
	}
	return turn.Waits
}

// restFalters returns why the remaining instances of the channel cannot replace an instance, or "".
func (v *view) restFalters(p *entities.Pause) string {
	some := false
	for n := range v.insts {
		i := &v.insts[n]
		switch d := &i.Delivery; {
		case d.Target == nil:
		case !d.Converged || !i.current.Stable || i.runtime.Observable && !i.Observed.Fresh:
			return "once " + i.ID.Name + " is stable"
		default:
			some = true
		}
	}
	if !some {
		return "only with --force: no other instance is left in " + v.spec.Name
	}
	for n := range v.spec.Checks {
		c := &v.spec.Checks[n]
		if c.Kind != entities.CheckCapacity {
			continue
		}
		j := v.judgeCheck(c, nil)
		st := v.remembered().Reading(v.s.Evaluation(v.spec, c, nil))
		if j.Verdict != entities.Pass || st.At.Before(p.At) {
			return "once " + j.ID + " passes without it" + entities.Because(j.Reason)
		}
	}
	return ""
}

// wantCapacity requests an evaluation of the capacity checks while an instance is about to leave.
func (v *view) wantCapacity(p *entities.Pause) {
	if p.Drain.Force {
		return
	}
	for n := range v.spec.Checks {
		if c := &v.spec.Checks[n]; c.Kind == entities.CheckCapacity && !slices.Contains(v.wanted().Repairs, c.ID) {
			v.wanted().Repairs = append(v.wanted().Repairs, c.ID)
		}
	}
}
