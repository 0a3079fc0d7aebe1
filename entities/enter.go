package entities

import "fmt"

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
		v.depart(next, Change{Kind: ChangePromote, Release: next.ID, Target: &target, Cause: promotion(next)})
	}
}

// depart sets the target once an apply can start at once: with a lease, where applies are bounded,
// and after one last look at everything outside.
func (v *view) depart(next *Release, promote Change) {
	if v.preflightPaused(next) || !v.takeLease(*promote.Target) || !v.preflight(next) {
		return
	}
	v.change(promote)
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
	promote := Change{Kind: ChangePromote, Release: next.ID, Target: &target, Cause: promotion(next)}
	asked := v.inst.Asked
	old := asked != nil && !asked.Running && asked.Reading.Err == nil &&
		v.now.Sub(asked.Reading.At) > v.runtime.Timing.PollInterval
	switch {
	case next.bypassed(v.spec.Name, "asked") != nil:
		v.depart(next, promote)
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
		promote.Reading = &asked.Reading
		v.depart(next, promote)
	}
}

func promotion(r *Release) string { return fmt.Sprintf("release %s by %s", r.FullVersion, r.By) }
