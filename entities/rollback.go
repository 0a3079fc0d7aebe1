package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// judgeFailed decides what follows from a target that failed here for good: back to the last good
// one, unless that is turned off, there is none, or a pin or a pause holds the channel (A22). It looks
// at what is so, not at what just happened: a rollback that a pause held follows when it ends. A way
// back that fails is FAILED_ROLLBACK, and nothing follows from that by itself.
func (v *view) judgeFailed() {
	i := v.inst
	if i.Rollback != nil {
		if i.Rollback.Failed.IsZero() {
			v.change(Change{Kind: ChangeFail, Cause: i.Failure})
		}
		return
	}
	if _, pinned := v.s.PinOf(v.spec.Name); pinned || v.facts.Paused || v.spec.NoRollback || v.mode.Drain {
		return
	}
	back := i.lastGood(*i.Target)
	r := v.s.broughtHere(v.spec.Name)
	if back == nil || r == nil {
		return
	}
	v.change(Change{Kind: ChangeRollback, Release: r.ID, Target: back, Cause: i.Failure})
}

// broughtHere is the newest release that a channel's present target is of, or nil.
func (s *State) broughtHere(channel string) *Release {
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		if r.Phases[channel] != nil && s.isAt(channel, r) && r.Phases[channel].Phase != maestro.Pending {
			return r
		}
	}
	return nil
}

// lastGood is the newest good target other than the one given, or nil.
func (i *Instance) lastGood(but Target) *Target {
	if i.LastGood != nil && !i.LastGood.Same(but) {
		t := *i.LastGood
		return &t
	}
	for n := len(i.Before) - 1; n >= 0; n-- {
		if t := i.Before[n]; !t.Same(but) {
			return &t
		}
	}
	return nil
}

// good takes note that a target converged: it is the newest good one.
func (i *Instance) good(t Target) {
	if i.LastGood != nil && !i.LastGood.Same(t) {
		i.Before = keepLast(append(slices.DeleteFunc(slices.Clone(i.Before), t.Same), *i.LastGood), MaxGoods)
	}
	i.LastGood = &t
}

// bad takes note that a target is good no longer: nothing goes back to it by itself.
func (i *Instance) bad(t Target) {
	i.Before = slices.DeleteFunc(slices.Clone(i.Before), t.Same)
	if i.LastGood == nil || !i.LastGood.Same(t) {
		return
	}
	i.LastGood = nil
	if n := len(i.Before); n > 0 {
		last := i.Before[n-1]
		i.LastGood, i.Before = &last, i.Before[:n-1]
	}
}

// commitRollback takes a release back. What it was is good no longer, and it does not enter again by
// itself; only a person's retry of it lifts that bar.
func (s *State) commitRollback(c Change, who *Who, now time.Time) {
	i, r := s.Instance(c.Channel), s.ReleaseByID(c.Release)
	left := *i.Target
	reason, by := c.Cause, ""
	if who != nil {
		by = " by " + who.Name
		reason = "by " + who.Name + because(c.Cause)
	}
	r.Phases[c.Channel] = &PhaseState{Phase: maestro.RolledBack, Since: now, Reason: reason, CalledOff: who != nil}
	s.Record(now, c.Channel, fmt.Sprintf("target %s → %s (rolled back%s%s)", left.FullVersion, c.Target.FullVersion, by, because(c.Cause)))
	s.Note(AuditLine{
		At: now, Kind: EventRollback, Who: who, Channel: c.Channel, Release: r.ID, Version: left.FullVersion,
		Text: fmt.Sprintf("rolled back from %s to %s", left.FullVersion, c.Target.FullVersion), Reason: c.Cause,
	})
	i.bad(left)
	i.returnTo(*c.Target, now)
	i.Rollback = &Rollback{Release: r.ID, From: left.FullVersion, Who: who, Reason: c.Cause, At: now}
}

// rollbackGate holds the next release while the channel is on a way back, and after that failed:
// then only a release that was made since goes on.
func (v *view) rollbackGate(next *Release) (Judgement, bool) {
	b := v.inst.Rollback
	switch {
	case b == nil || v.inst.Converged:
		return Judgement{}, false
	case b.Failed.IsZero():
		return Judgement{
			ID: "rollback", Verdict: Wait, Since: b.At,
			Reason: fmt.Sprintf("going back from %s to %s", b.From, v.inst.Target.FullVersion),
		}, true
	case !next.At.Before(b.Failed):
		return Judgement{}, false
	}
	return Judgement{
		ID: "rollback", Verdict: Fail, Since: b.Failed,
		Reason:  fmt.Sprintf("the way back to %s failed: only a release made since goes on", v.inst.Target.FullVersion),
		Unblock: v.retry(v.inst.Target.FullVersion),
	}, true
}

func (v *view) retry(version string) string {
	return fmt.Sprintf("release a fix, or: converge retry %s/%s %s", v.s.Application, v.s.Service, version)
}

