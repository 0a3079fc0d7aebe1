package decide

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/selection"
	"github.com/converge-engine/converge/entities/state"
)

// This file has values of an aspect pass a release that goes through a fleet in steps (B5). They enter while its pause runs and all is
// well, and go through all instances before its next step, in steps of their own: so one release moves at a time, what comes last
// is suspected first, and each way back leads to what was there.

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

// pauses tells whether the release in progress is between two steps that a pause lies between, in a channel where values may pass it.
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

// compares tells whether the channel compares what is updated with what is not: values would be in both groups.
func (v *view) compares() bool {
	return slices.ContainsFunc(v.spec.Checks, func(c entities.Check) bool { return c.Kind == entities.CheckCompare })
}

// passes tells whether a release enters beside the one in progress, which is set aside.
func (v *view) passes(r *state.Release) bool { return v.turn.Passes && r == v.release(v.turn.Next) }

// aside is the release that is set aside in the channel, or nil.
func (v *view) aside() *state.Release { return v.release(v.turn.Aside) }

// setAside has the release in progress wait for the one that passes it.
func (v *view) setAside(next *state.Release) {
	if r := v.release(v.turn.Holder); r != nil && v.passes(next) {
		v.note(state.Change{Kind: state.ChangeAside, Release: r.ID, Cause: next.FullVersion + " passes it between two of its steps"})
	}
}

// rendersWays has the ways back rendered of what a release is to pass, before it does: there is nothing to render in a failure.
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

// explainAside says what waits for the release in progress, which passes it.
func (v *view) explainAside() {
	if r := v.aside(); r != nil {
		v.reason(ReasonProgress, r.FullVersion+" goes on afterwards: "+r.Phases[v.spec.Name].Reason)
	}
}

// resume has what is set aside go on, once what passed it is good everywhere or was taken back.
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

// unsettled tells whether an instance has something of what passes a release that is neither good nor taken back.
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

// leaves tells whether a release that is in progress leaves an instance alone for now: it has nothing for it, it is paused or busy, or something
// of another aspect is not good there, or could not be taken back.
func (v *view) leaves(i *instance, r *state.Release) bool {
	return !r.Concerns(i.ID) || i.paused || i.Delivery.Apply.Running || v.aside() != nil && v.s.Unfinished(i.Instance, r) ||
		!r.Phases[v.spec.Name].Doubted.IsZero() && i.RollbackFailed() && !r.PastRollback(v.spec.Name, i.Delivery.Rollback)
}

// giveWay takes back what passes a release that has failed meanwhile where it was alone: that one is judged by itself, and then the values
// come once more.
func (v *view) giveWay() bool {
	r, values := v.aside(), v.release(v.turn.Holder)
	if r == nil || values == nil {
		return false
	}
	for n := range v.insts {
		if i := &v.insts[n]; i.IsAt(r) && i.Delivery.Failure != "" && !i.Delivery.Apply.Running {
			return v.rollBack(values, v.of(i, r.FullIn(i.ID)+" failed there meanwhile: "+i.Delivery.Failure), true)
		}
	}
	return false
}
