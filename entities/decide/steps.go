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

// isRollout reports whether a release goes through the channel in steps. A release that rolls another one back goes everywhere at once.
func (v *view) isRollout(r *state.Release) bool { return v.inSteps(r) && v.fleet() }

// inSteps is the same for a channel that may have one instance left: that one, too, gets the release as a step. A release that began in
// steps ends in steps: without a policy the rest is one step, with the gates before it as before any step.
func (v *view) inSteps(r *state.Release) bool {
	return r != nil && !r.Return && !v.isReportOnly() && (v.spec.Rollout != nil || r == v.release(v.slot.Holder) && v.rolloutBegun())
}

// rolloutBegun reports whether the release in progress has arrived in any instance while there was a policy.
func (v *view) rolloutBegun() bool {
	if v.rolloutBegunCache == nil {
		r := v.release(v.slot.Holder)
		has := slices.ContainsFunc(v.insts, func(i instance) bool { return !i.Delivery.ConvergedAt.IsZero() && i.deliveredBy(r) })
		v.rolloutBegunCache = &has
	}
	return *v.rolloutBegunCache
}

// stepSelection is the current selection of the policy.
type stepSelection struct {
	selection.Selection
	next     []*instance
	blockers string // why the instances hold the policy
	// commandGate is the judgement of the command, if a command selects; nil if it is not run.
	commandGate *Judgement
}

// selectStep returns the instances, of those left to move, that a release goes to now.
func (v *view) selectStep(r *state.Release, remaining []*instance) stepSelection {
	all := v.selectionInputs(r, remaining)
	c := stepSelection{Selection: v.policySelection(all)}
	if v.spec.Rollout.ByCommand() && len(c.Next) > 0 {
		c = v.selectByCommand(r, all)
	}
	for _, n := range c.Next {
		c.next = append(c.next, &v.insts[n])
	}
	c.blockers = v.blockerTexts(r, all, c.Wait)
	return c
}

func (v *view) selectionInputs(r *state.Release, remaining []*instance) []selection.InstanceState {
	all := make([]selection.InstanceState, len(v.insts))
	for n := range v.insts {
		all[n] = v.selectionInput(r, &v.insts[n], remaining)
	}
	return all
}

// policySelection is the selection of the policy among these instances, or, with a command, all that it may select.
func (v *view) policySelection(all []selection.InstanceState) selection.Selection {
	if v.spec.Rollout.ByCommand() {
		return selection.SelectByCommand(all, v.spec.Rollout, selection.Order(len(all)))
	}
	return selection.Select(all, v.spec.Rollout, v.now)
}

// selectByCommand is the selection of the channel's command, as long as the instances are as it received them. The command runs while
// anything can be selected. Without an answer, or with an error, nothing is selected.
func (v *view) selectByCommand(r *state.Release, all []selection.InstanceState) stepSelection {
	none := stepSelection{Selection: selection.SelectByCommand(all, v.spec.Rollout, nil)}
	check := v.spec.Selection()
	if check == nil {
		return none
	}
	w := v.neededChecks()
	if w.SelectionFor != "" && w.SelectionFor != r.ID {
		return none
	}
	w.SelectionFor, w.Candidates = r.ID, v.candidatesJSON(all)
	e := v.s.Evaluation(v.spec, check, r)
	e.Candidates = w.Candidates
	j := Judgement{Kind: KindRollout, ID: string(KindRollout), Verdict: entities.Wait, Reason: "running " + v.spec.Rollout.Command[0] + " to select the next instances", Plain: true}
	none.commandGate = &j
	st := v.channelState().LastReading(e)
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
	return stepSelection{Selection: selection.SelectByCommand(all, v.spec.Rollout, chosen), commandGate: &j}
}

