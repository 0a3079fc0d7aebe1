package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file judges the time between stable objects and success: the windows of post-deployment checks and the post-deployment extensions
// (A19, A21). A channel without any of them converges at once.

// failedDeploymentCheck returns which check fails the release during its deployment, or "", and requests the evaluation of those that may
// (A19).
func (v *view) failedDeploymentCheck(r *state.Release) string {
	if r == nil || !v.channelState().StableSince.IsZero() || !v.isRollout(r) && !slices.ContainsFunc(v.insts, func(i instance) bool { return !i.Delivery.Converged }) {
		return ""
	}
	if settledAt := r.Phases[v.spec.Name].ResumedAt.Add(v.spec.ProgressDeadline); v.now.Before(settledAt) {
		v.due(settledAt) // the values that were rolled back may have been the cause
		return ""
	}
	why := ""
	for n := range v.spec.Checks {
		c := &v.spec.Checks[n]
		if at := c.AtStage(entities.Deployment); at == nil || !at.Fails || r.BypassOf(v.spec.Name, c.ID) != nil {
			continue
		}
		v.requestCheck(c, r.ID)
		if j, broken := v.checkFails(c, r); broken && why == "" && !v.paused {
			why = c.ID + entities.Because(j.Reason)
		}
	}
	return why
}

// checkFails reports whether a check fails a release that is in progress: its verdict is WAIT or FAIL. An ERROR and a check that was not
// evaluated yet fail nothing (A19).
func (v *view) checkFails(c *entities.Check, r *state.Release) (Judgement, bool) {
	st := v.channelState().LastReading(v.s.Evaluation(v.spec, c, r))
	if st == nil || st.Verdict != entities.Wait && st.Verdict != entities.Fail {
		return Judgement{}, false
	}
	return v.judgeCheck(c, r), true
}

// soak evaluates the post-deployment window of the release in progress. A verdict in its window that is neither PASS nor ERROR fails the
// channel. At the end a fresh reading must PASS, and every extension must be done.
func (v *view) soak(r *state.Release, insts []*instance) {
	if v.channelState().StableSince.IsZero() {
		v.change(state.Change{Kind: state.ChangeStable, Release: r.ID, Target: insts[0].Delivery.Target})
		return
	}
	if v.paused {
		v.soakTexts = append(v.soakTexts, "its post-deployment window is paused")
		return
	}
	if why := v.failedExtension(r); why != "" {
		v.failAll(r, why)
		return
	}
	p := &admission{view: v, release: r, clear: true, preconditionsMet: true}
	p.extensions(entities.PostDeployment)
	for _, j := range p.gates {
		if j.Verdict != entities.Pass {
			v.soakTexts = append(v.soakTexts, j.ID+" "+string(j.Verdict)+entities.Because(j.Reason))
		}
	}
	windows := slices.DeleteFunc(v.spec.Windows(v.channelState().StableSince), func(w entities.Window) bool {
		return slices.Contains(v.channelState().Soaked, w.Key) || r.BypassOf(v.spec.Name, w.Check.ID) != nil
	})
	first := slices.IndexFunc(windows, func(w entities.Window) bool { return !w.Until.IsZero() })
	if first < 0 {
		first = len(windows)
	}
	open, failed := v.judgeWindows(r, windows[:first])
	if failed == "" {
		failed = v.judgePostconditions(r, windows[first:], !open && p.clear)
	}
	switch {
	case failed != "":
		v.failAll(r, failed)
	case !open && p.clear && first == len(windows):
		v.recordConverged(r, insts, false)
	}
}

// judgePostconditions returns which postcondition fails the channel, or "". Each may WAIT for a while. At the end all must pass together,
// with fresh readings.
func (v *view) judgePostconditions(r *state.Release, all []entities.Window, last bool) (failed string) {
	var texts []string
	var met []entities.Evaluation
	var until time.Time
	for _, w := range all {
		v.requestCheck(w.Check, r.ID)
		j, broken := v.checkFails(w.Check, r)
		late := !v.now.Before(w.Until)
		switch {
		case broken && j.Verdict == entities.Fail:
			return w.Check.ID + entities.Because(j.Reason)
		case broken && late && !v.isOverdue(w.Check, r):
			return w.Check.ID + " did not hold by " + formatClock(w.Until, v.now) + entities.Because(j.Reason)
		case !late:
			v.due(w.Until)
		}
		if j = v.judgeCheck(w.Check, r); j.Verdict == entities.Pass {
			met = append(met, v.s.Evaluation(v.spec, w.Check, r))
		}
		if late && j.Verdict == entities.Error {
			v.waitForCheck(r, j, w.Until)
			continue
		}
		if w.Until.After(until) {
			until = w.Until
		}
		texts = append(texts, j.brief())
	}
	if len(texts) > 0 {
		v.soakTexts = append(v.soakTexts, "postconditions until "+formatClock(until, v.now)+": "+strings.Join(texts, ", "))
	}
	if last && len(met) == len(all) {
		v.requestFreshReadings(r, met)
	}
	return ""
}

