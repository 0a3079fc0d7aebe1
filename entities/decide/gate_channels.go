package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file holds the gates of the channel itself: no other work is in progress in it, its state is known, and no person holds it.

func judgeInProgress(p *admission, _ entities.Stage) {
	if p.holderYields() {
		return // it yields
	}
	holder := p.view.release(p.slot.Holder)
	if holder == nil {
		holder = p.asideRelease()
	}
	if holder != nil && !p.isPassing(p.release) && !p.mayReplace(holder) {
		p.add(Judgement{
			Kind: KindInProgress, ID: string(KindInProgress), Verdict: entities.Wait,
			Reason: holder.FullVersion + " is in progress here", Since: holder.Phases[p.spec.Name].Since,
		})
		return
	}
	if i := p.unfinished(); i != nil {
		p.add(Judgement{
			Kind: KindInProgress, ID: string(KindInProgress), Verdict: entities.Wait, Since: i.Delivery.Since,
			Reason: p.prefixInstance(i, fmt.Sprintf("%s has not succeeded here and belongs to another aspect: it must be rolled back or replaced first", i.Delivery.Target.FullVersion)),
		})
		return
	}
	for n := range p.insts {
		if i := &p.insts[n]; i.Delivery.Apply.Running && !i.isPuttingBack() {
			p.add(Judgement{
				Kind: KindInProgress, ID: string(KindInProgress), Verdict: entities.Wait,
				Reason: p.prefixInstance(i, "an apply is still running"), Since: i.Delivery.Apply.Started,
			})
			return
		}
	}
}

// unfinished is an instance where the result of a release of another aspect is neither good nor rolled back; or nil.
func (p *admission) unfinished() *instance {
	for n := range p.insts {
		if i := &p.insts[n]; p.s.HasUnfinishedAspect(i.Instance, p.release) {
			return i
		}
	}
	return nil
}

// holderYields reports whether the release in progress yields to this one.
func (p *admission) holderYields() bool {
	return p.slot.Yields && p.release == p.view.release(p.slot.Next)
}

// judgeHeld holds the next release while the channel is kept for the last one that succeeded there (B3). A release that rolls another one
// back is not held.
func judgeHeld(p *admission, _ entities.Stage) {
	keeper := p.view.release(p.slot.KeptRelease)
	if keeper == nil || p.release.Return {
		return
	}
	p.add(Judgement{
		Kind: KindHeld, ID: string(KindHeld), Verdict: entities.Wait, Since: keeper.Phases[p.spec.Name].Since,
		Reason: fmt.Sprintf("held for %s until it is promoted into %s", keeper.FullVersion, strings.Join(p.slot.KeptUntil, ", ")),
	})
}

func heldID(v *view, entered bool) []string {
	if entered || v.s.Spec.Maestro.HoldUntil != entities.HoldPromoted {
		return nil
	}
	return []string{string(KindHeld)}
}

// judgeReading holds ordinary promotion while the state is unknown: an unknown state is never "no difference" (D17).
func judgeReading(p *admission, _ entities.Stage) {
	for n := range p.insts {
		i := &p.insts[n]
		if !i.unknown() {
			continue
		}
		j := Judgement{Kind: KindReading, ID: string(KindReading), Verdict: entities.Wait, Reason: p.prefixInstance(i, "no reading yet")}
		if e := i.Observed.Reading.Err; e != nil {
			j.Verdict, j.Reason, j.Since = entities.Error, p.prefixInstance(i, e.Message), i.Observed.ErrSince
		}
		p.add(j)
		return
	}
}

func readingID(v *view, entered bool) []string {
	return v.kindIDIf(KindReading, !entered, func(i instance) bool { return i.runtime.Observable })
}

func queryID(v *view, entered bool) []string {
	return v.kindIDIf(KindQuery, !entered, func(i instance) bool { return i.runtime.Mode == entities.FetchExitCode })
}

// kindIDIf is the id of a kind if it may apply and some instance satisfies the predicate.
func (v *view) kindIDIf(kind Kind, may bool, matches func(instance) bool) []string {
	if may && slices.ContainsFunc(v.insts, matches) {
		return []string{string(kind)}
	}
	return nil
}

