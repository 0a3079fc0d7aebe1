package entities

import (
	"fmt"

	"github.com/converge-engine/converge/entities/maestro"
)

// admitNext answers: may the release next in line enter now? A target is set only when an apply
// can start (DESIGN section 4); everything that holds it is a judgement that `explain` shows.
func (v *view) admitNext() {
	next := v.release(v.turn.Next)
	if next == nil {
		return
	}
	v.out.Next = next
	v.out.Gates = v.gates(next)
	switch {
	case v.changed || v.facts.Paused || !allPass(v.out.Gates):
	case v.mode.Drain:
		v.wait("drain", next.FullVersion+" enters once the workflow has continued as new")
	default:
		v.enter(next)
	}
}

// gates judges everything that holds the next release, what is about the channel first.
func (v *view) gates(next *Release) []Judgement {
	var gates []Judgement
	if holder := v.release(v.turn.Holder); holder != nil {
		gates = append(gates, Judgement{
			ID: "in-progress", Verdict: Wait,
			Reason: holder.FullVersion + " is in progress here", Since: holder.Phases[v.spec.Name].Since,
		})
	} else if v.inst.Progress.Running {
		gates = append(gates, Judgement{
			ID: "in-progress", Verdict: Wait,
			Reason: "an apply is still running", Since: v.inst.Progress.Started,
		})
	}
	if j, holds := v.readingGate(); holds {
		gates = append(gates, j)
	}
	stuck := v.turn.Stuck
	for _, c := range v.spec.Conditions {
		j := judge(c, next)
		if j.Verdict == Fail {
			stuck = ""
			j.Unblock = fmt.Sprintf("release a fix, or: converge retry %s/%s %s", v.s.Application, v.s.Service, next.FullVersion)
		}
		gates = append(gates, j)
	}
	if stuck != "" { // the failure lies further up than the channels this one names
		gates = append(gates, Judgement{
			ID: "upstream", Verdict: Fail, Reason: next.FullVersion + " " + stuck,
			Unblock: fmt.Sprintf("release a fix, or: converge retry %s/%s %s", v.s.Application, v.s.Service, next.FullVersion),
		})
	}
	return gates
}

// readingGate: an unknown state is never "no difference", so it holds ordinary promotion (D17).
func (v *view) readingGate() (Judgement, bool) {
	if !v.unknown() {
		return Judgement{}, false
	}
	if e := v.inst.Reading.Err; e != nil {
		return Judgement{ID: "reading", Verdict: Error, Reason: e.Message, Since: v.inst.ErrSince}, true
	}
	return Judgement{ID: "reading", Verdict: Wait, Reason: "no reading yet"}, true
}

func allPass(gates []Judgement) bool {
	for _, j := range gates {
		if j.Verdict != Pass {
			return false
		}
	}
	return true
}

// enter makes the delivery decision, once it is sure that there is something to deliver.
func (v *view) enter(next *Release) {
	target := next.Target(v.spec.Name)
	there := v.inst.Target != nil && v.inst.Converged
	same := there && next.Config() && v.atVersion(next.Version)
	switch {
	case there && v.inst.Target.Same(target) && v.out.Current.Stable:
		v.change(Change{Kind: ChangeUnchanged, Release: next.ID, Cause: "already there"})
	case same && v.unrendered(next):
		v.d.Renders = append(v.d.Renders, RenderOp{Channel: v.spec.Name, Release: next.ID, Present: v.inst.Target.FullVersion})
		v.wait("render", "rendering "+next.FullVersion)
	case same && next.Present[v.spec.Name].Payload == v.inst.Target.Payload:
		v.change(Change{Kind: ChangeUnchanged, Release: next.ID, Cause: "the change does not touch this channel"})
	case v.runtime.Mode == FetchExitCode:
		v.enterAsked(next, target)
	default:
		v.change(Change{Kind: ChangePromote, Release: next.ID, Target: &target, Cause: promotion(next)})
	}
}

