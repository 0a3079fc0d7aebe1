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

// Passes implements maestro.Known. A version, whose steps may take days, passes nothing.
func (k *knowledge) Passes(release, other, channel int) bool {
	r, in, spec := k.s.Releases[release], k.s.Releases[other], &k.s.Spec.Channels[channel]
	if aside := k.s.AsideIn(spec.Name); !r.OfAspect() || aside != nil {
		return r.OfAspect() && aside == in
	}
	v := view{tables: k.tables, s: k.s, spec: spec, now: k.now, healths: k.healths, turn: noTurn, d: &Decision{}, out: &ChannelDecision{}}
	v.turn.Holder = other
	v.gather()
	return v.pauses(in)
}

// pauses reports whether the release in progress is in a pause between two steps, in a channel where values may pass it.
func (v *view) pauses(r *state.Release) bool {
	if !v.rolls(r) || v.pin != nil || v.paused || v.spec.NoRollback || v.spec.Rollout.ByCommand() || v.compares() {
		return false
	}
	for n := range v.insts {
		if d := &v.insts[n].Delivery; d.Target != nil && (!d.Converged || d.Apply.Running || d.Failure != "" || !v.insts[n].current.Stable && v.insts[n].IsAt(r)) {
			return false
		}
	}
	return v.selected(r, nil).Wait == selection.Pause
}

// compares reports whether the channel compares updated instances with the others: values would be in both groups.
func (v *view) compares() bool {
	return slices.ContainsFunc(v.spec.Checks, func(c entities.Check) bool { return c.Kind == entities.CheckCompare })
}

// passes reports whether a release enters while the one in progress is set aside.
func (v *view) passes(r *state.Release) bool { return v.turn.Passes && r == v.release(v.turn.Next) }

// aside is the release that is set aside in the channel, or nil.
func (v *view) aside() *state.Release { return v.release(v.turn.Aside) }

// setAside lets the release in progress wait for the one that passes it.
func (v *view) setAside(next *state.Release) {
	if r := v.release(v.turn.Holder); r != nil && v.passes(next) {
		v.note(state.Change{Kind: state.ChangeAside, Release: r.ID, Cause: next.FullVersion + " enters between two of its steps"})
	}
}

// rendersWays requests the renders of the rollback targets of the passed release before it is passed: a failure leaves no time to render.
func (v *view) rendersWays(r *state.Release) (rendering bool) {
	under := v.aside()
	if under == nil {
		under = v.release(v.turn.Holder)
	}
	if !v.passes(r) {
		return false
	}
	for n := range v.insts {
		i := &v.insts[n]
		if i.Delivery.Target == nil || !i.IsAt(under) && !v.s.Carries(i.Instance, under) {
			continue
		}
		if op, made := v.s.WayUnder(i.Instance, under, r); !made {
			v.d.Renders = append(v.d.Renders, op)
			rendering = true
		}
	}
	return rendering
}

// explainAside names the release that waits for the one that passes it.
func (v *view) explainAside() {
	if r := v.aside(); r != nil {
		v.reason(ReasonProgress, r.FullVersion+" continues afterwards: "+r.Phases[v.spec.Name].Reason)
	}
}

// resume continues the release that is set aside, once the one that passed it is good everywhere or was rolled back.
func (v *view) resume() {
	r := v.aside()
	if r == nil || v.turn.Holder != maestro.None || v.pin != nil || v.changed {
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
	by := v.s.Brought(i.Instance)
	left := by != nil && by.Phases[v.spec.Name].Phase != maestro.Succeeded && by.Line() != r.Line()
	return left || d.Apply.Running || d.BeforePin != nil || v.s.Unfinished(i.Instance, r) || by == nil && v.s.Carries(i.Instance, r)
}

// leaves reports whether the release in progress skips an instance for now: it has nothing for it, the instance is paused or busy, or a
// release of another aspect is not good there or could not be rolled back.
func (v *view) leaves(i *instance, r *state.Release) bool {
	return !r.Concerns(i.ID) || i.paused || i.Delivery.Apply.Running || v.aside() != nil && v.s.Unfinished(i.Instance, r) ||
		!r.Phases[v.spec.Name].Doubted.IsZero() && i.RollbackFailed() && !r.PastRollback(v.spec.Name, i.Delivery.Rollback)
}

// giveWay rolls back the values that pass a release if that release failed in an instance that has it alone. That failure is judged
// first, and then the values enter again.
func (v *view) giveWay() bool {
	r, values := v.aside(), v.release(v.turn.Holder)
	if r == nil || values == nil {
		return false
	}
	for n := range v.insts {
		if i := &v.insts[n]; i.IsAt(r) && i.Delivery.Failure != "" && !i.Delivery.Apply.Running {
			return v.rollBack(values, v.of(i, r.FullIn(i.ID)+" failed there: "+i.Delivery.Failure), true)
		}
	}
	return false
}