// judgeRollback holds the next release during a rollback, and after it failed. After a failure only a release that was made since then
// continues.
func judgeRollback(p *admission, _ entities.Stage) {
	for n := range p.insts {
		i := &p.insts[n]
		b := i.Delivery.Rollback
		if b == nil || i.Delivery.Converged || p.release.PassesRollback(p.spec.Name, b) {
			continue
		}
		to := i.Delivery.Target.FullVersion
		j := Judgement{
			Kind: KindRollback, ID: string(KindRollback), Subject: to, Verdict: entities.Wait, Since: b.At,
			Reason: p.prefixInstance(i, fmt.Sprintf("rolling back from %s to %s", b.From, to)),
		}
		if !b.Failed.IsZero() {
			j.Verdict, j.Since = entities.Fail, b.Failed
			j.Reason = p.prefixInstance(i, fmt.Sprintf("the rollback to %s failed: only a release created since then can enter", to))
		}
		p.add(j)
		return
	}
}

func unblockRollback(v *view, j *Judgement, _ *state.Release) string {
	return v.retryAdvice(j.Subject)
}

// cancelCommand is the command that cancels a waiting rollback.
func (v *view) cancelCommand(back *state.Release, channel string) string {
	return fmt.Sprintf("converge cancel %s/%s %s --channel %s", v.s.Application, v.s.Title(), back.FullVersion, channel)
}

// judgeFloor holds a rollback to a version below the minimum that the configuration names.
func judgeFloor(p *admission, _ entities.Stage) {
	if !p.release.Return {
		return
	}
	for n := range p.insts {
		i := &p.insts[n]
		if !p.release.HasPayload(i.ID) || i.Delivery.Target == nil || i.IsAt(p.release) {
			continue
		}
		if why := p.s.Barred(i.Instance, p.release.Target(i.ID)); why != "" {
			p.add(Judgement{Kind: KindFloor, ID: string(KindFloor), Verdict: entities.Fail, Reason: p.prefixInstance(i, why), Unblock: p.s.FloorBypassCommand(i.Instance) + "; to cancel the rollback: " + p.cancelCommand(p.release, p.spec.Name)})
			return
		}
	}
}

// judgePin holds releases while the channel is pinned.
func judgePin(p *admission, _ entities.Stage) {
	if p.pin != nil {
		p.add(Judgement{Kind: KindPin, ID: string(KindPin), Verdict: entities.Wait, Reason: p.pin.Text(), Since: p.pin.At})
	}
}

func unblockPin(v *view, _ *Judgement, _ *state.Release) string {
	return fmt.Sprintf("converge channel unpin %s/%s %s", v.s.Application, v.s.Title(), v.spec.Name)
}

// The following gates concern other channels: the release succeeded in the required ones, and can still come here (A8).

func judgeChannelsStable(p *admission, _ entities.Stage) {
	for _, c := range p.spec.Conditions {
		if !c.Kind.OnChannels() {
			continue
		}
		j := p.judgeChannelStable(c, p.release)
		p.add(j)
		if !j.Next.IsZero() {
			p.due(j.Next)
		}
	}
}

// judgeUnknown: a condition of a newer version is an ERROR, never a PASS.
func judgeUnknown(p *admission, _ entities.Stage) {
	for _, c := range p.spec.Conditions {
		if !knownCondition(c.Kind) {
			p.add(Judgement{Kind: KindUnknown, ID: c.ID, Verdict: entities.Error, Reason: fmt.Sprintf("condition kind %q is unknown to this version", c.Kind)})
		}
	}
}

func knownCondition(k entities.ConditionKind) bool {
	return k.OnChannels() || isManualApproval(k) || k.IsMarker()
}

func unknownConditionIDs(v *view, entered bool) []string {
	var out []string
	for _, c := range v.spec.Conditions {
		if !knownCondition(c.Kind) && !entered {
			out = append(out, c.ID)
		}
	}
	return out
}