// candidatesJSON are the instances that a release concerns, in the form that the command receives.
func (v *view) candidatesJSON(all []selection.InstanceState) string {
	out := make([]selection.Candidate, 0, len(all))
	for n, in := range all {
		if in.Unaffected {
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

// blockerTexts names the instances that keep the policy from selecting more, unless the whole channel is paused, which is reported anyway.
func (v *view) blockerTexts(r *state.Release, all []selection.InstanceState, wait selection.WaitReason) string {
	var why []string
	for n := range all {
		in, i := &all[n], &v.insts[n]
		held := wait == selection.Held && in.Held
		unavailable := wait == selection.LimitReached && !in.Stable && (!in.Updated || i.Delivery.Converged) // and not in progress
		if v.paused || !held && !unavailable {
			continue
		}
		if text := v.blockerText(r, i); text != "" {
			why = append(why, v.prefixInstance(i, text))
		}
	}
	return firstFew(why, "; ")
}

// selectionInput is an instance as the policy sees it.
func (v *view) selectionInput(r *state.Release, i *instance, remaining []*instance) selection.InstanceState {
	d := &i.Delivery
	// Without a target an instance is not missed. An observable instance without a fresh reading does not count as healthy.
	fresh := i.Observed.Fresh || !i.runtime.Observable
	in := selection.InstanceState{Stable: d.Target == nil || i.current.Stable && fresh}
	switch {
	case slices.Contains(remaining, i):
		in.Held = d.Target != nil && !fresh && d.Failure == ""
	case d.ReportedOnly:
		in.Held = true
	case i.deliveredBy(r) && v.wasUpdatedBy(i, r):
		in.Updated, in.Stable, in.Since = true, d.Converged && in.Stable, d.ConvergedAt
	case !r.HasPayload(i.ID) || v.isSatisfied(i, r):
		in.Unaffected = true
	default:
		in.Held = true
	}
	return in
}

// blockerText returns why an instance holds the policy, or cannot move.
func (v *view) blockerText(r *state.Release, i *instance) string {
	pause, paused := v.s.PauseOf(i.ID)
	switch e := i.Observed.Reading.Err; {
	case paused:
		return "paused by " + pause.By + entities.Because(pause.Reason)
	case v.destinationPause(i, r) != "":
		return v.destinationPause(i, r)
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

// wasUpdatedBy reports whether an instance that is at a release was brought there by it, not before it was made.
func (v *view) wasUpdatedBy(i *instance, r *state.Release) bool {
	return !i.Delivery.Converged || !i.Delivery.Since.Before(r.At)
}

// needsReapply reports whether the instance was at the version before the release was made and is unstable. It is applied again, in its
// step.
func (v *view) needsReapply(r *state.Release, i *instance) bool {
	return v.isRollout(r) && !v.wasUpdatedBy(i, r) && !i.current.Stable
}

// startStep starts the next step of the release in progress, if it may.
func (v *view) startStep(r *state.Release) {
	if v.pin != nil { // no step follows, so nothing is rendered either
		v.rolloutActive, v.out.Step = true, "between two steps; pinned by "+v.pin.Who.Name
		return
	}
	s := v.selectStep(r, v.remainingInstances(r))
	v.rolloutActive = s.Wait != selection.Held
	if !s.At.IsZero() {
		v.due(s.At)
	}
	progress := fmt.Sprintf("%d of %d at %s", s.Updated, s.Total, r.FullVersionFor(v.insts[0].ID))
	if !v.spec.Rollout.ByCommand() {
		progress = fmt.Sprintf("step %d of %d: ", s.Step, s.Steps) + progress
	}
	switch {
	case len(s.next) == 0:
		v.out.Step = progress + v.stepWaitText(&s)
		if s.commandGate != nil && s.commandGate.Verdict == entities.Error {
			v.rolloutActive, v.stepGates = false, []Judgement{*s.commandGate}
		}
	case v.yielding || v.mode.NoNewWork || v.evaluatesNext(r):
		v.out.Step = progress
		if v.out.Next != nil && !v.mode.NoNewWork {
			v.out.Step += "; no step while " + v.out.Next.FullVersion + ", which replaces it, is evaluated"
		}
	default:
		ofNext := v.out.Gates // the following gates are those of the step
		v.out.Gates = nil
		v.enterStep(r, s.next)
		v.out.Step = progress + fmt.Sprintf("; next %d", len(s.next)) + v.stepGateText()
		v.stepGates, v.out.Gates = v.out.Gates, ofNext
	}
}

// showStepGates shows the gates that hold a step like those that hold an entry, unless the next release replaces this one.
func (v *view) showStepGates() {
	if v.stepGates == nil || v.rolloutActive || v.out.Next != nil && v.isHalted() {
		v.stepGates = nil
		return
	}
	v.out.Held = v.release(v.slot.Holder)
	v.out.Gates = append(slices.DeleteFunc(v.out.Gates, func(j Judgement) bool {
		return slices.ContainsFunc(v.stepGates, func(step Judgement) bool { return step.ID == j.ID })
	}), v.stepGates...)
}

// evaluatesNext reports whether the current queries and evaluations are for the release that this one yields to.
func (v *view) evaluatesNext(r *state.Release) bool {
	if v.slot.Yields && slices.ContainsFunc(v.insts, func(i instance) bool {
		a := i.Observed.Query
		return a != nil && a.Running && !a.Target.Same(r.Target(i.ID))
	}) {
		return true
	}
	return v.slot.Yields && v.out.NeededChecks != nil && v.out.NeededChecks.Release != "" && v.out.NeededChecks.Release != r.ID
}

func (v *view) enterStep(r *state.Release, next []*instance) {
	p := v.evaluateGates(r, func(g *gate) bool { return g.steps })
	v.out.Gates = p.gates
	if v.rolloutActive = p.clear; p.clear {
		v.setTargets(r, next, state.ChangeTarget)
	}
}

// stepWaitText describes what the policy waits for.
func (v *view) stepWaitText(s *stepSelection) string {
	next := fmt.Sprintf("; next %d ", s.More)
	switch s.Wait {
	case selection.Pause:
		return next + "at " + formatClock(s.At, v.now)
	case selection.Stable:
		return next + "once those are stable"
	case selection.LimitReached:
		return next + fmt.Sprintf("once others are available: %d unavailable, at most %d allowed", s.Unavailable, s.Allowed) + entities.Because(s.blockers)
	case selection.NoneSelected:
		if s.commandGate == nil {
			return "; no step while another release is evaluated"
		}
		return "; " + s.commandGate.Reason
	case selection.Held:
		return fmt.Sprintf("; the other %d cannot move now", s.Total-s.Updated) + entities.Because(s.blockers)
	}
	return ""
}

// stepGateText lists the gates that hold the step.
func (v *view) stepGateText() string {
	var lines []string
	for _, j := range v.out.Gates {
		if j.Verdict != entities.Pass && j.Code != CodeNotEvaluated {
			lines = append(lines, v.judgementText(j))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return " after " + strings.Join(lines, "; ")
}

// becameUnhealthy reports whether the release in progress was stable here, and is no longer.
func (v *view) becameUnhealthy(r *state.Release, i *instance) bool {
	return v.isRollout(r) && i.deliveredBy(r) && i.Observed.Fresh && i.current.Known && !i.current.Stable && v.wasUpdatedBy(i, r)
}

// blockedByUnavailable reports whether a release cannot take a step to these instances because another instance, which it does not move, is
// unavailable and stays so unless something changes it. If one of these instances has no fresh reading yet, the release may still move.
func (v *view) blockedByUnavailable(r *state.Release, remaining []*instance) bool {
	all := v.selectionInputs(r, remaining)
	blocked := false
	for n := range v.insts {
		i := &v.insts[n]
		moves := slices.ContainsFunc(remaining, func(m *instance) bool { return m.ID == i.ID })
		if moves && all[n].Held {
			return false
		}
		blocked = blocked || !moves && v.staysUnavailable(i)
	}
	return blocked && v.policySelection(all).Wait == selection.LimitReached
}

// atMaxUnavailable reports whether the release in progress lacks room for all instances that it could move now.
func (v *view) atMaxUnavailable(r *state.Release) bool {
	remaining, renders := v.movableInstances(r)
	return len(remaining) > 0 && len(renders) == 0 && v.blockedByUnavailable(r, remaining)
}

// staysUnavailable reports whether an unavailable instance stays so until a release changes it: its target failed, is not applied, or is
// not repaired.
func (v *view) staysUnavailable(i *instance) bool {
	d := &i.Delivery
	unapplied := d.ReportedOnly && !d.Converged || i.applyCancelled() || d.Converged && !v.spec.Repairs()
	return d.Failure != "" || unapplied && !d.Apply.Running && !i.current.Stable
}

// reachedBy reports whether the release in progress arrived in an instance, and was not only reported.
func (v *view) reachedBy(i *instance, r *state.Release) bool {
	return i.deliveredBy(r) && (!i.Delivery.ReportedOnly || i.Delivery.Converged)
}

// isHalted reports whether the release in progress cannot continue unless a person acts. It has more steps left, no work of it is in
// progress, and it failed in an upstream channel, or an unavailable instance leaves it no room. So a fix need not wait for it (B10).
func (v *view) isHalted() bool {
	r := v.release(v.slot.Holder)
	if !v.inSteps(r) {
		return false
	}
	remaining := false
	for n := range v.insts {
		i := &v.insts[n]
		if i.Delivery.Apply.Running || v.reachedBy(i, r) && !i.Delivery.Converged {
			return false
		}
		remaining = remaining || r.HasPayload(i.ID) && !v.reachedBy(i, r)
	}
	if !remaining {
		return false
	}
	if v.atMaxUnavailable(r) {
		return true
	}
	p := v.evaluateGates(r, func(g *gate) bool { return g.kind == KindChannelStable || g.kind == KindUpstream })
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
	for _, text := range v.soakTexts {
		v.reason(ReasonProgress, text)
	}
	v.soakTexts, v.soakReported = nil, false
}
