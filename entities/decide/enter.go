package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/selection"
	"github.com/converge-engine/converge/entities/state"
)

// This file makes the delivery decision: which targets a release sets when it may enter.

// admitNext decides whether the release next in line may enter now. A target is set only if an apply can start. Everything that holds it
// is a judgement that `explain` shows.
func (v *view) admitNext() {
	next := v.release(v.slot.Next)
	if next == nil {
		return
	}
	v.out.Next = next
	if next.Offloaded() {
		v.recall(next)
		return
	}
	if v.renderMerged(next) {
		return
	}
	v.slot.Yields = v.slot.Yields && v.hasMoves(next)
	p := v.evaluateGates(next, nil)
	v.out.Gates = p.gates
	switch {
	case v.changed || v.paused || !p.clear:
	case v.mode.NoNewWork:
		v.addWait(KindDrain, next.FullVersion+" enters once the workflow has continued as new")
	default:
		v.enter(next)
		v.yielding = v.slot.Yields && !slices.ContainsFunc(v.out.Gates, func(j Judgement) bool {
			return j.Verdict != entities.Pass && (j.Verdict != entities.Wait || !j.Next.IsZero())
		})
	}
}

// plan is the effect of a release in the channel.
type plan struct {
	moves, renders    []*instance // instances that it moves, and instances that need a render before that is known
	unchanged, paused string      // why an instance does not change, and what holds one
}

func (v *view) plan(next *state.Release) (p plan) {
	for n := range v.insts {
		i := &v.insts[n]
		if !next.HasPayload(i.ID) {
			continue
		}
		switch why, known := v.whyUnchanged(i, next); {
		case i.paused && why == "":
			p.paused = i.ID.Name + " is paused"
		case !known:
			p.renders = append(p.renders, i)
		case why != "":
			p.unchanged = why
		case v.destinationPause(i, next) != "":
			p.paused = v.destinationPause(i, next)
		default:
			p.moves = append(p.moves, i)
		}
	}
	return p
}

// hasMoves reports whether a release moves anything in the channel, as far as known. The release in progress yields only to one that does.
func (v *view) hasMoves(next *state.Release) bool {
	p := v.plan(next)
	return len(p.moves)+len(p.renders) > 0
}

// enter sets the targets of a release, after it ensured that there is something to deliver.
func (v *view) enter(next *state.Release) {
	p := v.plan(next)
	for _, i := range p.renders {
		v.render(i, next)
	}
	switch {
	case len(p.renders) > 0:
		v.addWait(KindRender, "rendering "+next.FullVersion)
	case len(p.moves) > 0:
		v.enterFirstStep(next, p.moves)
	case p.paused != "":
		v.addWait(KindPaused, p.paused+", and no other instance has to move")
	case p.unchanged == "" && v.concernsDrained(next):
		v.addWait(KindPaused, "all target runtimes are drained")
	default:
		v.endHolder(next)
		v.change(state.Change{Kind: state.ChangeUnchanged, Release: next.ID, Instances: v.ids(), Cause: p.unchanged})
	}
}

// enterFirstStep sets the targets of a release in the instances of its first step.
func (v *view) enterFirstStep(next *state.Release, moves []*instance) {
	if v.isRollout(next) {
		s := v.selectStep(next, moves)
		if len(s.next) == 0 {
			if !s.At.IsZero() {
				v.due(s.At)
			}
			if s.Wait == selection.NoneSelected && s.commandGate != nil {
				v.out.Gates = append(v.out.Gates, *s.commandGate)
				return
			}
			v.addWait(KindRollout, "the first step"+v.stepWaitText(&s))
			return
		}
		moves = s.next
	}
	v.setTargets(next, moves, state.ChangePromote)
}

// destinationPause returns which pause holds an instance that the release moves to another runtime; or "".
func (v *view) destinationPause(i *instance, r *state.Release) string {
	to, _ := v.s.TargetRuntime(i.ID, r.Target(i.ID))
	if to == i.Runtime {
		return ""
	}
	pause, held := v.s.PauseOn(i.ID, to)
	if !held {
		return ""
	}
	return fmt.Sprintf("its new runtime %s is paused by %s%s", to, pause.By, entities.Because(pause.Reason))
}

// atTarget reports whether an instance has converged at its target, and the target was neither cancelled nor cut and has not failed.
func (v *view) atTarget(i *instance) bool {
	d := &i.Delivery
	return d.Target != nil && d.Converged && d.Cancelled == "" && !d.ChannelRemoved && d.Failure == ""
}

