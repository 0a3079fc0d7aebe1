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

// This file describes the consequence of an action to the person who did it, and what still holds it (I1). The text is for people: no
// code depends on it, and it is not stored.

// Bounds of the text: for more there is `explain`.
const (
	followedMost = 3   // of each: clauses, channels of a clause, gates of a channel
	followedText = 160 // bytes of the text of one gate
	followedAll  = 1000
)

// Follows describes what happens next in channels: what enters there, or what it waits for. version is the release that the action was
// about; "": the next in line. At most 1,000 bytes and a character, or "".
func Follows(s *state.State, version string, channels []string, now time.Time) string {
	if s.Spec == nil {
		return ""
	}
	f := &following{s: s, d: Decide(s, now, Mode{}), now: now}
	if version != "" {
		f.release, _ = s.FindOpen(version, "")
	}
	var said []clause
	for n := range f.d.Channels {
		c := &f.d.Channels[n]
		if _, declared := s.Spec.Channel(c.Channel); declared && slices.Contains(channels, c.Channel) {
			said = f.add(said, c)
		}
	}
	return f.text(said)
}

// following is a state with the decision about it.
type following struct {
	s       *state.State
	d       *Decision
	now     time.Time
	release *state.Release // that the action was about, or nil
}

// clause is a statement about the channels that share it: their names are between the two texts.
type clause struct {
	before, after string
	channels      []string
}

func (f *following) add(said []clause, c *ChannelDecision) []clause {
	next := f.clause(c)
	for n := range said {
		if said[n].before == next.before && said[n].after == next.after {
			said[n].channels = append(said[n].channels, c.Channel)
			return said
		}
	}
	next.channels = []string{c.Channel}
	return append(said, next)
}

func (f *following) text(said []clause) string {
	var parts []string
	for n, c := range said {
		if n == followedMost {
			parts = append(parts, fmt.Sprintf("for more: converge explain %s/%s", f.s.Application, f.s.Title()))
			break
		}
		parts = append(parts, c.before+few(c.channels, ", ")+c.after)
	}
	return entities.Clip(strings.Join(parts, ". "), followedAll)
}

// clause describes what happens next in one channel.
func (f *following) clause(c *ChannelDecision) clause {
	p, paused := pauseOf(f.s, c.Channel)
	mine := f.release != nil && f.phase(c.Channel) == maestro.Pending
	switch {
	case paused && c.Status == entities.StatusPaused:
		return clause{before: "nothing is applied in ", after: ", paused by " + p.By + ", until: " + f.s.ResumeWith(p) + f.waits(c, mine)}
	case f.change(c.Channel) != nil:
		return *f.change(c.Channel)
	case mine && f.goesAhead(c):
		return f.enters(f.release, f.gatesOf(c.Channel))
	case mine && c.Next != nil && c.Next != f.release:
		return clause{before: f.release.FullVersion + " waits behind " + c.Next.FullVersion + " in ", after: entities.Because(f.before(c.Gates))}
	case c.Next != nil:
		return f.enters(c.Next, c.Gates)
	case mine:
		return clause{before: f.release.FullVersion + " waits in "}
	}
	return f.still(c)
}

// enters states what the release next in a channel waits for.
func (f *following) enters(r *state.Release, gates []Judgement) clause {
	text := f.before(gates)
	switch {
	case slices.ContainsFunc(gates, func(j Judgement) bool { return j.Verdict == entities.Fail }):
		return clause{before: r.FullVersion + " is blocked in ", after: entities.Because(text)}
	case text != "":
		text = ", after: " + text
	}
	return clause{before: r.FullVersion + " enters ", after: " next" + text}
}

// goesAhead reports whether the release has not arrived yet and will go before the one that is next in a channel now: that one is older,
// and waits for people or cannot enter unless a person acts.
func (f *following) goesAhead(c *ChannelDecision) bool {
	if c.Next == nil || c.Next == f.release || c.Next.Line() != f.release.Line() {
		return false
	}
	strategy := f.s.Strategy(f.release)
	return (strategy == maestro.Latest || strategy == maestro.Immediate) && f.s.Strategy(c.Next) != maestro.Returning &&
		slices.Index(f.s.Releases, f.release) > slices.Index(f.s.Releases, c.Next) &&
		slices.ContainsFunc(c.Gates, func(j Judgement) bool {
			return j.Verdict == entities.Fail || j.Kind == KindApproval && j.Verdict == entities.Wait
		})
}

