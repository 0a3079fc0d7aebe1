package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file holds checks: evaluations of external systems, namely protections (A19, A20) and conditions on other services (D20–D22). A
// decision names those to evaluate now. None is evaluated while a cheaper gate holds a release anyway.

// checks adds the judgements of the checks whose first stage this is.
func (p *admission) checks(stage entities.Stage) {
	for n := range p.spec.Checks {
		c := &p.spec.Checks[n]
		if c.FirstGateStage() != stage {
			continue
		}
		if !p.preconditionsMet {
			p.add(notEvaluated(KindCheck, c.ID, "evaluated once the earlier gates pass"))
			continue
		}
		if p.checksUsedByHolder() {
			p.neededChecks().PreflightFor = p.release.ID
			p.add(Judgement{Kind: KindCheck, ID: c.ID, Verdict: entities.Pass, Reason: "evaluated right before " + p.release.FullVersion + " enters"})
			continue
		}
		p.requestCheck(c, p.release.ID)
		p.add(p.judgeCheck(c, p.release))
	}
}

// checksUsedByHolder reports whether checks are evaluated for the release in progress, which yields to this one. Only a preflight evaluates
// them for this one.
func (p *admission) checksUsedByHolder() bool {
	w := p.out.NeededChecks
	return (p.holderYields() || p.isPassing(p.release)) && w != nil && w.Release == p.view.release(p.slot.Holder).ID
}

// notEvaluated is the judgement of a gate that is evaluated only after everything before it passes. It makes no statement about the release
// yet.
func notEvaluated(kind Kind, id, reason string) Judgement {
	return Judgement{Kind: kind, ID: id, Verdict: entities.Wait, Code: CodeNotEvaluated, Reason: reason}
}

// judgeCheck returns the verdict of the newest reading of a check, if it is of this release and of the current definition. A nil release
// means a repair.
func (v *view) judgeCheck(c *entities.Check, r *state.Release) Judgement {
	st := v.channelState().LastReading(v.s.Evaluation(v.spec, c, r))
	if st == nil {
		return Judgement{Kind: KindCheck, ID: c.ID, Verdict: entities.Wait, Reason: "not evaluated yet"}
	}
	j := Judgement{Kind: KindCheck, ID: c.ID, Verdict: st.Verdict, Reason: st.Reason, Since: st.Since, Next: st.Next}
	if st.Verdict != entities.Error {
		return j
	}
	j.Next, j.Errors, j.Interval = st.Retry, st.Errors, c.Interval
	if st.Errors > 1 {
		j.Reason += "; " + ordinal(st.Errors) + " failure"
	}
	return j
}

func unblockCheck(v *view, j *Judgement, r *state.Release) string {
	return "release a version that passes, or: " + v.command("bypass", r, v.spec.Name, j.ID, "--reason …")
}

// neededChecks is the list of evaluations that the gates of the channel need. It is created at the first use.
func (v *view) neededChecks() *state.NeededChecks {
	if v.out.NeededChecks == nil {
		v.out.NeededChecks = &state.NeededChecks{}
	}
	return v.out.NeededChecks
}

// requestCheck requests the evaluation of a check for a release.
func (v *view) requestCheck(c *entities.Check, release string) {
	w := v.neededChecks()
	if release != w.Release {
		w.Checks, w.Release = nil, release
	}
	w.Checks = append(w.Checks, c.ID)
}

// checkIDs lists those that can be bypassed: all of them before the release enters, then those that can still fail it.
func checkIDs(v *view, entered bool) []string {
	var out []string
	for n := range v.spec.Checks {
		c := &v.spec.Checks[n]
		fails := c.AtStage(entities.Deployment)
		if len(c.At) > 0 && (!entered || c.RunsAfterDeployment() || fails != nil && fails.Fails) {
			out = append(out, c.ID)
		}
	}
	return out
}

func refusedByCheck(r *state.Release, p *state.PhaseState, c *entities.ChannelSpec) bool {
	for n := range c.Checks {
		check := &c.Checks[n]
		if slices.Contains(p.FailedChecks, check.ID) && check.FirstGateStage() != "" && r.BypassOf(c.Name, check.ID) == nil {
			return true
		}
	}
	return false
}

// preflightValidity is how long the readings of a preflight are valid: for the decision that follows it, and no later one.
const preflightValidity = 2 * time.Second

// preflight reports whether all external conditions were just evaluated and let the release pass. Otherwise it starts the evaluation:
// immediately before a target is set all external conditions are evaluated again, to detect an alert that began to fire a moment ago
// (A10). Without external conditions there is no preflight.
func (v *view) preflight(next *state.Release) bool {
	var all []entities.Evaluation
	for n := range v.spec.Checks {
		c := &v.spec.Checks[n]
		if c.FirstGateStage() != "" && next.BypassOf(v.spec.Name, c.ID) == nil {
			all = append(all, v.s.Evaluation(v.spec, c, next))
		}
	}
	return len(all) == 0 || v.preflightPassed(state.PreflightOp{Channel: v.spec.Name, Release: next.ID, Checks: all})
}

// preflightBacksOff reports whether the last preflight did not pass and the next one is not due yet. No lease is held until then.
func (v *view) preflightBacksOff(next *state.Release) bool {
	p := v.channelState().Preflight
	if p == nil || p.Running || p.Release != next.ID || p.Window || !v.now.Before(p.Next) || !v.neededChecks().IsFor(next.ID) {
		return false // the last condition: no check is declared any more
	}
	v.due(p.Next)
	v.addWait(KindPreflight, "the last evaluation did not pass")
	j := &v.out.Gates[len(v.out.Gates)-1]
	j.Since, j.Next = p.Done, p.Next
	return true
}

// preflightPassed reports whether the checks of a preflight were just evaluated. Otherwise it starts that, one preflight at a time per
// channel, and adds a judgement. The gates use its readings.
func (v *view) preflightPassed(op state.PreflightOp) bool {
	p := v.channelState().Preflight
	same := p != nil && p.Release == op.Release && !p.Window
	if same && covers(p, op, v.now) {
		return true
	}
	names := make([]string, len(op.Checks))
	for n, e := range op.Checks {
		names[n] = e.ID
	}
	v.addWait(KindPreflight, "re-evaluating "+strings.Join(names, ", "))
	switch {
	case p != nil && p.Running:
	case same && v.now.Before(p.Next):
		v.due(p.Next)
		v.out.Gates[len(v.out.Gates)-1].Next = p.Next
	case !v.mode.NoNewWork:
		v.d.Preflights = append(v.d.Preflights, op)
	}
	return false
}

// covers reports whether all of these checks were just evaluated, with their current definition, and all passed.
func covers(p *state.Preflight, op state.PreflightOp, now time.Time) bool {
	if p.Running || now.Before(p.Done) || now.Sub(p.Done) > preflightValidity || !p.Next.IsZero() {
		return false
	}
	for _, e := range op.Checks {
		if !slices.Contains(p.Evaluated, e.ID+"@"+e.Definition) {
			return false
		}
	}
	return true
}

// ordinal formats 1st, 2nd, 3rd, 4th, 11th, 21st.
func ordinal(n int) string {
	end := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			end = "st"
		case 2:
			end = "nd"
		case 3:
			end = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, end)
}