// whyUnchanged returns why a release has nothing to deliver to an instance, or "". If it is not known, a render is needed first.
func (v *view) whyUnchanged(i *instance, r *state.Release) (why string, known bool) {
	d := &i.Delivery
	atTarget := v.atTarget(i)
	same := atTarget && r.IsConfig() && (r.KeepsVersion(v.spec.Name) || v.atVersion(i, r.Version))
	switch {
	case atTarget && i.IsAt(r) && i.current.Stable:
		return "already deployed", true
	case same && r.Present[i.ID].FullVersion != d.Target.FullVersion:
		return "", false
	case same && r.Present[i.ID].Payload == d.Target.Payload:
		return "the change does not touch this channel", true
	}
	return "", true
}

// render requests the render of a config release with the current version, or of a release merged with the current values.
func (v *view) render(i *instance, r *state.Release) {
	op := state.RenderOp{Instance: i.ID, Release: r.ID}
	if i.Delivery.Target != nil {
		op.Present = i.Delivery.Target.FullVersion
	}
	if of, as := v.s.MergedVersion(i.Instance, r); r.KeepsVersion(v.spec.Name) || as != r.FullVersionFor(i.ID) {
		op.Version, op.FullVersion = of, as
	}
	v.d.Renders = append(v.d.Renders, op)
}

// renderMerged requests the renders of a release on top of the current version or values before its gates are evaluated: for a config
// release to instances that keep their version, for a release of an aspect, and for a version that takes over the current values.
func (v *view) renderMerged(r *state.Release) bool {
	rendering, mustWait := v.renderRollbackTargets(r), v.isBusy(r)
	for n := range v.insts {
		if i := &v.insts[n]; !mustWait && v.stale(i, r) {
			v.render(i, r)
			rendering = true
		}
	}
	switch {
	case rendering && r.IsAspect():
		v.addWait(KindRender, "rendering "+r.FullVersion+" with the current version")
	case rendering && r.KeepsVersion(v.spec.Name):
		v.addWait(KindRender, "rendering the configuration of incarnation "+fmt.Sprint(r.Incarnation)+" with the current version")
	case rendering:
		v.addWait(KindRender, "rendering "+r.FullVersion+" with the current values")
	case r.IsAspect() && !slices.ContainsFunc(v.insts, func(i instance) bool { return i.Delivery.Target != nil }):
		v.addWait(KindRender, "no version is deployed here yet that "+r.FullVersion+" could change")
		return true
	}
	return rendering
}

// isBusy reports whether the release in progress must end before anything is rendered on top of it. That is not so if release r passes or
// replaces it.
func (v *view) isBusy(r *state.Release) bool {
	return v.slot.Holder != maestro.None && !v.slot.Yields && !r.KeepsVersionIn[v.spec.Name] && !v.isPassing(r) && !v.isHalted()
}

// stale reports whether the payload of a release for an instance must be rendered again on top of the current version or values.
func (v *view) stale(i *instance, r *state.Release) bool {
	if _, concerned := r.Payloads[i.ID]; r.Return || !concerned {
		return false
	}
	if r.KeepsVersion(v.spec.Name) {
		return i.Delivery.Target != nil && !i.IsAt(r) && r.Present[i.ID].FullVersion != i.Delivery.Target.FullVersion
	}
	_, as := v.s.MergedVersion(i.Instance, r)
	return as != r.FullVersionFor(i.ID)
}

// recall loads the payloads of a release that waited for long from the store. Its gates may need them.
func (v *view) recall(r *state.Release) {
	if op := (state.RecallOp{Release: r.ID}); !slices.Contains(v.d.Recalls, op) {
		v.d.Recalls = append(v.d.Recalls, op)
	}
	v.addWait(KindRender, "loading the payloads of "+r.FullVersion+" from the store")
}

// isSatisfied reports whether an instance is where a release wants it: at its target, or not changed by it.
func (v *view) isSatisfied(i *instance, r *state.Release) bool {
	if i.deliveredBy(r) {
		return true
	}
	why, known := v.whyUnchanged(i, r)
	return known && why != ""
}

// deliveredBy reports whether the instance is at the release, and was not brought there by a cancelled release of the same version.
func (i *instance) deliveredBy(r *state.Release) bool { return i.IsAt(r) && i.Delivery.Cancelled == "" }

// atVersion reports whether the instance runs that version, in any configuration. Otherwise a config release brings the version itself,
// because an earlier release may have failed to bring it.
func (v *view) atVersion(i *instance, version string) bool {
	return slices.ContainsFunc(v.s.Releases, func(r *state.Release) bool {
		k := r.MergedTargets[i.ID]
		return r.FullVersion == i.Delivery.Target.FullVersion && r.Version == version || k.FullVersion == i.Delivery.Target.FullVersion && k.Version == version
	})
}