// judgeChannelStable passes if the release succeeded in all named channels, the required time ago, and, if required, they are healthy
// now. A success belongs to the release: it stays valid even if the channel moves on, and its time continues to count (A8). Health is
// computed in this decision, so no preflight needs to evaluate it again (A10).
func (v *view) judgeChannelStable(c entities.Condition, r *state.Release) Judgement {
	j := Judgement{Kind: KindChannelStable, ID: c.ID, Verdict: entities.Pass}
	if r.Return && c.Kind != entities.ChannelHealthy {
		j.Reason = r.FullVersion + " succeeded here before"
		return j
	}
	var reasons []string
	for _, name := range c.Channels {
		in := v.stableIn(c, name, r)
		if in.Verdict.Worse(j.Verdict) {
			j.Verdict, j.Since, j.Next, j.Awaits, reasons = in.Verdict, time.Time{}, time.Time{}, nil, nil
		}
		if in.Unblock != "" {
			j.Unblock = in.Unblock
		}
		if in.Verdict == j.Verdict {
			reasons = append(reasons, in.Reason)
			j.Since, j.Next, j.Awaits = later(j.Since, in.Since), later(j.Next, in.Next), append(j.Awaits, in.Awaits...)
		}
	}
	slices.Sort(reasons)
	j.Reason = strings.Join(reasons, ", ")
	return j
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// stableIn judges a release by one other channel.
func (v *view) stableIn(c entities.Condition, channel string, r *state.Release) Judgement {
	if down := v.s.TakedownOf(channel); down != nil {
		return Judgement{
			Verdict: entities.Fail, Since: down.At, Reason: channel + " was " + down.Text(),
			Unblock: v.bringBackCommand(channel) + ", or: " + v.command("bypass", r, v.spec.Name, c.ID, "--reason …"),
		}
	}
	j := v.succeededIn(c, channel, r)
	if c.Kind != entities.ChannelHealthy || j.Verdict != entities.Pass {
		return j
	}
	h := v.healthIn(channel)
	if h.status == entities.StatusConverged {
		j.Reason += ", and healthy now at " + h.version
		return j
	}
	j.Verdict, j.Since = entities.Wait, time.Time{}
	j.Reason += fmt.Sprintf(", but %s is %s now", channel, h.status)
	if h.status.Stuck() {
		j.Verdict, j.Unblock = entities.Fail, "fix that, or: "+v.command("bypass", r, v.spec.Name, c.ID, "--reason …")
	}
	return j
}

// isOfNewerRules reports whether only the incarnation whose rules apply has a channel, and not the one that is deployed.
func (v *view) isOfNewerRules(channel string) bool {
	_, declared := v.s.Spec.Channel(channel)
	return !declared && v.s.Spec.RulesOf != 0
}

// succeededIn judges a release by its success in another channel. A channel that was added after the release was made is a gate like any
// other: the release never passed it, and will not (G2). Two releases of one version each need their own success.
func (v *view) succeededIn(c entities.Condition, channel string, r *state.Release) Judgement {
	p := r.Phases[channel]
	switch {
	case r.Return:
		return Judgement{Verdict: entities.Pass, Reason: r.FullVersion + " succeeded here before"}
	case p == nil && v.isOfNewerRules(channel):
		return Judgement{
			Verdict: entities.Fail, Since: r.At,
			Reason:  fmt.Sprintf("incarnation %d requires a success in channel %s, which incarnation %d does not have", v.s.Spec.RulesOf, channel, v.s.Spec.Incarnation),
			Unblock: fmt.Sprintf("converge config unpin %s, or: %s", v.s.Application, v.command("bypass", r, v.spec.Name, c.ID, "--reason …")),
		}
	case p == nil:
		return Judgement{
			Verdict: entities.Fail, Since: r.At,
			Reason:  fmt.Sprintf("%s was released before channel %s existed and does not enter it", r.FullVersion, channel),
			Unblock: fmt.Sprintf("converge release %s/%s %s, or: %s", v.s.Application, v.s.Title(), r.Version, v.command("bypass", r, v.spec.Name, c.ID, "--reason …")),
		}
	}
	j := Judgement{Verdict: entities.Fail, Reason: fmt.Sprintf("%s %s in %s", r.FullVersion, p.Phase, channel), Since: p.Since}
	switch p.Phase {
	case maestro.Succeeded:
		if back := v.s.RollbackOf(r, channel); back != nil {
			j.Reason, j.Since = fmt.Sprintf("%s is being rolled back in %s by %s", r.FullVersion, channel, back.By), back.At
			j.Unblock = "release a fix, or, to keep it there: " + v.cancelCommand(back, channel)
			return j
		}
		j.Verdict, j.Reason = entities.Pass, fmt.Sprintf("%s stable at %s", channel, r.FullVersion)
		if c.For > 0 {
			j.requireDuration(c.For, v.now)
		}
	case maestro.Pending:
		j.Verdict, j.Reason, j.Awaits = entities.Wait, fmt.Sprintf("%s has not entered %s yet", r.FullVersion, channel), []string{channel}
	case maestro.InProgress:
		j.Verdict, j.Reason, j.Awaits = entities.Wait, fmt.Sprintf("%s is being deployed to %s", r.FullVersion, channel), []string{channel}
	}
	return j
}

// requireDuration lets a passed judgement pass only after it held for that duration.
func (j *Judgement) requireDuration(duration time.Duration, now time.Time) {
	until := j.Since.Add(duration)
	j.Reason += " since " + formatDate(j.Since)
	if now.Before(until) {
		j.Verdict, j.Next = entities.Wait, until
		j.Reason += "; " + entities.Length(duration) + " pass on " + formatDate(until)
		return
	}
	j.Since = until
	j.Reason += ", for more than " + entities.Length(duration)
}

// formatDate formats a moment with its date, for people.
func formatDate(t time.Time) string { return t.UTC().Format("Mon 2006-01-02 15:04 MST") }

// healthCache caches the health of channels during one decision: many releases may wait for one channel.
type healthCache map[string]channelHealth

// channelHealth is the health of a channel and its version; "" is none.
type channelHealth struct {
	status  entities.Status
	version string
}

// healthIn is the health of another channel.
func (v *view) healthIn(channel string) channelHealth {
	h, known := (*v.healths)[channel]
	if !known {
		if h = v.computeHealth(channel); *v.healths == nil {
			*v.healths = healthCache{}
		}
		(*v.healths)[channel] = h
	}
	return h
}

func (v *view) computeHealth(channel string) channelHealth {
	n := slices.IndexFunc(v.s.Spec.Channels, func(c entities.ChannelSpec) bool { return c.Name == channel })
	if n < 0 {
		return channelHealth{status: entities.StatusUnknown} // it is not in the compiled spec
	}
	other := &view{tables: v.tables, s: v.s, spec: &v.s.Spec.Channels[n], now: v.now, out: &ChannelDecision{}}
	other.slot.Holder = slices.IndexFunc(v.s.Releases, func(r *state.Release) bool {
		p, _ := r.PhaseIn(channel)
		return p == maestro.InProgress
	})
	other.gather()
	h, facts := channelHealth{}, make([]entities.Facts, len(other.insts))
	for n := range other.insts {
		facts[n] = other.insts[n].computeFacts()
		if t := other.insts[n].Delivery.Target; t != nil {
			h.version = t.FullVersion
		}
	}
	h.status = other.health(entities.Facts{}.RollUp(facts))
	return h
}

// health is the health of the channel from the facts of its instances, independent of pauses and of waiting releases: CONVERGED is
// healthy. While a release is in progress there, it is converging.
func (v *view) health(f entities.Facts) entities.Status {
	f.Converging = f.Converging || v.slot.Holder != maestro.None
	return f.Health()
}

// judgeUpstream fails if the release failed further upstream than the channels that this one names.
func judgeUpstream(p *admission, _ entities.Stage) {
	for _, j := range p.gates {
		if j.Kind == KindChannelStable && j.Verdict == entities.Fail {
			return // that gate states it already
		}
	}
	stuck := p.slot.Stuck
	if p.release == p.view.release(p.slot.Holder) {
		stuck = p.slot.HolderStuck
	}
	if stuck != "" {
		p.add(Judgement{Kind: KindUpstream, ID: string(KindUpstream), Verdict: entities.Fail, Reason: p.release.FullVersion + " " + stuck})
	}
}

func unblockRetry(v *view, _ *Judgement, r *state.Release) string {
	return v.retryAdvice(r.FullVersion)
}

func upstreamID(v *view, entered bool) []string {
	if entered || v.slot.Stuck == "" && v.slot.HolderStuck == "" {
		return nil
	}
	return []string{string(KindUpstream)}
}

// conditionIDs lists the declared conditions of some kinds.
func conditionIDs(of func(entities.ConditionKind) bool) func(*view, bool) []string {
	return func(v *view, entered bool) []string {
		var out []string
		for _, c := range v.spec.Conditions {
			if of(c.Kind) && !entered {
				out = append(out, c.ID)
			}
		}
		return out
	}
}