// gatesOf are the gates of the release in a channel in which another one is next.
func (f *following) gatesOf(channel string) []Judgement {
	spec, _ := f.s.Spec.Channel(channel)
	v := view{tables: standard, s: f.s, spec: &spec, now: f.now, healths: &healths{}, turn: noTurn, d: &Decision{}, out: &ChannelDecision{}}
	v.gather()
	return v.pass(f.release, nil).gates
}

// waits states what a pause holds in a channel.
func (f *following) waits(c *ChannelDecision, mine bool) string {
	switch {
	case mine:
		return "; " + f.release.FullVersion + " waits"
	case c.Next != nil:
		return "; " + c.Next.FullVersion + " waits"
	case slices.ContainsFunc(f.s.In(c.Channel), func(i *state.Instance) bool { return i.Delivery.Apply.Running }):
		return "; the running apply finishes"
	}
	return ""
}

// change is the clause of a channel whose target is set now, or nil.
func (f *following) change(channel string) *clause {
	for _, c := range f.d.Changes {
		switch {
		case c.Channel != channel:
		case c.Kind == state.ChangeUnchanged:
			return &clause{before: "nothing changes in ", after: entities.Because(c.Cause)}
		case len(c.Moves) == 0:
		case c.Kind == state.ChangePromote:
			return &clause{before: c.Moves[0].Target.FullVersion + " enters ", after: " now"}
		case c.Kind == state.ChangeRollback:
			return &clause{before: "the rollback to " + c.Moves[0].Target.FullVersion + " starts in ", after: " now"}
		default:
			return &clause{before: c.Moves[0].Target.FullVersion + " is deployed to ", after: " now"}
		}
	}
	return nil
}

// before lists what the release next in line waits for: the evaluated gates that do not pass, then those that are evaluated after them.
func (f *following) before(gates []Judgement) string {
	var asked, later []string
	v := view{tables: standard}
	for _, j := range gates {
		switch {
		case j.Verdict == entities.Pass:
		case j.Code == CodeNotAsked:
			later = append(later, j.ID)
		case len(asked) == 0 && j.Unblock != "" && len(j.Reason) <= followedText:
			asked = append(asked, v.line(j)+" ("+j.Unblock+")")
		default:
			asked = append(asked, entities.Clip(v.line(j), followedText))
		}
	}
	var parts []string
	if len(asked) > 0 {
		parts = append(parts, few(asked, "; "))
	}
	if len(later) > 0 {
		parts = append(parts, "then "+few(later, ", "))
	}
	return strings.Join(parts, "; ")
}

// still describes a channel for which no release waits.
func (f *following) still(c *ChannelDecision) clause {
	version, cancelled := "", false
	for _, i := range f.s.In(c.Channel) {
		cancelled = cancelled || i.Delivery.Cancelled != ""
		if i.Delivery.Target != nil {
			version = i.Delivery.Target.FullVersion
		}
	}
	switch pin, pinned := f.s.PinOf(c.Channel); {
	case version == "":
		return clause{before: "nothing was released to ", after: " yet"}
	case c.Status == entities.StatusConverging && cancelled:
		return clause{before: "the apply of " + version + " is being ended in "}
	case c.Status == entities.StatusConverging, c.Status == entities.StatusSuspended && cancelled:
		return clause{before: version + " is being deployed to "}
	case c.Status == entities.StatusRollingBack:
		return clause{before: "rolling back to " + version + " in "}
	case c.Status != entities.StatusConverged && len(c.Reasons) > 0:
		return clause{before: string(c.Status) + " in ", after: entities.Because(entities.Clip(c.Reasons[0].Text, followedText))}
	case pinned:
		return clause{before: version + " stays in ", after: ", pinned by " + pin.Who.Name}
	}
	return clause{before: version + " stays in "}
}

func (f *following) phase(channel string) maestro.Phase {
	p, _ := f.release.PhaseIn(channel)
	return p
}

// few are the first parts of a text, and the number of the others.
func few(parts []string, sep string) string {
	if more := len(parts) - followedMost; more > 0 {
		parts = append(parts[:followedMost:followedMost], fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, sep)
}
