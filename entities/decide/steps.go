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

// This file has a release go through the instances of a channel in steps (D23–D25). Those that are not selected yet stay at
// their target, and are repaired to it. What holds a release before it enters is asked again before each step.

// rolls tells whether a release goes through the channel in steps. One that takes another one back goes everywhere at once.
func (v *view) rolls(r *state.Release) bool { return v.inSteps(r) && v.fleet() }

// inSteps is the same of a channel that may have one instance left: that one, too, gets the release as a step. What has begun in
// steps ends so: without a policy the rest is one step, before which the gates are asked again like before any.
func (v *view) inSteps(r *state.Release) bool {
	return r != nil && !r.Return && !v.reports() && (v.spec.Rollout != nil || r == v.release(v.turn.Holder) && v.begun())
}

// begun tells whether the release in progress has arrived anywhere while there was a policy.
func (v *view) begun() bool {
	if v.stepped == nil {
		r := v.release(v.turn.Holder)
		has := slices.ContainsFunc(v.insts, func(i instance) bool { return !i.Delivery.Arrived.IsZero() && i.broughtBy(r) })
		v.stepped = &has
	}
	return *v.stepped
}

// choice is what the policy selects now.
type choice struct {
	selection.Selection
	next []*instance
	why  string // what holds the first of the instances that hold it
	// asked is, where a command selects, what it says; nil where it is not asked.
	asked *Judgement
}

// selected says which of these instances, that are left to move, a release goes to now.
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

// atMost is what the policy selects of these instances, or, where a command does, lets it choose.
func (v *view) atMost(all []selection.Instance) selection.Selection {
	if v.spec.Rollout.ByCommand() {
		return selection.Choose(all, v.spec.Rollout, selection.Order(len(all)))
	}
	return selection.Select(all, v.spec.Rollout, v.now)
}

// chosen is what the channel's command says of these instances, as long as they are as it was told. It is asked while anything can
// be selected; until it has answered, or when it cannot, nothing is.
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
	j := Judgement{Kind: KindRollout, ID: string(KindRollout), Verdict: entities.Wait, Reason: "asking " + v.spec.Rollout.Command[0] + " which are next", Plain: true}
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

// candidates are the instances that a release concerns, as the command is told of them.
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

// holding names the instances that keep the policy from selecting more, unless the whole channel is paused, which is said anyway.
func (v *view) holding(r *state.Release, all []selection.Instance, wait selection.Wait) string {
	var why []string
	for n := range all {
		in, i := &all[n], &v.insts[n]
		held := wait == selection.Held && in.Held
		away := wait == selection.Room && !in.Stable && (!in.Updated || i.Delivery.Converged) // and not on its way
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
	// Where nothing is, nothing is missed. What was not looked at again, though it can be, is not known to be well.
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

// stands says why an instance holds the policy, or cannot move.
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
			v.out.Step += "; no step while " + v.out.Next.FullVersion + " is asked about, which comes in its place"
		}
	default:
		ofNext := v.out.Gates // what follows is of the step
		v.out.Gates = nil
		v.takeStep(r, s.next)
		v.out.Step = at + fmt.Sprintf("; next %d", len(s.next)) + v.stepHeld()
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

// stepWaits says what the policy waits for.
func (v *view) stepWaits(s *choice) string {
	next := fmt.Sprintf("; next %d ", s.More)
	switch s.Wait {
	case selection.Pause:
		return next + "at " + clock(s.At, v.now)
	case selection.Stable:
		return next + "once those are stable"
	case selection.Room:
		return next + fmt.Sprintf("as others are back: %d unavailable, at most %d allowed", s.Unavailable, s.Allowed) + entities.Because(s.why)
	case selection.Choice:
		if s.asked == nil {
			return "; no step while another release is asked about"
		}
		return "; " + s.asked.Reason
	case selection.Held:
		return fmt.Sprintf("; the other %d cannot move now", s.Of-s.Updated) + entities.Because(s.why)
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

// lacksRoom: a release that is left to move to these instances takes no step, since another one, that it does not move, is unavailable
// and stays so by itself. Where one of them is still to be read, it may.
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

// crammed tells whether the release in progress lacks room for all that it could move now.
func (v *view) crammed(r *state.Release) bool {
	left, renders := v.toMove(r)
	return len(left) > 0 && len(renders) == 0 && v.lacksRoom(r, left)
}

// staysAway tells whether an instance that is not well stays so until a release brings it something: what is there has failed, is not
// applied, or is not repaired.
func (v *view) staysAway(i *instance) bool {
	d := &i.Delivery
	unapplied := d.Reported && !d.Converged || i.stopped() || d.Converged && !v.spec.Repairs()
	return d.Failure != "" || unapplied && !d.Apply.Running && !i.current.Stable
}

// cameBy: the release in progress has come to an instance, and not as a mere report.
func (v *view) cameBy(i *instance, r *state.Release) bool {
	return i.broughtBy(r) && (!i.Delivery.Reported || i.Delivery.Converged)
}

// halted: the release in progress goes no further by itself. It has more steps to go, nothing of it is under way, and it has failed
// in a channel before this one, or another instance leaves it no room. So a fix need not wait for it (B10).
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

// explainStep says how far a release is that goes in steps.
func (v *view) explainStep() {
	switch {
	case v.out.Step != "":
		v.reason(ReasonProgress, v.out.Step)
		v.explainAside()
	case slices.ContainsFunc(v.insts, func(i instance) bool { return !i.Delivery.Converged }):
		return // it says so itself
	}
	for _, text := range v.soaking {
		v.reason(ReasonProgress, text)
	}
	v.soaking, v.soaked = nil, false
}
