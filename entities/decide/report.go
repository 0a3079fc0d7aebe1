package decide

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file is about report-only channels (A25): a release enters there as usual and its target is set, but nothing is applied, removed,
// rolled back or run. The channel is still observed, so a version that another tool brings there counts.

// isReportOnly reports whether the channel is report-only.
func (v *view) isReportOnly() bool { return v.spec.Report != "" }

// onlyReported reports whether the target has not arrived and is not applied.
func (i *instance) onlyReported() bool {
	d := &i.Delivery
	return i.notApplied && d.Target != nil && !d.Converged && d.Failure == "" && d.Rollback == nil && !d.Apply.Running &&
		(d.ReportedOnly || !i.current.Stable)
}

// mayReplace reports whether the release may enter although another one has the channel. No work of that one is in progress; in a
// report-only channel another tool brings it, if any, and may bring the next one at once. A halted release yields only to its own aspect
// (B5).
func (p *admission) mayReplace(holder *state.Release) bool {
	v := p.view
	return v.isHalted() && holder.Track() == p.release.Track() || v.isReportOnly() && v.channelState().StableSince.IsZero() && slices.ContainsFunc(v.insts, func(i instance) bool { return i.onlyReported() })
}

// endHolder ends the release that has the channel, for the one that enters: because it yields (B3), or was only reported.
func (v *view) endHolder(next *state.Release) {
	if holder := v.release(v.slot.Holder); holder != nil && !v.isPassing(next) {
		v.addChange(state.Change{Kind: state.ChangeSkip, Release: holder.ID, Cause: supersededBy(next)})
	}
}

// explainReport describes the actions that are only reported, for the first instances that have one.
func (v *view) explainReport() {
	count := 0
	for n := range v.insts {
		i := &v.insts[n]
		action := v.reportedAction(i)
		if action == "" || v.out.Status == entities.StatusPaused {
			continue
		}
		if count++; count > maxExplained {
			return
		}
		v.instanceReason(i, ReasonReport, "%s", action)
	}
}

// isPendingTarget reports whether a release is still to bring the target.
func (v *view) isPendingTarget(i *instance) bool {
	return slices.ContainsFunc(v.s.Releases, func(r *state.Release) bool {
		p := r.Phases[v.spec.Name]
		return p != nil && !p.Phase.Over() && i.IsAt(r)
	})
}

// wasCancelled reports whether a person cancelled the release of the target here.
func (v *view) wasCancelled(i *instance) bool {
	r := v.s.TargetRelease(i.Instance)
	return v.pin == nil && r != nil && r.Phases[v.spec.Name].Phase == maestro.Cancelled && !i.Delivery.Converged
}

// reportedAction describes the action that is only reported for an instance, since when, and why; "" is none.
func (v *view) reportedAction(i *instance) string {
	d := &i.Delivery
	switch {
	case !i.notApplied || d.Target == nil:
		return ""
	case !v.isPendingTarget(i) && (!v.isReportOnly() || v.wasCancelled(i)):
		return d.Target.FullVersion + " was only reported here and then cancelled: it is not applied; release it or another version"
	case !v.isReportOnly():
		return d.Target.FullVersion + " was only reported here; it is applied once its gates pass again"
	case d.Failure != "":
		return v.reportedRollback(i)
	case d.Converged:
		return v.reportedRepair(i)
	case d.Apply.Running:
		return ""
	}
	if has, why := i.work(); !has {
		return ""
	} else if why != "move to "+d.Target.FullVersion {
		return fmt.Sprintf("report only: Converge would apply %s since %s: %s", d.Target.FullVersion, formatClock(d.Since, v.now), why)
	}
	return fmt.Sprintf("report only: Converge would apply %s since %s", d.Target.FullVersion, formatClock(d.Since, v.now))
}

func (v *view) reportedRollback(i *instance) string {
	if back, _ := v.s.RollbackTarget(i.Instance); back != nil && !v.spec.NoRollback && v.pin == nil && i.Delivery.Rollback == nil {
		return "report only: Converge would roll back to " + back.FullVersion
	}
	return ""
}

func (v *view) reportedRepair(i *instance) string {
	if i.current.Known && !i.current.Stable && v.spec.Repairs() {
		return "report only: Converge would repair it to " + i.Delivery.Target.FullVersion
	}
	return ""
}
