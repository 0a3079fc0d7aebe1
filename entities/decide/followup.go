package decide

import (
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file runs the extensions that hold nothing (A21): those of a release that was rolled back, which run once after the previous
// version is back, and the periodic ones while a release stays.

func (v *view) runFollowUps() {
	if v.changed || v.paused || v.isReportOnly() || v.slot.Holder != maestro.None {
		return
	}
	for n := range v.spec.Extensions {
		switch e := &v.spec.Extensions[n]; {
		case e.Stage == entities.OnRollback:
			if r, at := v.rolledBackRelease(); r != nil {
				v.runFollowUp(r, *e, at)
			}
		case e.Every > 0:
			if r, since := v.stableRelease(); r != nil {
				v.runFollowUp(r, e.Repeating(), v.lastRun(r, e, since).Add(e.Every))
			}
		}
	}
}

// runFollowUp runs an extension when it is due and has not ended since then.
func (v *view) runFollowUp(r *state.Release, e entities.Extension, due time.Time) {
	st := r.Extensions[e.RunKey()]
	if st != nil && !st.Over() || st != nil && !st.Since.Before(due) {
		v.explainFollowUp(v.judgeExtension(r, &e, true), st)
		return
	}
	if st != nil && st.Failed {
		v.explainFollowUp(v.judgeExtension(r, &e, true), st)
	}
	if v.now.Before(due) {
		v.due(due)
		return
	}
	v.startExtension(r, &e)
}

// explainFollowUp records the judgement of a failed extension for people.
func (v *view) explainFollowUp(j Judgement, st *state.ExtensionState) {
	if j.Verdict != entities.Pass && (j.Verdict == entities.Fail || st.Attempts > 0 || !st.NoWorkerSince.IsZero()) {
		v.extraReasons = append(v.extraReasons, v.judgementText(j))
	}
}

// rolledBackRelease is the release that was rolled back in the whole channel, and since when the current version was the target again; or
// nil.
func (v *view) rolledBackRelease() (r *state.Release, since time.Time) {
	for n := range v.insts {
		d := &v.insts[n].Delivery
		if d.Target == nil {
			continue
		}
		if !d.Converged || d.Failure != "" {
			return nil, since
		}
		rollback := d.Rollback
		if rollback == nil {
			continue
		}
		if r == nil || rollback.At.Before(since) { // not the time when the target was set: a restart sets it again
			r, since = v.s.ReleaseByID(rollback.Release), rollback.At
		}
	}
	if r == nil && len(v.insts) > 0 {
		if by := v.s.TargetRelease(v.insts[0].Instance); by != nil && by.RollsBack != "" {
			return v.s.ReleaseByID(by.RollsBack), by.At
		}
	}
	return r, since
}

// rollbackVersion is the version that a channel went back to. An instance that was added later may have no target yet.
func (v *view) rollbackVersion() string {
	for n := range v.insts {
		if t := v.insts[n].Delivery.Target; t != nil {
			return t.FullVersion
		}
	}
	return ""
}

// stableRelease is the release that succeeded in the channel and runs in all its instances, and since when; or nil.
func (v *view) stableRelease() (r *state.Release, since time.Time) {
	for n := range v.insts {
		i := &v.insts[n]
		d := &i.Delivery
		if d.Target == nil {
			continue
		}
		by := v.s.TargetRelease(i.Instance)
		if !d.Converged || d.Failure != "" || by == nil || r != nil && r != by {
			return nil, since
		}
		if r = by; d.Since.After(since) {
			since = d.Since
		}
	}
	if r == nil || r.Phases[v.spec.Name].Phase != maestro.Succeeded {
		return nil, since
	}
	if at := r.Phases[v.spec.Name].Since; at.After(since) {
		since = at
	}
	return r, since
}

// lastRun is when a periodic extension last ended, or else when its release arrived.
func (v *view) lastRun(r *state.Release, e *entities.Extension, since time.Time) time.Time {
	for _, key := range []string{e.RunKey(), e.Repeating().RunKey()} {
		if st := r.Extensions[key]; st != nil && st.Over() && st.Since.After(since) {
			since = st.Since
		}
	}
	return since
}
