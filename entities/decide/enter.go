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
	next := v.release(v.turn.Next)
	if next == nil {
		return
	}
	v.out.Next = next
	if next.Offloaded() {
		v.recall(next)
		return
	}
	if v.merges(next) {
		return
	}
	v.turn.Yields = v.turn.Yields && v.brings(next)
	p := v.pass(next, nil)
	v.out.Gates = p.gates
	switch {
	case v.changed || v.paused || !p.clear:
	case v.mode.Drain:
		v.wait(KindDrain, next.FullVersion+" enters once the workflow has continued as new")
	default:
		v.enter(next)
		v.yields = v.turn.Yields && !slices.ContainsFunc(v.out.Gates, func(j Judgement) bool {
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
		if !next.Concerns(i.ID) {
			continue
		}
		switch why, known := v.unchanged(i, next); {
		case i.paused && why == "":
			p.paused = i.ID.Name + " is paused"
		case !known:
			p.renders = append(p.renders, i)
		case why != "":
			p.unchanged = why
		case v.heldThere(i, next) != "":
			p.paused = v.heldThere(i, next)
		default:
			p.moves = append(p.moves, i)
		}
	}
	return p
}

// brings reports whether a release moves anything in the channel, as far as known. The release in progress yields only to one that does.
func (v *view) brings(next *state.Release) bool {
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
		v.wait(KindRender, "rendering "+next.FullVersion)
	case len(p.moves) > 0:
		v.begin(next, p.moves)
	case p.paused != "":
		v.wait(KindPaused, p.paused+", and no other instance has to move")
	case p.unchanged == "" && v.goesAway(next):
		v.wait(KindPaused, "all target runtimes are drained")
	default:
		v.supersede(next)
		v.change(state.Change{Kind: state.ChangeUnchanged, Release: next.ID, Instances: v.ids(), Cause: p.unchanged})
	}
}

// begin sets the targets of a release in the instances of its first step.
func (v *view) begin(next *state.Release, left []*instance) {
	if v.rolls(next) {
		s := v.selected(next, left)
		if len(s.next) == 0 {
			if !s.At.IsZero() {
				v.due(s.At)
			}
			if s.Wait == selection.Choice && s.asked != nil {
				v.out.Gates = append(v.out.Gates, *s.asked)
				return
			}
			v.wait(KindRollout, "the first step"+v.stepWaits(&s))
			return
		}
		left = s.next
	}
	v.depart(next, left, state.ChangePromote)
}

// heldThere returns which pause holds an instance that the release moves to another runtime; or "".
func (v *view) heldThere(i *instance, r *state.Release) string {
	to, _ := v.s.Bound(i.ID, r.Target(i.ID))
	if to == i.Runtime {
		return ""
	}
	pause, held := v.s.PauseOn(i.ID, to)
	if !held {
		return ""
	}
	return fmt.Sprintf("its new runtime %s is paused by %s%s", to, pause.By, entities.Because(pause.Reason))
}

// arrived reports whether an instance has converged at its target, and the target was neither cancelled nor cut and has not failed.
func (v *view) arrived(i *instance) bool {
	d := &i.Delivery
	return d.Target != nil && d.Converged && d.Cancelled == "" && !d.Cut && d.Failure == ""
}

