package decide

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file calls maestro for the next release of each channel (B1–B4, B10), and supplies what the state knows. External gates evaluate
// one release of a channel at a time: it continues until a gate refuses it, even if newer releases arrive. So releases that arrive faster
// than their evaluation still get through.

var noSlot = maestro.Slot{Holder: maestro.None, Aside: maestro.None, Newest: maestro.None, Next: maestro.None, KeptRelease: maestro.None}

// slots calls maestro, unless every release is over.
func (t *tables) slots(s *state.State, now time.Time, h *healthCache, mode Mode) []maestro.Slot {
	if !slices.ContainsFunc(s.Releases, func(r *state.Release) bool { return isOpen(r, s.Spec) }) {
		return nil
	}
	channels := make([]maestro.Channel, len(s.Spec.Channels))
	releases := releaseView{tables: t, s: s, now: now, healths: h, mode: mode, summaries: make([]channelSummary, len(s.Spec.Channels))}
	var after, conditions []string // of all channels, one after the other
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		first := len(after)
		for k := range c.Conditions {
			for _, up := range c.Conditions[k].Channels {
				after, conditions = append(after, up), append(conditions, c.Conditions[k].ID)
			}
		}
		channels[n] = maestro.Channel{
			Name: c.Name, After: after[first:], By: conditions[first:], Kept: s.Spec.Maestro.HoldUntil == entities.HoldPromoted,
		}
		releases.summaries[n] = summarize(s, c)
	}
	return maestro.Arrange(s.Releases, channels, &releases)
}

// isOpen reports whether a release can still continue in some channel. In undeclared channels it is over.
func isOpen(r *state.Release, spec *entities.Spec) bool {
	if r.Over() { // as most are
		return false
	}
	for n := range spec.Channels {
		if p := r.Phases[spec.Channels[n].Name]; p != nil && !p.Phase.Over() {
			return true
		}
	}
	return false
}

// releaseView implements maestro.Facts from the state.
type releaseView struct {
	*tables
	s         *state.State
	now       time.Time
	healths   *healthCache
	mode      Mode
	summaries []channelSummary // by channel
}

// channelSummary is the state of the instances of a channel, as far as it concerns all releases that wait there.
type channelSummary struct {
	failed          *entities.Rollback // the last rollback that failed; nil: none
	rollingBack     *entities.Rollback // a rollback in progress, or nil
	approvesApplies bool               // some instance requires an approval of every apply
	broken          bool               // some instance failed, or its target is not applied: only a release can change that
}

func summarize(s *state.State, c *entities.ChannelSpec) (st channelSummary) {
	st.broken = !c.Repairs()
	for _, spec := range c.Instances {
		i := s.Instances[c.ID(spec)]
		if i != nil && i.Drained {
			continue
		}
		if i == nil {
			st.approvesApplies = st.approvesApplies || s.RuntimeNamed(spec.Runtime).ApproveApplies
			continue
		}
		st.approvesApplies = st.approvesApplies || s.RuntimeNamed(i.Runtime).ApproveApplies
		st.broken = st.broken || isBroken(&i.Delivery)
		b := i.Delivery.Rollback
		switch {
		case i.RollbackFailed():
			if st.failed == nil || b.Failed.After(st.failed.Failed) {
				st.failed = b
			}
		case b != nil && !i.Delivery.Converged:
			st.rollingBack = b
		}
	}
	return st
}

// isBroken reports whether the target failed, or is not applied.
func isBroken(d *state.Delivery) bool {
	return d.Failure != "" || d.Cancelled != "" || d.ReportedOnly
}

func (k *releaseView) Strategy(release int) maestro.Strategy {
	return k.s.Strategy(k.s.Releases[release])
}

func (k *releaseView) Refused(release, channel int) bool {
	r, c := k.s.Releases[release], &k.s.Spec.Channels[channel]
	if k.s.TakedownOf(c.Name) != nil {
		return true
	}
	if failed := k.summaries[channel].failed; failed != nil {
		return !r.PassesRollback(c.Name, failed) || k.blockedByAspect(r, c) || isRefused(r, c)
	}
	return isRefused(r, c) || k.blockedByAspect(r, c) || k.firstStepBlocked(r, c, channel) || k.belowFloor(r, c)
}

// belowFloor reports whether a release leads back below the minimum version that the configuration names.
func (k *releaseView) belowFloor(r *state.Release, c *entities.ChannelSpec) bool {
	if !r.Return {
		return false
	}
	return slices.ContainsFunc(k.s.InstancesIn(c.Name), func(i *state.Instance) bool {
		return r.HasPayload(i.ID) && i.Delivery.Target != nil && !i.IsAt(r) && k.s.Barred(i, r.Target(i.ID)) != ""
	})
}

