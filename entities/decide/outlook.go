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
	maxParts    = 3   // of each: clauses, channels of a clause, gates of a channel
	maxGateText = 160 // bytes of the text of one gate
	maxOutlook  = 1000
)

// Outlook describes what happens next in channels: what enters there, or what it waits for. version is the release that the action was
// about; "": the next in line. At most 1,000 bytes and a character, or "".
func Outlook(s *state.State, version string, channels []string, now time.Time) string {
	if s.Spec == nil {
		return ""
	}
	f := &outlook{s: s, d: Decide(s, now, Mode{}), now: now}
	if version != "" {
		f.release, _ = s.FindOpen(version, "")
	}
	var clauses []clause
	for n := range f.d.Channels {
		c := &f.d.Channels[n]
		if _, declared := s.Spec.Channel(c.Channel); declared && slices.Contains(channels, c.Channel) {
			clauses = f.add(clauses, c)
		}
	}
	return f.text(clauses)
}

// outlook is a state with the decision about it.
type outlook struct {
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

func (f *outlook) add(clauses []clause, c *ChannelDecision) []clause {
	next := f.clause(c)
	for n := range clauses {
		if clauses[n].before == next.before && clauses[n].after == next.after {
			clauses[n].channels = append(clauses[n].channels, c.Channel)
			return clauses
		}
	}
	next.channels = []string{c.Channel}
	return append(clauses, next)
}

func (f *outlook) text(clauses []clause) string {
	var parts []string
	for n, c := range clauses {
		if n == maxParts {
			parts = append(parts, fmt.Sprintf("for more: converge explain %s/%s", f.s.Application, f.s.Title()))
			break
		}
		parts = append(parts, c.before+firstFew(c.channels, ", ")+c.after)
	}
	return entities.Clip(strings.Join(parts, ". "), maxOutlook)
}

// clause describes what happens next in one channel.
func (f *outlook) clause(c *ChannelDecision) clause {
	p, paused := pauseOf(f.s, c.Channel)
	pending := f.release != nil && f.phase(c.Channel) == maestro.Pending
	switch {
	case paused && c.Status == entities.StatusPaused:
		return clause{before: "nothing is applied in ", after: ", paused by " + p.By + ", until: " + f.s.ResumeCommand(p) + f.heldByPause(c, pending)}
	case f.changeClause(c.Channel) != nil:
		return *f.changeClause(c.Channel)
	case pending && f.goesBeforeNext(c):
		return f.describeEntry(f.release, f.releaseGates(c.Channel))
	case pending && c.Next != nil && c.Next != f.release:
		return clause{before: f.release.FullVersion + " waits behind " + c.Next.FullVersion + " in ", after: entities.Because(f.waitsFor(c.Gates))}
	case c.Next != nil:
		return f.describeEntry(c.Next, c.Gates)
	case pending:
		return clause{before: f.release.FullVersion + " waits in "}
	}
	return f.still(c)
}

// describeEntry states what the release next in a channel waits for.
func (f *outlook) describeEntry(r *state.Release, gates []Judgement) clause {
	text := f.waitsFor(gates)
	switch {
	case slices.ContainsFunc(gates, func(j Judgement) bool { return j.Verdict == entities.Fail }):
		return clause{before: r.FullVersion + " is blocked in ", after: entities.Because(text)}
	case text != "":
		text = ", after: " + text
	}
	return clause{before: r.FullVersion + " enters ", after: " next" + text}
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

// changeClause is the clause of a channel whose target is set now, or nil.
func (f *outlook) changeClause(channel string) *clause {
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

// waitsFor lists what the release next in line waits for: the evaluated gates that do not pass, then those that are evaluated after them.
func (f *outlook) waitsFor(gates []Judgement) string {
	var evaluated, later []string
	v := view{tables: standard}
	for _, j := range gates {
		switch {
		case j.Verdict == entities.Pass:
		case j.Code == CodeNotEvaluated:
			later = append(later, j.ID)
		case len(evaluated) == 0 && j.Unblock != "" && len(j.Reason) <= maxGateText:
			evaluated = append(evaluated, v.judgementText(j)+" ("+j.Unblock+")")
		default:
			evaluated = append(evaluated, entities.ClipMessage(v.judgementText(j), maxGateText))
		}
	}
	var parts []string
	if len(evaluated) > 0 {
		parts = append(parts, firstFew(evaluated, "; "))
	}
	if len(later) > 0 {
		parts = append(parts, "then "+firstFew(later, ", "))
	}
	return strings.Join(parts, "; ")
}

// still describes a channel for which no release waits.
func (f *outlook) still(c *ChannelDecision) clause {
	version, cancelled := "", false
	for _, i := range f.s.InstancesIn(c.Channel) {
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
		return clause{before: string(c.Status) + " in ", after: entities.Because(entities.ClipMessage(c.Reasons[0].Text, maxGateText))}
	case pinned:
		return clause{before: version + " stays in ", after: ", pinned by " + pin.Who.Name}
	}
	return clause{before: version + " stays in "}
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
