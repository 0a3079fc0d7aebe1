package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// This file describes the consequence of an action to the person who did it, and what still holds it (I1). The text is for people: no
// code depends on it, and it is not stored.

// Bounds of the text: for more there is `explain`.
const (
	maxParts    = 3   // of each: lines, channels of a line, gates of a channel
	maxGateText = 160 // bytes of the text of one gate
	maxLine     = 1000
)

// Outlook describes what happens next in channels: what enters there, or what it waits for, in a line for each channel, or for several for
// which it is the same. A command that helps is on a line of its own. version is the release that the action was about; "": the next in
// line. At most seven lines of 1,000 bytes and a character.
func Outlook(s *state.State, version string, channels []string, now time.Time) []string {
	if s.Spec == nil {
		return nil
	}
	f := &outlook{s: s, d: Decide(s, now, Mode{}), now: now}
	if version != "" {
		f.release, _ = s.FindOpen(version, "")
	}
	var all []prospect
	for n := range f.d.Channels {
		c := &f.d.Channels[n]
		if _, declared := s.Spec.Channel(c.Channel); declared && slices.Contains(channels, c.Channel) {
			all = addProspect(all, f.prospect(c), c.Channel)
		}
	}
	return f.lines(all)
}

// outlook is a state with the decision about it.
type outlook struct {
	s       *state.State
	d       *Decision
	now     time.Time
	release *state.Release // that the action was about, or nil
}

// prospect is what happens next in the channels that share it, and a command that helps, or "".
type prospect struct {
	text, command string
	channels      []string
}

func addProspect(all []prospect, next prospect, channel string) []prospect {
	for n := range all {
		if all[n].text == next.text && all[n].command == next.command {
			all[n].channels = append(all[n].channels, channel)
			return all
		}
	}
	next.channels = []string{channel}
	return append(all, next)
}

func (f *outlook) lines(all []prospect) (lines []string) {
	for n, p := range all {
		if n == maxParts {
			lines = append(lines, fmt.Sprintf("for more: converge explain %s/%s", f.s.Application, f.s.Title()))
			break
		}
		lines = append(lines, entities.Clip(firstFew(p.channels, ", ")+": "+p.text, maxLine))
		if p.command != "" {
			lines = append(lines, "  "+entities.Clip(p.command, maxLine))
		}
	}
	return lines
}

// prospect describes what happens next in one channel.
func (f *outlook) prospect(c *ChannelDecision) prospect {
	p, paused := pauseOf(f.s, c.Channel)
	pending := f.release != nil && f.phase(c.Channel) == maestro.Pending
	switch {
	case paused && c.Status == entities.StatusPaused:
		return prospect{text: "paused by " + p.By + f.heldByPause(c, pending), command: f.s.ResumeCommand(p)}
	case f.changeNow(c.Channel) != "":
		return prospect{text: f.changeNow(c.Channel)}
	case pending && f.goesBeforeNext(c):
		return describeEntry(f.release, f.releaseGates(c.Channel))
	case pending && c.Next != nil && c.Next != f.release:
		what, command := waitsFor(c.Gates)
		return prospect{text: f.release.FullVersion + " waits behind " + c.Next.FullVersion + whichWaits(what), command: command}
	case c.Next != nil:
		return describeEntry(c.Next, c.Gates)
	case pending:
		return prospect{text: f.release.FullVersion + " waits"}
	}
	return f.still(c)
}

func whichWaits(what string) string {
	if what == "" {
		return ""
	}
	return ", which waits" + what
}

// describeEntry states what the release next in a channel waits for.
func describeEntry(r *state.Release, gates []Judgement) prospect {
	what, command := waitsFor(gates)
	switch {
	case slices.ContainsFunc(gates, func(j Judgement) bool { return j.Verdict == entities.Fail }):
		return prospect{text: r.FullVersion + " is blocked" + entities.Because(strings.TrimPrefix(strings.TrimPrefix(what, " for "), ": ")), command: command}
	case what == "":
		return prospect{text: r.FullVersion + " enters next"}
	}
	return prospect{text: r.FullVersion + " waits" + what, command: command}
}

// goesBeforeNext reports whether the release has not arrived yet and will go before the one that is next in a channel now: that one is
// older, and waits for people or cannot enter unless a person acts.
func (f *outlook) goesBeforeNext(c *ChannelDecision) bool {
	if c.Next == nil || c.Next == f.release || c.Next.Track() != f.release.Track() {
		return false
	}
	strategy := f.s.Strategy(f.release)
	return (strategy == maestro.Latest || strategy == maestro.Immediate) && f.s.Strategy(c.Next) != maestro.Returning &&
		slices.Index(f.s.Releases, f.release) > slices.Index(f.s.Releases, c.Next) &&
		slices.ContainsFunc(c.Gates, func(j Judgement) bool {
			return j.Verdict == entities.Fail || j.Kind == KindApproval && j.Verdict == entities.Wait
		})
}

