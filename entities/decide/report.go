package decide

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file is about channels that only report (A25): a release is let in there as anywhere, its target is set, and nothing is
// applied, removed, rolled back or run. What is there is read on, so that what somebody else brings there counts.

// reports: the channel only reports.
func (v *view) reports() bool { return v.spec.Report != "" }

// waits: the target is not there, and is not applied.
func (i *instance) waits() bool {
	d := &i.Delivery
	return i.idle && d.Target != nil && !d.Converged && d.Failure == "" && d.Rollback == nil && !d.Apply.Running &&
		(d.Reported || !i.current.Stable)
}

// supersedes: the release may enter though another one has the channel. Nothing of that one is under way, and what
// brings it, if anything does, may bring the next one at once. What is halted makes room for its own aspect alone (B5).
func (p *admission) supersedes(holder *state.Release) bool {
	v := p.view
	return v.halted() && holder.Line() == p.release.Line() || v.reports() && v.remembered().StableSince.IsZero() && slices.ContainsFunc(v.insts, func(i instance) bool { return i.waits() })
}

// supersede ends what has the channel, for the release that enters: what yields to it (B3), or was only to be reported.
func (v *view) supersede(next *state.Release) {
	if holder := v.release(v.turn.Holder); holder != nil && !v.passes(next) {
		v.note(state.Change{Kind: state.ChangeSkip, Release: holder.ID, Cause: supersededBy(next)})
	}
}

// explainReport says what would be done, of the first instances that anything would be done to.
func (v *view) explainReport() {
	said := 0
	for n := range v.insts {
		i := &v.insts[n]
		what := v.would(i)
		if what == "" || v.out.Status == entities.StatusPaused {
			continue
		}
		if said++; said > explained {
			return
		}
		v.say(i, ReasonReport, "%s", what)
	}
}

// toCome tells whether a release is still to bring the target.
func (v *view) toCome(i *instance) bool {
	return slices.ContainsFunc(v.s.Releases, func(r *state.Release) bool {
		p := r.Phases[v.spec.Name]
		return p != nil && !p.Phase.Over() && i.IsAt(r)
	})
}

// calledOff tells whether the target came with a release that a person cancelled here.
func (v *view) calledOff(i *instance) bool {
	r := v.s.Brought(i.Instance)
	return v.pin == nil && r != nil && r.Phases[v.spec.Name].Phase == maestro.Cancelled && !i.Delivery.Converged
}

// would is what would be done to an instance, since when, and why; "" is nothing.
func (v *view) would(i *instance) string {
	d := &i.Delivery
	switch {
	case !i.idle || d.Target == nil:
		return ""
	case !v.toCome(i) && (!v.reports() || v.calledOff(i)):
		return d.Target.FullVersion + " was only reported here, and was cancelled: it is not applied; release it, or another one"
	case !v.reports():
		return d.Target.FullVersion + " was only reported here; it is applied once its gates, asked anew, pass"
	case d.Failure != "":
		return v.wouldGoBack(i)
	case d.Converged:
		return v.wouldRepair(i)
	case d.Apply.Running:
		return ""
	}
	if has, why := i.HasWork(d.Target, i.current); !has {
		return ""
	} else if why != "move to "+d.Target.FullVersion {
		return fmt.Sprintf("report only: Converge would apply %s since %s: %s", d.Target.FullVersion, clock(d.Since, v.now), why)
	}
	return fmt.Sprintf("report only: Converge would apply %s since %s", d.Target.FullVersion, clock(d.Since, v.now))
}

func (v *view) wouldGoBack(i *instance) string {
	if back, _ := v.s.ReturnsTo(i.Instance); back != nil && !v.spec.NoRollback && v.pin == nil && i.Delivery.Rollback == nil {
		return "report only: Converge would go back to " + back.FullVersion
	}
	return ""
}

func (v *view) wouldRepair(i *instance) string {
	if i.current.Known && !i.current.Stable && v.spec.Repairs() {
		return "report only: Converge would repair it to " + i.Delivery.Target.FullVersion
	}
	return ""
}