// setTargets sets the targets when an apply can start at once: with the answers of the runtimes that are queried before, with a lease if
// applies are bounded, and after one last evaluation of all external conditions.
func (v *view) setTargets(next *state.Release, insts []*instance, kind state.ChangeKind) {
	promote := state.Change{Kind: kind, Release: next.ID, Cause: promotionCause(next)}
	for _, i := range insts {
		promote.Moves = append(promote.Moves, state.Move{Instance: i.ID, Target: next.Target(i.ID)})
	}
	enters := kind == state.ChangePromote
	if v.mode.UnreadRules && (!next.Return || v.s.Spec.GatedRollback) {
		v.addWait(KindPreflight, "a newer configuration is not read yet")
		return
	}
	replaces := v.slot.Yields || slices.ContainsFunc(v.insts, func(i instance) bool { return i.isPuttingBack() })
	if enters && replaces && v.endApplies(next) || !v.queriesAnswered(next, insts, promote.Moves) {
		return
	}
	if v.preflightBacksOff(next) || !v.isReportOnly() && !v.acquireLease(insts[0], promote.Moves[0].Target) || !v.preflight(next) {
		return
	}
	if enters {
		v.endHolder(next)
		v.setAside(next)
	}
	v.change(promote)
}

// endApplies requests the end of the applies of the release that yields, or that maintain a failed target, once all external conditions let
// the next release pass, and waits for them. They end within their timeout at the latest (B3).
func (v *view) endApplies(next *state.Release) bool {
	running := slices.IndexFunc(v.insts, func(i instance) bool { return i.Delivery.Apply.Running })
	if running < 0 {
		return false
	}
	if v.insts[running].Delivery.Apply.EndRequested.IsZero() && (v.preflightBacksOff(next) || !v.preflight(next)) {
		return true
	}
	for n := range v.insts {
		if a := &v.insts[n].Delivery.Apply; a.Running && a.EndRequested.IsZero() && a.RunningVersion != "" { // and it is not a removal
			v.d.Ends = append(v.d.Ends, state.EndOp{Instance: v.insts[n].ID})
		}
	}
	version := v.insts[running].Delivery.Apply.RunningVersion
	if holder := v.release(v.slot.Holder); holder != nil {
		version = holder.FullVersion
	}
	v.addWait(KindInProgress, v.prefixInstance(&v.insts[running], "the apply of "+version+" is being ended"))
	return true
}

// targetRemaining sets the target of the release in progress in instances that did not get it with the others: the release goes in steps, a
// pause held the instance, or it was added later.
func (v *view) targetRemaining() {
	r := v.release(v.slot.Holder)
	if r == nil || v.changed {
		return
	}
	if v.inSteps(r) {
		v.startStep(r)
		return
	}
	if v.pin != nil || v.yielding || v.mode.NoNewWork || v.mode.UnreadRules {
		return
	}
	if remaining := v.remainingInstances(r); len(remaining) > 0 {
		c := state.Change{Kind: state.ChangeTarget, Release: r.ID, Cause: promotionCause(r)}
		for _, i := range remaining {
			c.Moves = append(c.Moves, state.Move{Instance: i.ID, Target: r.Target(i.ID)})
		}
		v.change(c)
	}
}

// remainingInstances are the instances that are not at the release in progress and could move to it now. It requests the renders for them.
func (v *view) remainingInstances(r *state.Release) []*instance {
	remaining, renders := v.movableInstances(r)
	for _, i := range renders {
		v.render(i, r)
	}
	return remaining
}

// movableInstances are the instances that are not at the release in progress and could move to it now, and those that need a render before
// that is known.
func (v *view) movableInstances(r *state.Release) (movable, renders []*instance) {
	for n := range v.insts {
		i := &v.insts[n]
		if v.skipsInstance(i, r) || i.deliveredBy(r) && !i.Delivery.ReportedOnly && !v.needsReapply(r, i) {
			continue
		}
		switch why, known := v.whyUnchanged(i, r); {
		case (!known || v.stale(i, r)) && !v.mode.NoNewWork:
			renders = append(renders, i)
		case known && why == "" && !v.stale(i, r) && v.destinationPause(i, r) == "":
			movable = append(movable, i)
		}
	}
	return movable, renders
}