// releaseGates are the gates of the release in a channel in which another one is next.
func (f *outlook) releaseGates(channel string) []Judgement {
	spec, _ := f.s.Spec.Channel(channel)
	v := view{tables: standard, s: f.s, spec: &spec, now: f.now, healths: &healthCache{}, slot: noSlot, d: &Decision{}, out: &ChannelDecision{}}
	v.gather()
	return v.evaluateGates(f.release, nil).gates
}

// heldByPause states what a pause holds in a channel.
func (f *outlook) heldByPause(c *ChannelDecision, pending bool) string {
	switch {
	case pending:
		return "; " + f.release.FullVersion + " waits"
	case c.Next != nil:
		return "; " + c.Next.FullVersion + " waits"
	case slices.ContainsFunc(f.s.InstancesIn(c.Channel), func(i *state.Instance) bool { return i.Delivery.Apply.Running }):
		return "; the running apply finishes"
	}
	return ""
}

// changeNow says how the target of a channel changes now; "": it does not.
func (f *outlook) changeNow(channel string) string {
	for _, c := range f.d.Changes {
		switch {
		case c.Channel != channel:
		case c.Kind == state.ChangeUnchanged:
			return "nothing changes" + entities.Because(c.Cause)
		case len(c.Moves) == 0:
		case c.Kind == state.ChangePromote:
			return c.Moves[0].Target.FullVersion + " enters now"
		case c.Kind == state.ChangeRollback:
			return "the rollback to " + c.Moves[0].Target.FullVersion + " starts now"
		default:
			return c.Moves[0].Target.FullVersion + " is deployed now"
		}
	}
	return ""
}

// waitsFor lists what the release next in line waits for, for the end of a sentence: the evaluated gates that do not pass, then those that
// are evaluated after them. command helps the first that a command helps.
func waitsFor(gates []Judgement) (what, command string) {
	var evaluated, later []string
	v, named := view{tables: standard}, false
	for _, j := range gates {
		switch {
		case j.Verdict == entities.Pass:
			continue
		case j.Code == CodeNotEvaluated:
			later = append(later, j.ID)
			continue
		}
		named = named || len(evaluated) == 0 && (len(j.Awaits) > 0 || !v.gate(j.Kind).plain)
		text := v.judgementText(j)
		if named && len(j.Awaits) > 0 {
			text = strings.Join(j.Awaits, ", ")
		}
		evaluated, command = append(evaluated, entities.ClipMessage(text, maxGateText)), cmp.Or(command, j.Unblock)
	}
	var parts []string
	if len(evaluated) > 0 {
		parts = append(parts, firstFew(evaluated, "; "))
	}
	if len(later) > 0 {
		parts, named = append(parts, "then "+firstFew(later, ", ")), named || len(evaluated) == 0
	}
	what = strings.TrimPrefix(strings.Join(parts, "; "), "then ")
	if named {
		return " for " + what, command
	}
	return entities.Because(what), command
}

// still describes a channel for which no release waits.
func (f *outlook) still(c *ChannelDecision) prospect {
	instances := f.s.InstancesIn(c.Channel)
	cancelled := slices.ContainsFunc(instances, func(i *state.Instance) bool { return i.Delivery.Cancelled != "" })
	all, moving := targetsOf(instances)
	stay, version := " stays", strings.Join(moving, ", ")
	if len(all) > 1 {
		stay = " stay"
	}
	switch pin, pinned := f.s.PinOf(c.Channel); {
	case len(all) == 0:
		return prospect{text: "nothing was released yet"}
	case c.Status == entities.StatusConverging && cancelled:
		return prospect{text: "the apply of " + version + " is being ended"}
	case c.Status == entities.StatusConverging, c.Status == entities.StatusSuspended && cancelled:
		return prospect{text: version + " is being deployed"}
	case c.Status == entities.StatusRollingBack:
		return prospect{text: "rolling back to " + version}
	case c.Status != entities.StatusConverged && len(c.Reasons) > 0:
		return prospect{text: string(c.Status) + entities.Because(entities.ClipMessage(c.Reasons[0].Text, maxGateText))}
	case pinned:
		return prospect{text: strings.Join(all, ", ") + stay + ", pinned by " + pin.Who.Name}
	}
	return prospect{text: strings.Join(all, ", ") + stay}
}

// targetsOf returns the versions that instances are to have, of which a fleet may have several, and those that are not there yet: all if
// everything is there.
func targetsOf(instances []*state.Instance) (all, moving []string) {
	for _, i := range instances {
		t := i.Delivery.Target
		if t == nil {
			continue
		}
		all = appendNew(all, t.FullVersion)
		if !i.Delivery.Converged {
			moving = appendNew(moving, t.FullVersion)
		}
	}
	if len(moving) == 0 {
		moving = all
	}
	return all, moving
}

func appendNew(list []string, text string) []string {
	if slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}

func (f *outlook) phase(channel string) maestro.Phase {
	p, _ := f.release.PhaseIn(channel)
	return p
}

// firstFew are the first parts of a text, and the number of the others.
func firstFew(parts []string, sep string) string {
	if more := len(parts) - maxParts; more > 0 {
		parts = append(parts[:maxParts:maxParts], fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, sep)
}