// firstStepBlocked reports whether the first step of a release cannot start, because an instance that it does not change needs another
// release to become healthy. The release behind it may be that one.
func (k *releaseView) firstStepBlocked(r *state.Release, c *entities.ChannelSpec, channel int) bool {
	if p, _ := r.PhaseIn(c.Name); p != maestro.Pending || !k.summaries[channel].broken || c.Rollout == nil {
		return false
	}
	v := &view{tables: k.tables, s: k.s, spec: c, now: k.now, healths: k.healths, mode: k.mode, slot: noSlot, out: &ChannelDecision{}}
	v.gather()
	p := v.plan(r)
	return v.isRollout(r) && len(p.moves) > 0 && len(p.renders) == 0 && v.blockedByUnavailable(r, p.moves)
}

// blockedByAspect reports whether a release of another aspect in the channel must finish first, or there is nothing yet whose values could
// change.
func (k *releaseView) blockedByAspect(r *state.Release, c *entities.ChannelSpec) bool {
	if len(k.s.Spec.Aspects) == 0 && r.Track() == "" {
		return false
	}
	noTarget := true
	for _, spec := range c.Instances {
		if i := k.s.Instances[c.ID(spec)]; i != nil && i.Delivery.Target != nil {
			if noTarget = false; !i.Drained && k.s.HasUnfinishedAspect(i, r) {
				return true
			}
		}
	}
	return noTarget && r.IsAspect()
}

func (k *releaseView) StepsRemain(release, channel int) bool {
	r, c := k.s.Releases[release], &k.s.Spec.Channels[channel]
	v := &view{tables: k.tables, s: k.s, spec: c, now: k.now, healths: k.healths, mode: k.mode, slot: noSlot, out: &ChannelDecision{}}
	v.slot.Holder = release
	v.gather()
	return v.inSteps(r) && slices.ContainsFunc(v.insts, func(i instance) bool { return r.Payloads[i.ID] != "" && !i.IsAt(r) })
}

func (k *releaseView) UpstreamReady(release, channel int) bool {
	v := view{tables: k.tables, s: k.s, spec: &k.s.Spec.Channels[channel], now: k.now, healths: k.healths}
	return !slices.ContainsFunc(v.spec.Conditions, func(c entities.Condition) bool {
		return v.requiresMoreThanSuccess(c) && v.judgeChannelStable(c, k.s.Releases[release]).Verdict != entities.Pass && k.s.Releases[release].BypassOf(v.spec.Name, c.ID) == nil
	})
}

// requiresMoreThanSuccess reports whether a condition on other channels requires more than success there.
func (v *view) requiresMoreThanSuccess(c entities.Condition) bool {
	return c.Kind.OnChannels() && c.Kind != entities.ChannelStable
}

// wakeForDurations schedules a decision for the time when a release meets the required duration, even if it is not next until then.
func (v *view) wakeForDurations() {
	for _, c := range v.spec.Conditions {
		if !v.requiresMoreThanSuccess(c) || c.For == 0 {
			continue
		}
		for _, r := range v.s.Releases {
			if p, _ := r.PhaseIn(v.spec.Name); p != maestro.Pending || r.BypassOf(v.spec.Name, c.ID) != nil {
				continue
			}
			if j := v.judgeChannelStable(c, r); !j.Next.IsZero() {
				v.due(j.Next)
			}
		}
	}
}

func (k *releaseView) OnlyExternalLeft(release, channel int) bool {
	r, c := k.s.Releases[release], &k.s.Spec.Channels[channel]
	st := &k.summaries[channel]
	if st.rollingBack != nil && !r.PassesRollback(c.Name, st.rollingBack) {
		return false
	}
	for n := range c.Conditions {
		cond := &c.Conditions[n]
		switch {
		case cond.Kind.OnChannels() || cond.Kind.IsMarker() || r.BypassOf(c.Name, cond.ID) != nil:
		case cond.Kind != entities.ManualApproval || !r.CountApprovals(c.Name, *cond).Satisfied():
			return false
		}
	}
	return !st.approvesApplies || r.BypassOf(c.Name, applyApprovalID(c.Name)) != nil || !slices.ContainsFunc(c.Instances, func(spec entities.InstanceSpec) bool {
		i := k.s.Instances[c.ID(spec)]
		if i == nil {
			return k.s.RuntimeNamed(spec.Runtime).ApproveApplies
		}
		return k.s.RuntimeNamed(i.Runtime).ApproveApplies && !i.EntryApproved(r)
	})
}

