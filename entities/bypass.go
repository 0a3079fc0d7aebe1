package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// This file holds bypasses: a person lets one release pass one condition of one channel, with a
// reason that stays visible (A15).

// bypassed is the bypass of a condition of a channel, or nil.
func (r *Release) bypassed(channel, condition string) *Bypass {
	for i := range r.Bypasses {
		if b := &r.Bypasses[i]; b.Channel == channel && b.Condition == condition {
			return b
		}
	}
	return nil
}

// judgement is what a bypassed condition says.
func (b *Bypass) judgement() Judgement {
	return Judgement{ID: b.Condition, Verdict: Pass, Reason: b.text(), Since: b.At}
}

func (b *Bypass) text() string { return "bypassed by " + b.Who.Name + because(b.Reason) }

// bypassable: a person's word cannot make room where something is going on, nor hold a lease, nor
// unpin, nor undo a way back.
func bypassable(id string) bool {
	switch id {
	case "in-progress", "lease", "preflight", "pin", "rollback", "drain", "render":
		return false
	}
	return true
}

// Waives implements maestro.Release: a bypassed condition names channels that the release need not
// have succeeded in.
func (r *Release) Waives(channel, condition string) bool {
	return r.bypassed(channel, condition) != nil
}

// AddBypass lets a release pass a condition of a channel. A condition that passes already is not
// bypassed, and the answer says so.
func (s *State) AddBypass(version string, b Bypass) (string, error) {
	r, err := s.findOpen(version, b.Channel)
	if err != nil {
		return "", err
	}
	if err := s.checkBypass(r, b); err != nil {
		return "", err
	}
	v := s.viewOf(b.Channel, r, b.At)
	if known := v.conditionIDs(r); !slices.Contains(known, b.Condition) {
		if !bypassable(b.Condition) {
			return "", fmt.Errorf("%s cannot be bypassed; expected %s", b.Condition, oneOf(known))
		}
		return "", fmt.Errorf("%s has no condition %q; expected %s", b.Channel, b.Condition, oneOf(known))
	}
	if old := r.bypassed(b.Channel, b.Condition); old != nil {
		return fmt.Sprintf("%s of %s is already %s", b.Condition, b.Channel, old.text()), nil
	}
	if r.Phases[b.Channel].Phase == maestro.Pending {
		for _, j := range v.pass(r).gates {
			if j.ID == b.Condition && j.Verdict == Pass {
				return fmt.Sprintf("%s passes already%s; nothing is bypassed", b.Condition, because(j.Reason)), nil
			}
		}
	}
	r.Bypasses = append(r.Bypasses, b)
	if i := s.Instance(b.Channel); i.Preflight != nil && !i.Preflight.Running && !i.Preflight.Window {
		i.Preflight = nil // one that did not pass asks for a pause; what it did not pass may be bypassed now
	}
	text := fmt.Sprintf("%s passes %s of %s, %s", r.FullVersion, b.Condition, b.Channel, b.text())
	s.Record(b.At, b.Channel, text)
	s.Note(AuditLine{
		At: b.At, Kind: EventBypass, Who: &b.Who, Channel: b.Channel, Release: r.ID, Version: r.FullVersion,
		Text: "bypassed " + b.Condition, Reason: b.Reason,
	})
	return text, nil
}

// checkBypass refuses a bypass that is not whole, or that comes too late.
func (s *State) checkBypass(r *Release, b Bypass) error {
	switch {
	case b.Channel == "":
		return fmt.Errorf("no release channel given; expected %s", oneOf(s.Spec.channelNames()))
	case b.Who.Name == "":
		return fmt.Errorf("nobody is named who bypasses it")
	case strings.TrimSpace(b.Reason) == "":
		return fmt.Errorf("a bypass needs a reason")
	case r.Phases[b.Channel] == nil:
		return fmt.Errorf("%s does not concern %s", r.FullVersion, b.Channel)
	case r.Phases[b.Channel].Phase.Over():
		return fmt.Errorf("%s is over in %s: %s", r.FullVersion, b.Channel, r.Phases[b.Channel].Phase)
	}
	return nil
}

// viewOf looks at one release in one channel, whoever is next in line there. Nothing that it starts
// is carried out.
func (s *State) viewOf(channel string, r *Release, now time.Time) *view {
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		if c.Name != channel {
			continue
		}
		v := &view{s: s, d: &Decision{}, spec: c, inst: s.Instance(channel), now: now, runtime: s.Spec.Runtimes[c.Runtime]}
		v.mode.Drain = true
		v.turn = maestro.Turn{Holder: maestro.None, Newest: maestro.None, Next: maestro.None}
		if turns := turnsOf(s); turns != nil {
			v.turn = turns[n]
		}
		v.out.Channel = channel
		_, v.facts.Paused = s.PauseOf(channel)
		v.out.Current = ServiceInstance{v.inst}.Fetch(v.inst.Target)
		if v.turn.Next != maestro.None && s.Releases[v.turn.Next] != r {
			v.turn.Stuck = ""
		}
		return v
	}
	return nil
}

// conditionIDs are the conditions of a channel that a release may be let pass: all of them before it
// enters, and what can still fail it afterwards.
func (v *view) conditionIDs(r *Release) []string {
	var out []string
	entered := r.Phases[v.spec.Name].Phase != maestro.Pending
	if !entered {
		for _, c := range v.spec.Conditions {
			out = append(out, c.ID)
		}
	}
	for i := range v.spec.Checks {
		c := &v.spec.Checks[i]
		fails := c.at(Deployment)
		if !entered || c.at(PostDeployment) != nil || fails != nil && fails.Fails {
			out = append(out, c.ID)
		}
	}
	for i := range v.spec.Extensions {
		if e := &v.spec.Extensions[i]; !entered || e.Stage == PostDeployment {
			out = append(out, extensionID(e.Name))
		}
	}
	if v.runtime.ApproveApplies {
		out = append(out, applyApproval(v.spec.Name))
	}
	if !entered {
		out = append(out, v.runtimeConditions()...)
	}
	return out
}

// runtimeConditions are those that no rule names: what must be known of the channel, and the way to it.
func (v *view) runtimeConditions() []string {
	var out []string
	if v.turn.Stuck != "" {
		out = append(out, "upstream")
	}
	if v.runtime.Looks {
		out = append(out, "reading")
	}
	if v.runtime.Mode == FetchExitCode {
		out = append(out, "asked")
	}
	return out
}