// queriesAnswered reports whether all exit-code runtimes were queried about the version before it becomes the target (C7), and adds their
// answers. An answer is valid for one poll interval, because a pause may have intervened. In a fleet it is valid longer by the timeout of
// one query, and while other answers are outstanding.
func (v *view) queriesAnswered(next *state.Release, insts []*instance, moves []state.Move) bool {
	if next.BypassOf(v.spec.Name, string(KindQuery)) != nil {
		return true
	}
	outstanding := false
	for n, i := range insts {
		outstanding = outstanding || v.fleet() && v.awaitsAnswer(i, moves[n].Target)
	}
	all, failed := true, v.anyQueryFailed(insts, moves)
	for n, i := range insts {
		if v.isQueried(i, moves[n].Target) {
			if a := i.Observed.Query; failed && (a == nil || !a.Target.Same(moves[n].Target)) {
				all = false // it is queried again together with the one that returned an error
				continue
			}
			all = v.useAnswer(i, &moves[n], outstanding) && all
		}
	}
	return all
}

// anyQueryFailed reports whether a query about a target returned an error and is to be repeated later.
func (v *view) anyQueryFailed(insts []*instance, moves []state.Move) bool {
	for n, i := range insts {
		a := i.Observed.Query
		if a != nil && !a.Running && a.Reading.Err != nil && a.Target.Same(moves[n].Target) && v.now.Before(v.queryRetryAt(i)) {
			return true
		}
	}
	return false
}

// awaitsAnswer reports whether an answer about the target is outstanding, or is to be requested again later.
func (v *view) awaitsAnswer(i *instance, t entities.Target) bool {
	a := i.Observed.Query
	return v.isQueried(i, t) && a != nil && a.Target.Same(t) &&
		(a.Running || a.Reading.Err != nil && v.now.Before(v.queryRetryAt(i)))
}

// isQueried reports whether the runtime of a target is queried about it first.
func (v *view) isQueried(i *instance, t entities.Target) bool {
	_, runtime := v.s.TargetRuntime(i.ID, t)
	return runtime.Mode == entities.FetchExitCode
}

func (v *view) queryRetryAt(i *instance) time.Time {
	_, runtime := v.s.TargetRuntime(i.ID, i.Observed.Query.Target)
	return i.Observed.Query.Reading.At.Add(runtime.Timing.RetryBackoff)
}

// useAnswer adds the answer of the runtime of an instance, or queries it. outstanding: other answers are outstanding.
func (v *view) useAnswer(i *instance, m *state.Move, outstanding bool) bool {
	a := i.Observed.Query
	sameTarget := a != nil && a.Target.Same(m.Target)
	_, runtime := v.s.TargetRuntime(i.ID, m.Target)
	limit := runtime.Timing.PollInterval
	if v.fleet() {
		limit += runtime.Timing.FetchTimeout
	}
	switch {
	case !sameTarget, a.Running, a.Reading.Err == nil && !outstanding && v.now.Sub(a.Reading.At) > limit:
		if !sameTarget || !a.Running {
			v.d.Queries = append(v.d.Queries, state.QueryOp{Instance: i.ID, Target: m.Target})
		}
		if v.mayExplain() {
			v.addWait(KindQuery, v.prefixInstance(i, "querying the runtime about "+m.Target.FullVersion))
		}
	case a.Reading.Err != nil:
		retryAt := v.queryRetryAt(i)
		if !v.now.Before(retryAt) {
			v.d.Queries = append(v.d.Queries, state.QueryOp{Instance: i.ID, Target: m.Target})
		} else {
			v.due(retryAt)
		}
		if !v.mayExplain() {
			break
		}
		v.out.Gates = append(v.out.Gates, Judgement{
			Kind: KindQuery, ID: string(KindQuery), Verdict: entities.Error,
			Reason: v.prefixInstance(i, a.Reading.Err.Message), Since: a.Reading.At, Next: retryAt,
		})
	default:
		m.Reading = &a.Reading
		return true
	}
	return false
}

func promotionCause(r *state.Release) string { return "release " + r.FullVersion + " by " + r.By }

// ids of all instances of the channel.
func (v *view) ids() []entities.InstanceID {
	out := make([]entities.InstanceID, len(v.insts))
	for n := range v.insts {
		out[n] = v.insts[n].ID
	}
	return out
}

// addWait adds a judgement with the reason why the release waits.
func (v *view) addWait(kind Kind, reason string) {
	v.out.Gates = append(v.out.Gates, Judgement{Kind: kind, ID: string(kind), Verdict: entities.Wait, Reason: reason})
}

// isRefused reports whether a check, an extension or a person refused the release and no bypass exists. It stays pending, but does not
// block a newer release (B10).
func isRefused(r *state.Release, c *entities.ChannelSpec) bool {
	p := r.Phases[c.Name]
	if p == nil || p.Phase != maestro.Pending {
		return false
	}
	return refusedByCheck(r, p, c) || refusedByExtension(r, c) || r.RejectedIn(c)
}