// atVersion: what is here is of that version, under whichever configuration. Where it is not, a
// config release brings the version itself, which an earlier release may have failed to bring.
func (v *view) atVersion(version string) bool {
	for _, r := range v.s.Releases {
		if r.FullVersion == v.inst.Target.FullVersion && r.Version == version {
			return true
		}
	}
	return false
}

// unrendered: it is not known what the config release renders to under what is here now.
func (v *view) unrendered(next *Release) bool {
	return next.Present[v.spec.Name].FullVersion != v.inst.Target.FullVersion
}

// enterAsked asks an exit-code runtime about the version before it becomes the target (C7). An
// answer is good for one poll interval: a pause may have come between.
func (v *view) enterAsked(next *Release, target Target) {
	asked := v.inst.Asked
	old := asked != nil && !asked.Running && asked.Reading.Err == nil &&
		v.now.Sub(asked.Reading.At) > v.runtime.Timing.PollInterval
	switch {
	case asked == nil || !asked.Target.Same(target) || old:
		v.d.Asks = append(v.d.Asks, AskOp{Channel: v.spec.Name, Target: target})
		v.wait("asked", "asking the runtime about "+target.FullVersion)
	case asked.Running:
		v.wait("asked", "asking the runtime about "+target.FullVersion)
	case asked.Reading.Err != nil:
		again := asked.Reading.At.Add(v.runtime.Timing.RetryBackoff)
		if !v.now.Before(again) {
			v.d.Asks = append(v.d.Asks, AskOp{Channel: v.spec.Name, Target: target})
		} else {
			v.due(again)
		}
		v.out.Gates = append(v.out.Gates, Judgement{
			ID: "asked", Verdict: Error,
			Reason: asked.Reading.Err.Message, Since: asked.Reading.At, Next: again,
		})
	default:
		v.change(Change{Kind: ChangePromote, Release: next.ID, Target: &target, Reading: &asked.Reading, Cause: promotion(next)})
	}
}

func (v *view) wait(id, reason string) {
	v.out.Gates = append(v.out.Gates, Judgement{ID: id, Verdict: Wait, Reason: reason})
}

func promotion(r *Release) string { return fmt.Sprintf("release %s by %s", r.FullVersion, r.By) }

// act starts an apply when the instance needs one and nothing holds it. Promotion gates do not
// hold the retries of a started target; a pause does.
func (v *view) act() {
	i := v.inst
	if v.changed || v.facts.Paused || v.mode.Drain || i.Target == nil || i.Progress.Running || i.Failure != "" {
		return
	}
	op := workOn(ServiceInstance{i}, i.Target, v.out.Current)
	if op == nil || v.tooEarly() {
		return
	}
	timeout := v.runtime.Timing.ApplyTimeout
	if !i.Converged && !i.Progress.First.IsZero() {
		timeout = min(timeout, i.Progress.First.Add(v.spec.ProgressDeadline).Sub(v.now))
	} else if !i.Converged {
		timeout = min(timeout, v.spec.ProgressDeadline)
	}
	if timeout <= 0 {
		return // the deadline has passed; it only waits for a last look
	}
	v.d.Applies = append(v.d.Applies, ApplyOp{
		Channel: v.spec.Name, Target: op.Target,
		Attempt: i.Progress.Attempts + 1, Timeout: timeout, Cause: op.Cause,
	})
}

// tooEarly holds an apply back: for the grace period after a successful one that is not visible
// yet, for the backoff after a failed one, and, for repairs, where drift is only observed.
func (v *view) tooEarly() bool {
	a := v.inst.Progress
	if v.inst.Converged && (v.spec.Drift == DriftObserve || !v.inst.Fresh) {
		return true
	}
	until := a.Next
	if !v.inst.Converged && a.OK {
		until = a.Ended.Add(v.runtime.Timing.GracePeriod)
	}
	if v.now.Before(until) {
		v.due(until)
		return true
	}
	return false
}

// Phase is re-exported for callers that only know entities.
type Phase = maestro.Phase
