package decide

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/selection"
	"github.com/converge-engine/converge/entities/state"
)

// This file has a release go through the instances of a channel in steps (D23–D25). Those that are not selected yet stay at
// their target, and are repaired to it. What holds a release before it enters is asked again before each step.

// rolls tells whether a release goes through the channel in steps. One that takes another one back goes everywhere at once.
func (v *view) rolls(r *state.Release) bool { return v.inSteps(r) && v.fleet() }

// inSteps is the same of a channel that may have one instance left: that one, too, gets the release as a step.
func (v *view) inSteps(r *state.Release) bool {
	return v.spec.Rollout != nil && r != nil && !r.Return && !v.reports()
}

// selected says which of these instances, that are left to move, a release goes to now.
func (v *view) selected(r *state.Release, left []*instance) ([]*instance, selection.Selection) {
	all := make([]selection.Instance, len(v.insts))
	for n := range v.insts {
		i := &v.insts[n]
		d := &i.Delivery
		// Where nothing is, nothing is missed. What was not looked at again, though it can be, is not known to be well.
		fresh := i.Observed.Fresh || !i.runtime.Observable
		in := selection.Instance{Stable: d.Target == nil || i.current.Stable && fresh}
		switch {
		case slices.Contains(left, i):
			in.Held = d.Target != nil && !fresh && d.Failure == ""
		case i.Delivery.Reported:
			in.Held = true
		case i.broughtBy(r) && v.updatedBy(i, r):
			in.Updated, in.Stable, in.Since = true, d.Converged && in.Stable, d.StableSince()
		case !r.Concerns(i.ID) || v.follows(i, r):
			in.Apart = true
		default:
			in.Held = true
		}
		all[n] = in
	}
	s := selection.Select(all, v.spec.Rollout, v.now)
	var next []*instance
	for _, n := range s.Next {
		next = append(next, &v.insts[n])
	}
	return next, s
}

// updatedBy tells whether an instance that is at a release came there by it: not before it was made.
func (v *view) updatedBy(i *instance, r *state.Release) bool {
	return !i.Delivery.Converged || !i.Delivery.Since.Before(r.At)
}

// unmoved: the instance was at the version when the release was made, and is to be applied once more, in its step.
func (v *view) unmoved(r *state.Release, i *instance) bool {
	return v.rolls(r) && !v.updatedBy(i, r) && !i.current.Stable
}

// step takes the release in progress a step further, once it may go.
func (v *view) step(r *state.Release) {
	if v.pin != nil { // nothing is to come, so that nothing is rendered for it either
		v.rolling, v.out.Step = true, "between two steps; pinned by "+v.pin.Who.Name
		return
	}
	next, s := v.selected(r, v.behind(r))
	v.rolling = s.Wait != selection.Held
	if !s.At.IsZero() {
		v.due(s.At)
	}
	at := fmt.Sprintf("step %d of %d: %d of %d at %s", s.Step, s.Steps, s.Updated, s.Of, r.FullIn(v.insts[0].ID))
	switch {
	case len(next) == 0:
		v.out.Step = at + v.stepWaits(&s)
	case v.yields || v.mode.Drain || v.asksForNext(r):
		v.out.Step = at
	default:
		ofNext := v.out.Gates // what follows is of the step
		v.out.Gates = nil
		v.takeStep(r, next)
		v.out.Step = at + fmt.Sprintf("; next %d", len(next)) + v.stepHeld()
		v.ofStep, v.out.Gates = v.out.Gates, ofNext
	}
}

// joinGates has the channel show what holds a step as it shows what holds an entry, unless the next release comes in its place.
func (v *view) joinGates() {
	if v.ofStep == nil || v.rolling || v.out.Next != nil && v.halted() {
		v.ofStep = nil
		return
	}
	v.out.Held = v.release(v.turn.Holder)
	v.out.Gates = append(slices.DeleteFunc(v.out.Gates, func(j Judgement) bool {
		return slices.ContainsFunc(v.ofStep, func(of Judgement) bool { return of.ID == j.ID })
	}), v.ofStep...)
}

// asksForNext: what is evaluated is for the release that this one makes room for.
func (v *view) asksForNext(r *state.Release) bool {
	return v.turn.Yields && v.out.Wanted != nil && v.out.Wanted.Release != "" && v.out.Wanted.Release != r.ID
}

func (v *view) takeStep(r *state.Release, next []*instance) {
	p := v.pass(r, func(g *gate) bool { return g.steps })
	v.out.Gates = p.gates
	if v.rolling = p.clear; p.clear {
		v.depart(r, next, state.ChangeTarget)
	}
}

// stepWaits says what the policy waits for.
func (v *view) stepWaits(s *selection.Selection) string {
	next := fmt.Sprintf("; next %d ", s.More)
	switch s.Wait {
	case selection.Pause:
		return next + "at " + clock(s.At, v.now)
	case selection.Stable:
		return next + "once those are stable"
	case selection.Room:
		return next + fmt.Sprintf("as others are back: %d unavailable, at most %d allowed", s.Unavailable, s.Allowed)
	case selection.Held:
		return fmt.Sprintf("; the other %d cannot move now", s.Of-s.Updated)
	}
	return ""
}

// stepHeld says which gates hold the step.
func (v *view) stepHeld() string {
	var lines []string
	for _, j := range v.out.Gates {
		if j.Verdict != entities.Pass && j.Code != CodeNotAsked {
			lines = append(lines, v.line(j))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return " after " + strings.Join(lines, "; ")
}

// fellOver: the release in progress was stable here, and is no longer.
func (v *view) fellOver(r *state.Release, i *instance) bool {
	return v.rolls(r) && i.broughtBy(r) && i.Observed.Fresh && i.current.Known && !i.current.Stable && v.updatedBy(i, r)
}

// halted: the release in progress goes no further by itself. It has more steps to go, nothing of it is under way, and it has failed
// in a channel before this one. So a fix need not wait for it (B10).
func (v *view) halted() bool {
	r := v.release(v.turn.Holder)
	if !v.rolls(r) {
		return false
	}
	left := false
	for n := range v.insts {
		i := &v.insts[n]
		if i.Delivery.Apply.Running || i.broughtBy(r) && !i.Delivery.Converged {
			return false
		}
		left = left || r.Concerns(i.ID) && !i.broughtBy(r)
	}
	if !left {
		return false
	}
	p := v.pass(r, func(g *gate) bool { return g.kind == KindChannelStable || g.kind == KindUpstream })
	return slices.ContainsFunc(p.gates, func(j Judgement) bool { return j.Verdict == entities.Fail })
}

// explainStep says how far a release is that goes in steps.
func (v *view) explainStep() {
	switch {
	case v.out.Step != "":
		v.reason(ReasonProgress, v.out.Step)
	case slices.ContainsFunc(v.insts, func(i instance) bool { return !i.Delivery.Converged }):
		return // it says so itself
	}
	for _, text := range v.soaking {
		v.reason(ReasonProgress, text)
	}
	v.soaking, v.soaked = nil, false
}
