package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// PinChannel holds a channel at its present target or at one of its earlier good ones, whatever is
// released, until it is unpinned (A17). A target that is not the present one is moved to without
// asking gates; a pause holds that. A release that is in progress elsewhere waits again.
func (s *State) PinChannel(version string, p Pin) (string, error) {
	if err := s.checkChannel(p.Channel); err != nil {
		return "", err
	}
	if p.Channel == "" {
		return "", fmt.Errorf("no channel given; expected %s", oneOf(s.Spec.channelNames()))
	}
	known := s.Instance(p.Channel).pinnable()
	at := slices.IndexFunc(known, func(t Target) bool { return t.FullVersion == version })
	if at < 0 {
		var names []string
		for _, t := range known {
			names = append(names, t.FullVersion)
		}
		return "", fmt.Errorf("%s was not converged at %q; expected %s", s.scope(p.Channel), version, oneOf(names))
	}
	p.Target = known[at]
	if old, ok := s.PinOf(p.Channel); ok && old.Target.Same(p.Target) {
		return fmt.Sprintf("%s is already pinned to %s by %s", s.scope(p.Channel), version, old.Who.Name), nil
	}
	s.Pins = append(s.otherPins(p.Channel), p)
	text := "pinned to " + version
	s.Record(p.At, p.Channel, text+" by "+p.Who.Name+because(p.Reason))
	s.Note(AuditLine{At: p.At, Kind: EventPin, Who: &p.Who, Channel: p.Channel, Version: version, Text: text, Reason: p.Reason})
	return s.scope(p.Channel) + " is " + text, nil
}

// UnpinChannel ends a pin: what was promoted before it comes back, what waited goes on.
func (s *State) UnpinChannel(channel string, who Who, reason string, now time.Time) (string, error) {
	p, ok := s.PinOf(channel)
	if !ok {
		if err := s.checkChannel(channel); err != nil {
			return "", err
		}
		return "", fmt.Errorf("%s is not pinned", s.scope(channel))
	}
	s.Pins = s.otherPins(channel)
	text := "unpinned from " + p.Target.FullVersion
	s.Record(now, channel, text+" by "+who.Name+because(reason))
	s.Note(AuditLine{At: now, Kind: EventPin, Who: &who, Channel: channel, Version: p.Target.FullVersion, Text: text, Reason: reason})
	return s.scope(channel) + " is " + text, nil
}

// PinOf returns the pin of a channel.
func (s *State) PinOf(channel string) (Pin, bool) {
	for _, p := range s.Pins {
		if p.Channel == channel {
			return p, true
		}
	}
	return Pin{}, false
}

func (s *State) otherPins(channel string) []Pin {
	return slices.DeleteFunc(slices.Clone(s.Pins), func(p Pin) bool { return p.Channel == channel })
}

// pinnable are the targets that a channel can be pinned to, the present one first, then from the
// newest good one.
func (i *Instance) pinnable() []Target {
	var out []Target
	add := func(t *Target) {
		if t != nil && !slices.ContainsFunc(out, t.Same) {
			out = append(out, *t)
		}
	}
	add(i.Target)
	add(i.LastGood)
	for n := len(i.Before) - 1; n >= 0; n-- {
		add(&i.Before[n])
	}
	return out
}

// PinnedAway is what a channel comes back to when it is unpinned.
type PinnedAway struct {
	Target   Target    `json:"target"`
	Rollback *Rollback `json:"rollback,omitempty"`
}

// pinGate holds what is released while the channel is pinned.
func (v *view) pinGate() (Judgement, bool) {
	p, ok := v.s.PinOf(v.spec.Name)
	if !ok {
		return Judgement{}, false
	}
	return Judgement{
		ID: "pin", Verdict: Wait, Reason: p.text(), Since: p.At,
		Unblock: fmt.Sprintf("converge unpin %s/%s %s", v.s.Application, v.s.Service, v.spec.Name),
	}, true
}

func (p Pin) text() string {
	return fmt.Sprintf("pinned to %s by %s%s", p.Target.FullVersion, p.Who.Name, because(p.Reason))
}

// moveToPin moves the channel to what it is pinned to, or back when it is pinned no longer. A pause
// holds both.
func (v *view) moveToPin() {
	if v.changed || v.facts.Paused || v.inst.Target == nil {
		return
	}
	p, pinned := v.s.PinOf(v.spec.Name)
	switch {
	case pinned && !v.inst.Target.Same(p.Target):
		id := ""
		if holder := v.release(v.turn.Holder); holder != nil {
			id = holder.ID
		}
		to := p.Target
		v.change(Change{Kind: ChangePin, Release: id, Target: &to, Cause: p.text()})
	case !pinned && v.inst.Away != nil:
		v.change(Change{Kind: ChangePin, Target: &v.inst.Away.Target, Cause: "unpinned"})
	}
}

// commitPin sets the target that a pin asks for, or the one that was left for it.
func (s *State) commitPin(c Change, now time.Time) {
	i := s.Instance(c.Channel)
	s.Record(now, c.Channel, "target "+from(i.Target)+c.Target.FullVersion+" ("+c.Cause+")")
	s.noteChange(Change{Channel: c.Channel, Target: c.Target, Cause: c.Cause}, EventTarget, "target "+from(i.Target)+c.Target.FullVersion, now)
	if _, pinned := s.PinOf(c.Channel); !pinned {
		back := i.Away
		i.returnTo(back.Target, now)
		i.Rollback = back.Rollback
		return
	}
	if r := s.ReleaseByID(c.Release); r != nil && !s.pinsTo(c.Channel, r) { // it comes back once unpinned
		r.Phases[c.Channel] = &PhaseState{Phase: maestro.Pending, Since: now, Reason: strings.SplitN(c.Cause, ":", 2)[0]}
	}
	away := i.Away
	if away == nil && (i.Converged || i.Rollback != nil) {
		away = &PinnedAway{Target: *i.Target, Rollback: i.Rollback}
		if away.Rollback != nil {
			away.Rollback.Failed = time.Time{}
		}
	}
	i.returnTo(*c.Target, now)
	if away != nil && away.Target.Same(*c.Target) {
		i.Rollback = away.Rollback
	} else {
		i.Away = away
	}
}

func (s *State) pinsTo(channel string, r *Release) bool {
	p, ok := s.PinOf(channel)
	return ok && p.Target.Same(r.Target(channel))
}

// returnTo sets a target that was there before: it is applied even when what is there looks like it,
// since what was just there may still be on its way.
func (i *Instance) returnTo(t Target, now time.Time) {
	i.setTarget(t, now)
	i.Return = true
}