// isOverdue reports whether a check is overdue for its own next evaluation, for example after an outage.
func (v *view) isOverdue(c *entities.Check, r *state.Release) bool {
	st := v.channelState().LastReading(v.s.Evaluation(v.spec, c, r))
	return st.At.Before(st.Next) && !v.now.Before(st.Next)
}

// failedExtension returns which post-deployment extension has used all its attempts, or "".
func (v *view) failedExtension(r *state.Release) string {
	for n := range v.spec.Extensions {
		e := &v.spec.Extensions[n]
		s := r.Extensions[e.RunKey()]
		if e.Stage == entities.PostDeployment && s != nil && s.Failed && r.BypassOf(v.spec.Name, extensionID(e.Name)) == nil {
			return fmt.Sprintf("extension %s failed %s: %s", e.Name, entities.Times(s.Attempts), s.Err)
		}
	}
	return ""
}

// judgeWindows reports whether a window is still open, or which check fails the channel.
func (v *view) judgeWindows(r *state.Release, all []entities.Window) (open bool, failed string) {
	var texts []string
	var ended []entities.Evaluation
	var until time.Time
	for _, w := range all {
		open = true
		if v.now.Before(w.Begin) {
			until = later(until, w.End)
			v.due(w.Begin)
			texts = append(texts, w.Check.ID+" counts from "+formatClock(w.Begin, v.now))
			continue
		}
		v.requestCheck(w.Check, r.ID)
		if j, broken := v.checkFails(w.Check, r); broken {
			return true, w.Check.ID + entities.Because(j.Reason)
		}
		j := v.judgeCheck(w.Check, r)
		switch {
		case v.now.Before(w.End):
			v.due(w.End)
		case j.Verdict == entities.Error:
			v.waitForCheck(r, j, w.End)
			continue
		default:
			ended = append(ended, v.s.Evaluation(v.spec, w.Check, r))
		}
		until = later(until, w.End)
		texts = append(texts, j.brief())
	}
	if len(texts) > 0 {
		v.soakTexts = append(v.soakTexts, "soaking until "+formatClock(until, v.now)+": "+strings.Join(texts, ", "))
	}
	v.requestFreshReadings(r, ended)
	return open, ""
}

// waitForCheck says that a check keeps a release from success, since when, and what ends that. The check cannot be evaluated: it is tried
// again with its own backoff, and a fresh reading is requested when that succeeds.
func (v *view) waitForCheck(r *state.Release, j Judgement, since time.Time) {
	v.soakTexts = append(v.soakTexts, fmt.Sprintf("waiting since %s for %s; until an evaluation succeeds, or: %s",
		formatClock(since, v.now), j.brief(), v.command("bypass", r, v.spec.Name, j.ID, "--reason …")))
}

// brief is the verdict with its id, and with the reason if it does not pass.
func (j Judgement) brief() string {
	if j.Verdict == entities.Pass {
		return j.ID + " PASS"
	}
	return j.ID + " " + string(j.Verdict) + entities.Because(j.Reason)
}

// requestFreshReadings requests the fresh reading of checks whose window ended.
func (v *view) requestFreshReadings(r *state.Release, ended []entities.Evaluation) {
	p := v.channelState().Preflight
	op := state.PreflightOp{Channel: v.spec.Name, Release: r.ID, Checks: ended, Window: true, StableSince: v.channelState().StableSince}
	if len(ended) > 0 && !v.mode.NoNewWork && (p == nil || !p.Running) {
		v.d.Preflights = append(v.d.Preflights, op)
	}
}

// formatClock formats a time of day for people, with the date if it is not today.
func formatClock(t, now time.Time) string {
	t, now = t.UTC(), now.UTC()
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04") + " UTC"
	}
	return t.Format("2006-01-02 15:04") + " UTC"
}
