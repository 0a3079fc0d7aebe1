package decide

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/selection"
	"github.com/converge-engine/converge/entities/state"
)

// This file lets values of an aspect pass a release that goes through a fleet in steps (B5). They enter during a pause between its steps
// while the channel is healthy, and go through all instances before its next step, in steps of their own. So one release moves at a time,
// the latest one is suspected first, and each rollback leads to the previous state.

// MayPass implements maestro.Facts. A version, whose steps may take days, passes nothing.
func (k *releaseView) MayPass(release, other, channel int) bool {
	r, in, spec := k.s.Releases[release], k.s.Releases[other], &k.s.Spec.Channels[channel]
	if aside := k.s.AsideIn(spec.Name); !r.IsAspect() || aside != nil {
		return r.IsAspect() && aside == in
	}
	v := view{tables: k.tables, s: k.s, spec: spec, now: k.now, healths: k.healths, slot: noSlot, d: &Decision{}, out: &ChannelDecision{}}
	v.slot.Holder = other
	v.gather()
	return v.inStepPause(in)
}

// inStepPause reports whether the release in progress is in a pause between two steps, in a channel where values may pass it.
func (v *view) inStepPause(r *state.Release) bool {
	if !v.isRollout(r) || v.pin != nil || v.paused || v.spec.NoRollback || v.spec.Rollout.ByCommand() || v.hasComparison() {
		return false
	}
	for n := range v.insts {
		if d := &v.insts[n].Delivery; d.Target != nil && (!d.Converged || d.Apply.Running || d.Failure != "" || !v.insts[n].current.Stable && v.insts[n].IsAt(r)) {
			return false
		}
	}
	return v.selectStep(r, nil).Wait == selection.Pause
}

// hasComparison reports whether the channel compares updated instances with the others: values would be in both groups.
func (v *view) hasComparison() bool {
	return slices.ContainsFunc(v.spec.Checks, func(c entities.Check) bool { return c.Kind == entities.CheckCompare })
}

// isPassing reports whether a release enters while the one in progress is set aside.
func (v *view) isPassing(r *state.Release) bool { return v.slot.Passes && r == v.release(v.slot.Next) }

// asideRelease is the release that is set aside in the channel, or nil.
func (v *view) asideRelease() *state.Release { return v.release(v.slot.Aside) }

// setAside lets the release in progress wait for the one that passes it.
func (v *view) setAside(next *state.Release) {
	if r := v.release(v.slot.Holder); r != nil && v.isPassing(next) {
		v.addChange(state.Change{Kind: state.ChangeAside, Release: r.ID, Cause: next.FullVersion + " enters between two of its steps"})
	}
}

// renderRollbackTargets requests the renders of the rollback targets of the passed release before it is passed: a failure leaves no time to
// render.
func (v *view) renderRollbackTargets(r *state.Release) (rendering bool) {
	passed := v.asideRelease()
	if passed == nil {
		passed = v.release(v.slot.Holder)
	}
	if !v.isPassing(r) {
		return false
	}
	for n := range v.insts {
		i := &v.insts[n]
		if i.Delivery.Target == nil || !i.IsAt(passed) && !v.s.HasValuesOnTop(i.Instance, passed) {
			continue
		}
		if op, rendered := v.s.RollbackTargetBelow(i.Instance, passed, r); !rendered {
			v.d.Renders = append(v.d.Renders, op)
			rendering = true
		}
	}
	return rendering
}

// explainAside names the release that waits for the one that passes it.
func (v *view) explainAside() {
	if r := v.asideRelease(); r != nil {
		v.reason(ReasonProgress, r.FullVersion+" continues afterwards: "+r.Phases[v.spec.Name].Reason)
	}
}

// resume continues the release that is set aside, once the one that passed it is good everywhere or was rolled back.
func (v *view) resume() {
	r := v.asideRelease()
	if r == nil || v.slot.Holder != maestro.None || v.pin != nil || v.changed {
		return
	}
	for n := range v.insts {
		if v.unsettled(&v.insts[n], r) {
			return
		}
	}
	v.change(state.Change{Kind: state.ChangeResume, Release: r.ID})
}

// unsettled reports whether an instance has values of the passing release that are neither good nor rolled back.
func (v *view) unsettled(i *instance, r *state.Release) bool {
	d := &i.Delivery
	if d.Target == nil {
		return false
	}
	if i.RollbackFailed() || i.IsAt(r) {
		return d.Apply.Running || i.RollingBack() && !i.RollbackFailed()
	}
	by := v.s.TargetRelease(i.Instance)
	pending := by != nil && by.Phases[v.spec.Name].Phase != maestro.Succeeded && by.Track() != r.Track()
	return pending || d.Apply.Running || d.BeforePin != nil || v.s.HasUnfinishedAspect(i.Instance, r) || by == nil && v.s.HasValuesOnTop(i.Instance, r)
}

// skipsInstance reports whether the release in progress skips an instance for now: it has nothing for it, the instance is paused or busy,
// or a release of another aspect is not good there or could not be rolled back.
func (v *view) skipsInstance(i *instance, r *state.Release) bool {
	return !r.HasPayload(i.ID) || i.paused || i.Delivery.Apply.Running || v.asideRelease() != nil && v.s.HasUnfinishedAspect(i.Instance, r) ||
		!r.Phases[v.spec.Name].ResumedAt.IsZero() && i.RollbackFailed() && !r.PassesRollback(v.spec.Name, i.Delivery.Rollback)
}

// yieldToNewer rolls back the values that pass a release if that release failed in an instance that has it alone. That failure is judged
// first, and then the values enter again.
func (v *view) yieldToNewer() bool {
	r, values := v.asideRelease(), v.release(v.slot.Holder)
	if r == nil || values == nil {
		return false
	}
	for n := range v.insts {
		if i := &v.insts[n]; i.IsAt(r) && i.Delivery.Failure != "" && !i.Delivery.Apply.Running {
			return v.rollBack(values, v.prefixInstance(i, r.FullVersionFor(i.ID)+" failed there: "+i.Delivery.Failure), true)
		}
	}
	return false
}
