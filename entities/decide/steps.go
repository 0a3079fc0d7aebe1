package decide

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/selection"
	"github.com/converge-engine/converge/entities/state"
)

// This file moves a release through the instances of a channel in steps (D23–D25). Instances that are not selected yet keep their
// target, and are repaired to it. The gates before the entry are evaluated again before each step.

// rolls reports whether a release goes through the channel in steps. A release that takes another one back goes everywhere at once.
func (v *view) rolls(r *state.Release) bool { return v.inSteps(r) && v.fleet() }

// inSteps is the same for a channel that may have one instance left: that one, too, gets the release as a step. A release that began in
// steps ends in steps: without a policy the rest is one step, with the gates before it as before any step.
func (v *view) inSteps(r *state.Release) bool {
	return r != nil && !r.Return && !v.reports() && (v.spec.Rollout != nil || r == v.release(v.turn.Holder) && v.begun())
}

// begun reports whether the release in progress has arrived in any instance while there was a policy.
func (v *view) begun() bool {
	if v.stepped == nil {
		r := v.release(v.turn.Holder)
		has := slices.ContainsFunc(v.insts, func(i instance) bool { return !i.Delivery.Arrived.IsZero() && i.broughtBy(r) })
		v.stepped = &has
	}
	return *v.stepped
}

// choice is the current selection of the policy.
type choice struct {
	selection.Selection
	next []*instance
	why  string // why the instances hold the policy
	// asked is the judgement of the command, if a command selects; nil if it is not run.
	asked *Judgement
}

// selected returns the instances, of those left to move, that a release goes to now.
func (v *view) selected(r *state.Release, left []*instance) choice {
	all := v.selectables(r, left)
	c := choice{Selection: v.atMost(all)}
	if v.spec.Rollout.ByCommand() && len(c.Next) > 0 {
		c = v.chosen(r, all)
	}
	for _, n := range c.Next {
		c.next = append(c.next, &v.insts[n])
	}
	c.why = v.holding(r, all, c.Wait)
	return c
}

func (v *view) selectables(r *state.Release, left []*instance) []selection.Instance {
	all := make([]selection.Instance, len(v.insts))
	for n := range v.insts {
		all[n] = v.selectable(r, &v.insts[n], left)
	}
	return all
}

// atMost is the selection of the policy among these instances, or, with a command, all that it may select.
func (v *view) atMost(all []selection.Instance) selection.Selection {
	if v.spec.Rollout.ByCommand() {
		return selection.Choose(all, v.spec.Rollout, selection.Order(len(all)))
	}
	return selection.Select(all, v.spec.Rollout, v.now)
}

// chosen is the selection of the channel's command, as long as the instances are as it received them. The command runs while anything can
// be selected. Without an answer, or with an error, nothing is selected.
func (v *view) chosen(r *state.Release, all []selection.Instance) choice {
	none := choice{Selection: selection.Choose(all, v.spec.Rollout, nil)}
	check := v.spec.Selection()
	if check == nil {
		return none
	}
	w := v.wanted()
	if w.Selects != "" && w.Selects != r.ID {
		return none
	}
	w.Selects, w.Candidates = r.ID, v.candidates(all)
	e := v.s.Evaluation(v.spec, check, r)
	e.Candidates = w.Candidates
	j := Judgement{Kind: KindRollout, ID: string(KindRollout), Verdict: entities.Wait, Reason: "running " + v.spec.Rollout.Command[0] + " to select the next instances", Plain: true}
	none.asked = &j
	st := v.remembered().Reading(e)
	if st == nil {
		return none
	}
	j.Verdict, j.Reason, j.Since = st.Verdict, v.spec.Rollout.Command[0]+" "+st.Reason, st.Since
	switch st.Verdict {
	case entities.Pass:
	case entities.Error:
		j.Reason, j.Next, j.Errors, j.Interval = "nothing is selected: "+st.Reason, st.Retry, st.Errors, check.Interval
		return none
	default:
		return none
	}
	var chosen []int
	for _, name := range st.Selected {
		if n := slices.IndexFunc(v.insts, func(i instance) bool { return i.ID.Name == name }); n >= 0 {
			chosen = append(chosen, n)
		}
	}
	return choice{Selection: selection.Choose(all, v.spec.Rollout, chosen), asked: &j}
}

// candidates are the instances that a release concerns, in the form that the command receives.
func (v *view) candidates(all []selection.Instance) string {
	out := make([]selection.Candidate, 0, len(all))
	for n, in := range all {
		if in.Apart {
			continue
		}
		i := &v.insts[n]
		c := selection.Candidate{Name: i.ID.Name, Runtime: i.Runtime, Updated: in.Updated, Stable: in.Stable, Held: in.Held}
		if in.Updated && in.Stable {
			c.Since = in.Since
		}
		out = append(out, c)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		panic(err) // it is text, times of the workflow and booleans
	}
	return string(raw)
}