// unchanged returns why a release has nothing to deliver to an instance, or "". If it is not known, a render is needed first.
func (v *view) unchanged(i *instance, r *state.Release) (why string, known bool) {
	d := &i.Delivery
	there := v.arrived(i)
	same := there && r.Config() && (r.Keeps(v.spec.Name) || v.atVersion(i, r.Version))
	switch {
	case there && i.IsAt(r) && i.current.Stable:
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
	if of, as := v.s.Merged(i.Instance, r); r.Keeps(v.spec.Name) || as != r.FullIn(i.ID) {
		op.Of, op.As = of, as
	}
	v.d.Renders = append(v.d.Renders, op)
}

// merges requests the renders of a release on top of the current version or values before its gates are evaluated: for a config release
// to instances that keep their version, for a release of an aspect, and for a version that takes over the current values.
func (v *view) merges(r *state.Release) bool {
	rendering, busy := v.rendersWays(r), v.isBusy(r)
	for n := range v.insts {
		if i := &v.insts[n]; !busy && v.stale(i, r) {
			v.render(i, r)
			rendering = true
		}
	}
	switch {
	case rendering && r.OfAspect():
		v.wait(KindRender, "rendering "+r.FullVersion+" with the current version")
	case rendering && r.Keeps(v.spec.Name):
		v.wait(KindRender, "rendering the configuration of incarnation "+fmt.Sprint(r.Incarnation)+" with the current version")
	case rendering:
		v.wait(KindRender, "rendering "+r.FullVersion+" with the current values")
	case r.OfAspect() && !slices.ContainsFunc(v.insts, func(i instance) bool { return i.Delivery.Target != nil }):
		v.wait(KindRender, "no version is deployed here yet that "+r.FullVersion+" could change")
		return true
	}
	return rendering
}

// isBusy reports whether the release in progress must end before anything is rendered on top of it. That is not so if release r passes or
// replaces it.
func (v *view) isBusy(r *state.Release) bool {
	return v.turn.Holder != maestro.None && !v.turn.Yields && !r.Keeping[v.spec.Name] && !v.passes(r) && !v.halted()
}

// stale reports whether the payload of a release for an instance must be rendered again on top of the current version or values.
func (v *view) stale(i *instance, r *state.Release) bool {
	if _, concerned := r.Payloads[i.ID]; r.Return || !concerned {
		return false
	}
	if r.Keeps(v.spec.Name) {
		return i.Delivery.Target != nil && !i.IsAt(r) && r.Present[i.ID].FullVersion != i.Delivery.Target.FullVersion
	}
	_, as := v.s.Merged(i.Instance, r)
	return as != r.FullIn(i.ID)
}

// recall loads the payloads of a release that waited for long from the store. Its gates may need them.
func (v *view) recall(r *state.Release) {
	if op := (state.RecallOp{Release: r.ID}); !slices.Contains(v.d.Recalls, op) {
		v.d.Recalls = append(v.d.Recalls, op)
	}
	v.wait(KindRender, "loading the payloads of "+r.FullVersion+" from the store")
}

// follows reports whether an instance is where a release wants it: at its target, or not changed by it.
func (v *view) follows(i *instance, r *state.Release) bool {
	if i.broughtBy(r) {
		return true
	}
	why, known := v.unchanged(i, r)
	return known && why != ""
}

// broughtBy reports whether the instance is at the release, and was not brought there by a cancelled release of the same version.
func (i *instance) broughtBy(r *state.Release) bool { return i.IsAt(r) && i.Delivery.Cancelled == "" }

// atVersion reports whether the instance runs that version, in any configuration. Otherwise a config release brings the version itself,
// because an earlier release may have failed to bring it.
func (v *view) atVersion(i *instance, version string) bool {
	return slices.ContainsFunc(v.s.Releases, func(r *state.Release) bool {
		k := r.Kept[i.ID]
		return r.FullVersion == i.Delivery.Target.FullVersion && r.Version == version || k.FullVersion == i.Delivery.Target.FullVersion && k.Version == version
	})
}

// depart sets the targets when an apply can start at once: with the answers of the runtimes that are queried before, with a lease if
// applies are bounded, and after one last evaluation of all external conditions.
func (v *view) depart(next *state.Release, insts []*instance, kind state.ChangeKind) {
	promote := state.Change{Kind: kind, Release: next.ID, Cause: promotion(next)}
	for _, i := range insts {
		promote.Moves = append(promote.Moves, state.Move{Instance: i.ID, Target: next.Target(i.ID)})
	}
	enters := kind == state.ChangePromote
	if enters && v.turn.Yields && v.endsApplies(next) || !v.answered(next, insts, promote.Moves) {
		return
	}
	if v.preflightPaused(next) || !v.reports() && !v.takeLease(insts[0], promote.Moves[0].Target) || !v.preflight(next) {
		return
	}
	if enters {
		v.supersede(next)
		v.setAside(next)
	}
	v.change(promote)
}

// endsApplies requests the end of the applies of the release that yields, once all external conditions let the next release pass, and
// waits for them. They end within their timeout at the latest (B3).
func (v *view) endsApplies(next *state.Release) bool {
	running := slices.IndexFunc(v.insts, func(i instance) bool { return i.Delivery.Apply.Running })
	if running < 0 {
		return false
	}
	if v.insts[running].Delivery.Apply.Ending.IsZero() && (v.preflightPaused(next) || !v.preflight(next)) {
		return true
	}
	for n := range v.insts {
		if a := &v.insts[n].Delivery.Apply; a.Running && a.Ending.IsZero() && a.Of != "" { // and it is not a removal
			v.d.Ends = append(v.d.Ends, state.EndOp{Instance: v.insts[n].ID})
		}
	}
	v.wait(KindInProgress, v.of(&v.insts[running], "the apply of "+v.release(v.turn.Holder).FullVersion+" is being ended"))
	return true
}

// follow sets the target of the release in progress in instances that did not get it with the others: the release goes in steps, a pause
// held the instance, or it was added later.
func (v *view) follow() {
	r := v.release(v.turn.Holder)
	if r == nil || v.changed {
		return
	}
	if v.inSteps(r) {
		v.step(r)
		return
	}
	if v.pin != nil || v.yields || v.mode.Drain {
		return
	}
	if left := v.behind(r); len(left) > 0 {
		c := state.Change{Kind: state.ChangeTarget, Release: r.ID, Cause: promotion(r)}
		for _, i := range left {
			c.Moves = append(c.Moves, state.Move{Instance: i.ID, Target: r.Target(i.ID)})
		}
		v.change(c)
	}
}

// behind are the instances that are not at the release in progress and could move to it now. It requests the renders for them.
func (v *view) behind(r *state.Release) []*instance {
	left, renders := v.toMove(r)
	for _, i := range renders {
		v.render(i, r)
	}
	return left
}

// toMove are the instances that are not at the release in progress and could move to it now, and those that need a render before that is
// known.
func (v *view) toMove(r *state.Release) (left, renders []*instance) {
	for n := range v.insts {
		i := &v.insts[n]
		if v.leaves(i, r) || i.broughtBy(r) && !i.Delivery.Reported && !v.unmoved(r, i) {
			continue
		}
		switch why, known := v.unchanged(i, r); {
		case (!known || v.stale(i, r)) && !v.mode.Drain:
			renders = append(renders, i)
		case known && why == "" && !v.stale(i, r) && v.heldThere(i, r) == "":
			left = append(left, i)
		}
	}
	return left, renders
}

// answered reports whether all exit-code runtimes were queried about the version before it becomes the target (C7), and adds their
// answers. An answer is valid for one poll interval, because a pause may have intervened. In a fleet it is valid longer by the timeout of
// one query, and while other answers are outstanding.
func (v *view) answered(next *state.Release, insts []*instance, moves []state.Move) bool {
	if next.Bypassed(v.spec.Name, string(KindAsked)) != nil {
		return true
	}
	others := false
	for n, i := range insts {
		others = others || v.fleet() && v.awaits(i, moves[n].Target)
	}
	all, failed := true, v.anyFailed(insts, moves)
	for n, i := range insts {
		if v.asked(i, moves[n].Target) {
			if a := i.Observed.Asked; failed && (a == nil || !a.Target.Same(moves[n].Target)) {
				all = false // it is queried again together with the one that returned an error
				continue
			}
			all = v.answer(i, &moves[n], others) && all
		}
	}
	return all
}

// anyFailed reports whether a query about a target returned an error and is to be repeated later.
func (v *view) anyFailed(insts []*instance, moves []state.Move) bool {
	for n, i := range insts {
		a := i.Observed.Asked
		if a != nil && !a.Running && a.Reading.Err != nil && a.Target.Same(moves[n].Target) && v.now.Before(v.askedAgain(i)) {
			return true
		}
	}
	return false
}

// awaits reports whether an answer about the target is outstanding, or is to be requested again later.
func (v *view) awaits(i *instance, t entities.Target) bool {
	a := i.Observed.Asked
	return v.asked(i, t) && a != nil && a.Target.Same(t) &&
		(a.Running || a.Reading.Err != nil && v.now.Before(v.askedAgain(i)))
}

// asked reports whether the runtime of a target is queried about it first.
func (v *view) asked(i *instance, t entities.Target) bool {
	_, runtime := v.s.Bound(i.ID, t)
	return runtime.Mode == entities.FetchExitCode
}

func (v *view) askedAgain(i *instance) time.Time {
	_, runtime := v.s.Bound(i.ID, i.Observed.Asked.Target)
	return i.Observed.Asked.Reading.At.Add(runtime.Timing.RetryBackoff)
}

// answer adds the answer of the runtime of an instance, or queries it. others: other answers are outstanding.
func (v *view) answer(i *instance, m *state.Move, others bool) bool {
	a := i.Observed.Asked
	asked := a != nil && a.Target.Same(m.Target)
	_, runtime := v.s.Bound(i.ID, m.Target)
	limit := runtime.Timing.PollInterval
	if v.fleet() {
		limit += runtime.Timing.FetchTimeout
	}
	switch {
	case !asked, a.Running, a.Reading.Err == nil && !others && v.now.Sub(a.Reading.At) > limit:
		if !asked || !a.Running {
			v.d.Asks = append(v.d.Asks, state.AskOp{Instance: i.ID, Target: m.Target})
		}
		if v.mayExplain() {
			v.wait(KindAsked, v.of(i, "querying the runtime about "+m.Target.FullVersion))
		}
	case a.Reading.Err != nil:
		again := v.askedAgain(i)
		if !v.now.Before(again) {
			v.d.Asks = append(v.d.Asks, state.AskOp{Instance: i.ID, Target: m.Target})
		} else {
			v.due(again)
		}
		if !v.mayExplain() {
			break
		}
		v.out.Gates = append(v.out.Gates, Judgement{
			Kind: KindAsked, ID: string(KindAsked), Verdict: entities.Error,
			Reason: v.of(i, a.Reading.Err.Message), Since: a.Reading.At, Next: again,
		})
	default:
		m.Reading = &a.Reading
		return true
	}
	return false
}

func promotion(r *state.Release) string { return "release " + r.FullVersion + " by " + r.By }

// ids of all instances of the channel.
func (v *view) ids() []entities.InstanceID {
	out := make([]entities.InstanceID, len(v.insts))
	for n := range v.insts {
		out[n] = v.insts[n].ID
	}
	return out
}

// wait adds a judgement with the reason why the release waits.
func (v *view) wait(kind Kind, reason string) {
	v.out.Gates = append(v.out.Gates, Judgement{Kind: kind, ID: string(kind), Verdict: entities.Wait, Reason: reason})
}

// refused reports whether a check, an extension or a person refused the release and no bypass exists. It stays pending, but does not
// block a newer release (B10).
func refused(r *state.Release, c *entities.ChannelSpec) bool {
	p := r.Phases[c.Name]
	if p == nil || p.Phase != maestro.Pending {
		return false
	}
	return refusedByCheck(r, p, c) || refusedByExtension(r, c) || r.RejectedIn(c)
}