func (k *releaseView) ApprovedOrBypassed(release, channel int) bool {
	r, c := k.s.Releases[release], &k.s.Spec.Channels[channel]
	return slices.ContainsFunc(r.Bypasses, func(b entities.Bypass) bool { return b.Channel == c.Name }) ||
		slices.ContainsFunc(c.Conditions, func(cond entities.Condition) bool {
			return cond.Kind == entities.ManualApproval && len(r.CountApprovals(c.Name, cond).Approvers) > 0
		}) ||
		k.summaries[channel].approvesApplies && slices.ContainsFunc(k.s.InstancesIn(c.Name), func(i *state.Instance) bool { return i.EntryApproved(r) })
}

func (k *releaseView) Retries(release, channel int) bool {
	return retries(k.s, k.s.Releases[release], k.s.Spec.Channels[channel].Name)
}

// retries reports whether an apply of a release failed in a channel, and none runs there until the next attempt. An apply that was lost may
// still run, and one that was refused by a fence waits for a person: neither counts.
func retries(s *state.State, r *state.Release, channel string) bool {
	failed := false
	for _, i := range s.InstancesIn(channel) {
		d := &i.Delivery
		if d.Apply.Running {
			return false
		}
		failed = failed || i.IsAt(r) && !d.Converged && d.Failure == "" && d.Apply.Attempts > 0 && !d.Apply.OK && !d.Apply.FirstStarted.IsZero()
	}
	return failed
}

func (k *releaseView) ExternalBypassed(release, channel int) bool {
	c := &k.s.Spec.Channels[channel]
	return slices.ContainsFunc(k.s.Releases[release].Bypasses, func(b entities.Bypass) bool {
		return b.Channel == c.Name && b.Condition != applyApprovalID(c.Name) &&
			!slices.ContainsFunc(c.Conditions, func(cond entities.Condition) bool { return cond.ID == b.Condition })
	})
}

// keepEvaluating keeps the release that is being evaluated as the next one, as long as it is as near as the newest and nothing refuses it.
func (v *view) keepEvaluating() {
	for _, n := range v.slot.Peers {
		if r := v.s.Releases[n]; r.ID == v.channelState().Candidate {
			newest := v.slot
			v.slot.Next, v.slot.Yields = n, newest.Yields && n > newest.Holder && v.s.Strategy(r).Replaces(retries(v.s, v.s.Releases[newest.Holder], v.spec.Name))
			if !v.isUndecided(r) {
				v.slot = newest
			}
			return
		}
	}
}

// isUndecided reports whether a release is being evaluated externally, or could be, and nothing has refused it so far.
func (v *view) isUndecided(r *state.Release) bool {
	p := &admission{view: v, release: r, clear: !v.paused}
	for _, s := range v.steps {
		if s.stage == atEntry {
			p.row = s.gate
			s.gate.judge(p, s.stage)
		}
	}
	if !p.clear || v.queryFailed(r) {
		return false
	}
	checks, no := v.checksOpen(r)
	extensions, failing := v.extensionsOpen(r)
	return !no && !failing && (checks || extensions || !v.slot.NeedsPeople)
}

// checksOpen reports whether a check before the approval stage was not evaluated yet, and whether any check does not pass.
func (v *view) checksOpen(r *state.Release) (early, failing bool) {
	for n := range v.spec.Checks {
		c := &v.spec.Checks[n]
		if c.FirstGateStage() == "" || r.BypassOf(v.spec.Name, c.ID) != nil {
			continue
		}
		st := v.channelState().LastReading(v.s.Evaluation(v.spec, c, r))
		early = early || st == nil && c.FirstGateStage() == entities.PreApproval
		failing = failing || st != nil && st.Verdict != entities.Pass
	}
	return early, failing
}

// extensionsOpen reports whether an extension before the approval stage has not succeeded yet, and whether any failed or finds no worker.
func (v *view) extensionsOpen(r *state.Release) (early, failing bool) {
	for n := range v.spec.Extensions {
		e := &v.spec.Extensions[n]
		st := r.Extensions[e.RunKey()]
		if !e.Stage.BeforeEntry() || st != nil && st.Done || r.BypassOf(v.spec.Name, extensionID(e.Name)) != nil {
			continue
		}
		early = early || e.Stage == entities.PreApproval
		failing = failing || st != nil && (!st.NoWorkerSince.IsZero() || !st.Running && st.Attempts > 0)
	}
	return early, failing
}

// queryFailed reports whether an exit-code runtime returned an error for a release.
func (v *view) queryFailed(r *state.Release) bool {
	return slices.ContainsFunc(v.insts, func(i instance) bool {
		a := i.Observed.Query
		return a != nil && !a.Running && a.Reading.Err != nil && a.Target.Same(r.Target(i.ID))
	})
}