// holding names the instances that keep the policy from selecting more, unless the whole channel is paused, which is reported anyway.
func (v *view) holding(r *state.Release, all []selection.Instance, wait selection.Wait) string {
	var why []string
	for n := range all {
		in, i := &all[n], &v.insts[n]
		held := wait == selection.Held && in.Held
		away := wait == selection.Room && !in.Stable && (!in.Updated || i.Delivery.Converged) // and not in progress
		if v.paused || !held && !away {
			continue
		}
		if text := v.stands(r, i); text != "" {
			why = append(why, v.of(i, text))
		}
	}
	return few(why, "; ")
}

// selectable is an instance as the policy sees it.
func (v *view) selectable(r *state.Release, i *instance, left []*instance) selection.Instance {
	d := &i.Delivery
	// Without a target an instance is not missed. An observable instance without a fresh reading does not count as healthy.
	fresh := i.Observed.Fresh || !i.runtime.Observable
	in := selection.Instance{Stable: d.Target == nil || i.current.Stable && fresh}
	switch {
	case slices.Contains(left, i):
		in.Held = d.Target != nil && !fresh && d.Failure == ""
	case d.Reported:
		in.Held = true
	case i.broughtBy(r) && v.updatedBy(i, r):
		in.Updated, in.Stable, in.Since = true, d.Converged && in.Stable, d.Arrived
	case !r.Concerns(i.ID) || v.follows(i, r):
		in.Apart = true
	default:
		in.Held = true
	}
	return in
}

// stands returns why an instance holds the policy, or cannot move.
func (v *view) stands(r *state.Release, i *instance) string {
	pause, paused := v.s.PauseOf(i.ID)
	switch e := i.Observed.Reading.Err; {
	case paused:
		return "paused by " + pause.By + entities.Because(pause.Reason)
	case v.heldThere(i, r) != "":
		return v.heldThere(i, r)
	case i.Delivery.Apply.Running:
		return "an apply is still running"
	case e != nil:
		return e.Message
	case i.unknown():
		return "no reading yet"
	case i.Delivery.Failure != "":
		return i.Delivery.Failure
	}
	return i.current.Reason
}

// updatedBy reports whether an instance that is at a release was brought there by it, not before it was made.
func (v *view) updatedBy(i *instance, r *state.Release) bool {
	return !i.Delivery.Converged || !i.Delivery.Since.Before(r.At)
}

// unmoved reports whether the instance was at the version before the release was made and is unstable. It is applied again, in its step.
func (v *view) unmoved(r *state.Release, i *instance) bool {
	return v.rolls(r) && !v.updatedBy(i, r) && !i.current.Stable
}

// step starts the next step of the release in progress, if it may.
func (v *view) step(r *state.Release) {
	if v.pin != nil { // no step follows, so nothing is rendered either
		v.rolling, v.out.Step = true, "between two steps; pinned by "+v.pin.Who.Name
		return
	}
	s := v.selected(r, v.behind(r))
	v.rolling = s.Wait != selection.Held
	if !s.At.IsZero() {
		v.due(s.At)
	}
	at := fmt.Sprintf("%d of %d at %s", s.Updated, s.Of, r.FullIn(v.insts[0].ID))
	if !v.spec.Rollout.ByCommand() {
		at = fmt.Sprintf("step %d of %d: ", s.Step, s.Steps) + at
	}
	switch {
	case len(s.next) == 0:
		v.out.Step = at + v.stepWaits(&s)
		if s.asked != nil && s.asked.Verdict == entities.Error {
			v.rolling, v.ofStep = false, []Judgement{*s.asked}
		}
	case v.yields || v.mode.Drain || v.asksForNext(r):
		v.out.Step = at
		if v.out.Next != nil && !v.mode.Drain {
			v.out.Step += "; no step while " + v.out.Next.FullVersion + ", which replaces it, is evaluated"
		}
	default:
		ofNext := v.out.Gates // the following gates are those of the step
		v.out.Gates = nil
		v.takeStep(r, s.next)
		v.out.Step = at + fmt.Sprintf("; next %d", len(s.next)) + v.stepHeld()
		v.ofStep, v.out.Gates = v.out.Gates, ofNext
	}
}

// joinGates shows the gates that hold a step like those that hold an entry, unless the next release replaces this one.
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