// explainRollback says what was taken back, why, and what a person can do.
func (v *view) explainRollback() {
	b := v.inst.Rollback
	back := v.inst.Target.FullVersion
	switch {
	case !b.Failed.IsZero():
		v.reason("the way back to %s failed: %s", back, v.inst.Failure)
		v.reason("%s was %s", b.From, b.text())
		v.reason("%s", v.retry(back))
	case !v.inst.Converged:
		v.reason("%s was %s; going back to %s", b.From, b.text(), back)
		v.explainApply()
	default:
		v.reason("%s was %s; it is barred here, %s stays until a newer release", b.From, b.text(), back)
		v.reason("%s", v.retry(b.From))
	}
}

func (b *Rollback) text() string {
	if b.Who != nil {
		return "rolled back by " + b.Who.Name + because(b.Reason)
	}
	return "rolled back" + because(b.Reason)
}

// RollbackRelease takes a release back in each channel that it entered and is at (A22): to the
// channel's previous good target, past all gates, which is recorded. What of it is still to come is
// cancelled. An empty version is the newest release that is somewhere. Pinned and paused channels,
// and those without an earlier good target, are left alone and named.
func (s *State) RollbackRelease(version, channel string, who Who, reason string, now time.Time) (string, error) {
	r, err := s.toRollBack(version, channel)
	if err != nil {
		return "", err
	}
	var back, left []string
	for _, c := range s.phaseChannels(r, channel) {
		if !r.Phases[c].Phase.Entered() || r.Phases[c].Phase == maestro.RolledBack || !s.isAt(c, r) {
			continue
		}
		if why := s.notBack(c); why != "" {
			left = append(left, c+" ("+why+")")
			continue
		}
		i := s.Instance(c)
		to := i.lastGood(*i.Target)
		s.commitRollback(Change{Channel: c, Release: r.ID, Target: to, Cause: reason}, &who, now)
		s.noteAct(EventBypass, who, r, c, "gates of "+to.FullVersion+" are not asked on the way back", reason, now)
		back = append(back, c+" to "+to.FullVersion)
	}
	if len(back) == 0 {
		if len(left) == 0 {
			return "", fmt.Errorf("%s is the target nowhere: %s", r.FullVersion, phases(r))
		}
		return "", fmt.Errorf("%s cannot be rolled back: %s", r.FullVersion, strings.Join(left, ", "))
	}
	for _, c := range s.phaseChannels(r, channel) {
		if r.Phases[c].Phase == maestro.Pending {
			r.Phases[c] = &PhaseState{Phase: maestro.Cancelled, Since: now, Reason: "rolled back by " + who.Name + because(reason), CalledOff: true}
		}
	}
	text := fmt.Sprintf("%s goes back in %s", r.FullVersion, strings.Join(back, ", "))
	if len(left) > 0 {
		text += "; left alone: " + strings.Join(left, ", ")
	}
	return text, nil
}

// notBack says why a channel cannot be taken back now, or "".
func (s *State) notBack(channel string) string {
	i := s.Instance(channel)
	if p, ok := s.PauseOf(channel); ok {
		return "paused by " + p.By
	}
	if p, ok := s.PinOf(channel); ok {
		return "pinned by " + p.Who.Name
	}
	switch {
	case i.Rollback != nil && !i.Rollback.Failed.IsZero():
		return "it is a way back that failed: retry it, or release a fix"
	case i.Rollback != nil && !i.Converged:
		return "it is being gone back to"
	case i.lastGood(*i.Target) == nil:
		return "no earlier good target"
	}
	return ""
}

// toRollBack finds the release that is to be taken back: the one named, or the newest that entered a
// channel and is at it.
func (s *State) toRollBack(version, channel string) (*Release, error) {
	if version != "" {
		return s.find(version, channel)
	}
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	for n := len(s.Releases) - 1; n >= 0; n-- {
		r := s.Releases[n]
		for _, c := range s.phaseChannels(r, channel) {
			if p := r.Phases[c].Phase; p.Entered() && p != maestro.RolledBack && s.isAt(c, r) {
				return r, nil
			}
		}
	}
	return nil, fmt.Errorf("no release is in %s: there is nothing to roll back", s.scope(channel))
}

// liftBar lets a person try a release again where it was rolled back: it is the target once more.
func (s *State) liftBar(r *Release, channel string, who Who, now time.Time) error {
	i := s.Instance(channel)
	if i.Rollback == nil || i.Rollback.Release != r.ID || r.Payloads[channel] == "" {
		return fmt.Errorf("what it was rolled back to was replaced")
	}
	if p, ok := s.PauseOf(channel); ok {
		return fmt.Errorf("paused by %s", p.By)
	}
	if p, ok := s.PinOf(channel); ok {
		return fmt.Errorf("pinned by %s", p.Who.Name)
	}
	s.Record(now, channel, "target "+from(i.Target)+r.FullVersion+" (retried by "+who.Name+")")
	s.noteAct(EventTarget, who, r, channel, "target "+from(i.Target)+r.FullVersion, "retried", now)
	i.setTarget(r.Target(channel), now)
	return nil
}