// asksForNext reports whether the current queries and evaluations are for the release that this one yields to.
func (v *view) asksForNext(r *state.Release) bool {
	if v.turn.Yields && slices.ContainsFunc(v.insts, func(i instance) bool {
		a := i.Observed.Asked
		return a != nil && a.Running && !a.Target.Same(r.Target(i.ID))
	}) {
		return true
	}
	return v.turn.Yields && v.out.Wanted != nil && v.out.Wanted.Release != "" && v.out.Wanted.Release != r.ID
}

func (v *view) takeStep(r *state.Release, next []*instance) {
	p := v.pass(r, func(g *gate) bool { return g.steps })
	v.out.Gates = p.gates
	if v.rolling = p.clear; p.clear {
		v.depart(r, next, state.ChangeTarget)
	}
}

// stepWaits describes what the policy waits for.
func (v *view) stepWaits(s *choice) string {
	next := fmt.Sprintf("; next %d ", s.More)
	switch s.Wait {
	case selection.Pause:
		return next + "at " + clock(s.At, v.now)
	case selection.Stable:
		return next + "once those are stable"
	case selection.Room:
		return next + fmt.Sprintf("once others are available: %d unavailable, at most %d allowed", s.Unavailable, s.Allowed) + entities.Because(s.why)
	case selection.Choice:
		if s.asked == nil {
			return "; no step while another release is evaluated"
		}
		return "; " + s.asked.Reason
	case selection.Held:
		return fmt.Sprintf("; the other %d cannot move now", s.Of-s.Updated) + entities.Because(s.why)
	}
	return ""
}

// stepHeld lists the gates that hold the step.
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

// fellOver reports whether the release in progress was stable here, and is no longer.
func (v *view) fellOver(r *state.Release, i *instance) bool {
	return v.rolls(r) && i.broughtBy(r) && i.Observed.Fresh && i.current.Known && !i.current.Stable && v.updatedBy(i, r)
}

// lacksRoom reports whether a release cannot take a step to these instances because another instance, which it does not move, is
// unavailable and stays so unless something changes it. If one of these instances has no fresh reading yet, the release may still move.
func (v *view) lacksRoom(r *state.Release, left []*instance) bool {
	all := v.selectables(r, left)
	away := false
	for n := range v.insts {
		i := &v.insts[n]
		moves := slices.ContainsFunc(left, func(m *instance) bool { return m.ID == i.ID })
		if moves && all[n].Held {
			return false
		}
		away = away || !moves && v.staysAway(i)
	}
	return away && v.atMost(all).Wait == selection.Room
}

// crammed reports whether the release in progress lacks room for all instances that it could move now.
func (v *view) crammed(r *state.Release) bool {
	left, renders := v.toMove(r)
	return len(left) > 0 && len(renders) == 0 && v.lacksRoom(r, left)
}

// staysAway reports whether an unavailable instance stays so until a release changes it: its target failed, is not applied, or is not
// repaired.
func (v *view) staysAway(i *instance) bool {
	d := &i.Delivery
	unapplied := d.Reported && !d.Converged || i.stopped() || d.Converged && !v.spec.Repairs()
	return d.Failure != "" || unapplied && !d.Apply.Running && !i.current.Stable
}

// cameBy reports whether the release in progress arrived in an instance, and was not only reported.
func (v *view) cameBy(i *instance, r *state.Release) bool {
	return i.broughtBy(r) && (!i.Delivery.Reported || i.Delivery.Converged)
}

// halted reports whether the release in progress cannot continue unless a person acts. It has more steps left, no work of it is in
// progress, and it failed in an upstream channel, or an unavailable instance leaves it no room. So a fix need not wait for it (B10).
func (v *view) halted() bool {
	r := v.release(v.turn.Holder)
	if !v.inSteps(r) {
		return false
	}
	left := false
	for n := range v.insts {
		i := &v.insts[n]
		if i.Delivery.Apply.Running || v.cameBy(i, r) && !i.Delivery.Converged {
			return false
		}
		left = left || r.Concerns(i.ID) && !v.cameBy(i, r)
	}
	if !left {
		return false
	}
	if v.crammed(r) {
		return true
	}
	p := v.pass(r, func(g *gate) bool { return g.kind == KindChannelStable || g.kind == KindUpstream })
	return slices.ContainsFunc(p.gates, func(j Judgement) bool { return j.Verdict == entities.Fail })
}

// explainStep describes the progress of a release that goes in steps.
func (v *view) explainStep() {
	switch {
	case v.out.Step != "":
		v.reason(ReasonProgress, v.out.Step)
		v.explainAside()
	case slices.ContainsFunc(v.insts, func(i instance) bool { return !i.Delivery.Converged }):
		return // its own reasons state it
	}
	for _, text := range v.soaking {
		v.reason(ReasonProgress, text)
	}
	v.soaking, v.soaked = nil, false
}
