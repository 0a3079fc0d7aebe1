package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file takes in what evaluating checks gave: while a release waits, right before a target is set, and
// at the end of a post-deployment window.

// Evaluation of a check for a release; nil: for a repair of the present target. In a fleet it is about what is, or comes, to the first
// instance that has something, or gets it, and is not on a runtime that is drained.
func (s *State) Evaluation(channel *entities.ChannelSpec, c *entities.Check, r *Release) entities.Evaluation {
	e := entities.Evaluation{Channel: channel.Name, ID: c.ID, Kind: c.Kind, Definition: c.Definition, Interval: c.Interval}
	if len(channel.Instances) == 0 {
		return e
	}
	first := s.First(channel, r)
	if c.Remote {
		e.Runtime = first.Runtime
	}
	id := channel.ID(first)
	if i := s.Instances[id]; i != nil && i.Delivery.Target != nil {
		t := i.Delivery.Target
		e.FullVersion, e.Payload, e.Present = t.FullVersion, t.Payload, t.Payload
	}
	if r != nil {
		t := r.Target(id)
		e.Release, e.FullVersion, e.Payload = r.ID, t.FullVersion, t.Payload
	}
	if c.Kind == entities.CheckDeniedCommits {
		e.Since = s.OldestIncarnation(channel.Name)
		if e.Incarnation = e.Since; r != nil {
			e.Incarnation = cmp.Or(r.Target(id).Incarnation, r.Incarnation)
		}
	}
	return e
}

// OldestIncarnation is the least of those that the targets in a channel are of; 0: it has none.
func (s *State) OldestIncarnation(channel string) (least int64) {
	for _, i := range s.In(channel) {
		if t := i.Delivery.Target; t != nil && (least == 0 || t.Incarnation < least) {
			least = t.Incarnation
		}
	}
	return least
}

// First is the instance that a channel is judged by: the first one that a release, where there is one, brings something to, and that has
// something, where there is none; and that is not on a runtime that is drained. If there is no such one, the first.
func (s *State) First(channel *entities.ChannelSpec, r *Release) entities.InstanceSpec {
	for _, spec := range channel.Instances {
		id := channel.ID(spec)
		i := s.Instances[id]
		switch {
		case i != nil && i.Drained:
		case r != nil && r.Target(id).Payload != "", r == nil && i != nil && i.Delivery.Target != nil:
			return spec
		}
	}
	return channel.Instances[0]
}

// Known fills in what is known of a check.
func (s *State) Known(e entities.Evaluation) entities.Evaluation {
	if st := s.Channels[e.Channel].Reading(e); st != nil {
		e.Known, e.Errors, e.Said, e.SaidAt = st.Digest(), st.Errors, st.Said(), st.At
	}
	return e
}

// Reading is what is known of a check, or nil: of this release, and under this definition.
func (c *Channel) Reading(e entities.Evaluation) *CheckState {
	if c == nil {
		return nil
	}
	st := c.Checks[e.ReadingKey()]
	if st == nil || st.Release != e.Release || st.Definition != e.Definition || st.Among != e.Among() {
		return nil
	}
	return st
}

// Evaluated takes in what evaluating a check gave. A reading of a release that is over here, of a check
// that is no longer declared so, or older than what is known, changes nothing.
func (s *State) Evaluated(e entities.Evaluation, r entities.CheckReading, now time.Time) {
	c := s.Channels[e.Channel]
	if c == nil || !s.concerns(e) {
		return
	}
	if r.At.IsZero() {
		r.At = now
	}
	if !r.Verdict.Known() { // of a newer version
		r.Verdict, r.Reason = entities.Error, fmt.Sprintf("verdict %q is unknown to this version", r.Verdict)
	}
	before := c.Reading(e)
	if before != nil && r.At.Before(before.At) {
		return
	}
	st := &CheckState{Release: e.Release, Definition: e.Definition, Among: e.Among(), CheckReading: r, Since: now}
	if before == nil || before.Verdict != r.Verdict {
		before = &CheckState{Since: now}
	}
	st.Since, st.Told = before.Since, before.Told
	if r.Verdict == entities.Error {
		st.Errors = max(r.Errors, before.Errors+1)
	}
	if c.Checks == nil {
		c.Checks = map[string]*CheckState{}
	}
	c.Checks[e.ReadingKey()] = st
	if r := s.ReleaseByID(e.Release); r != nil {
		r.Phases[e.Channel].refuse(e.ID, st.Verdict)
	}
}

// Interval of a check of a channel, by the key of its readings; 0: it is not declared.
func (s *State) Interval(channel, reading string) time.Duration {
	if s.Spec == nil {
		return 0
	}
	spec, _ := s.Spec.Channel(channel)
	for n := range spec.Checks {
		if c := &spec.Checks[n]; reading == c.ID || reading == entities.RepairKey(c.ID) {
			return c.Interval
		}
	}
	return 0
}

// Untold are the readings of checks that could not be evaluated so often in a row that people are to hear of it: three
// times, and each time that this doubles (D16).
func (s *State) Untold() []Untold {
	var out []Untold
	for _, channel := range entities.SortedKeys(s.Channels) {
		checks := s.Channels[channel].Checks
		for _, key := range entities.SortedKeys(checks) {
			if st := checks[key]; st.Verdict == entities.Error && entities.ErrorsUntold(st.Errors, st.Told) {
				out = append(out, Untold{channel, strings.TrimPrefix(key, entities.RepairKey("")), st})
			}
		}
	}
	return out
}

// Untold is a check that people are to hear of.
type Untold struct {
	Channel, Check string
	*CheckState
}

// Tell says that a check cannot be evaluated: in the journal, in the audit trail, and to those who asked to be notified.
func (s *State) Tell(u Untold, now time.Time) {
	u.Told = u.Errors
	text := fmt.Sprintf("%s cannot be evaluated, %d times in a row; it is tried again after %s",
		u.Check, u.Errors, entities.ErrorPause(s.Interval(u.Channel, u.Check), u.Errors))
	s.Record(now, u.Channel, text+": "+u.Reason)
	line := entities.AuditLine{At: now, Kind: entities.EventError, Channel: u.Channel, Release: u.Release, Text: text, Reason: u.Reason}
	if r := s.ReleaseByID(u.Release); r != nil {
		line.Version = r.FullVersion
	}
	s.note(line)
}

// concerns: the check is declared as it was asked, and what it was asked about is still going on.
func (s *State) concerns(e entities.Evaluation) bool {
	spec, _ := s.Spec.Channel(e.Channel)
	for i := range spec.Checks {
		if c := &spec.Checks[i]; c.ID != e.ID || c.Definition != e.Definition {
			continue
		}
		if e.Release == "" {
			return true
		}
		r := s.ReleaseByID(e.Release)
		return r != nil && r.Phases[e.Channel] != nil &&
			(r.Phases[e.Channel].Phase == maestro.Pending || r.Phases[e.Channel].Phase == maestro.InProgress)
	}
	return false
}

// refuse notes whether a check says FAIL of a release that is still to come.
func (p *PhaseState) refuse(check string, v entities.Verdict) {
	if p.Phase != maestro.Pending {
		return
	}
	p.Refused = slices.DeleteFunc(slices.Clone(p.Refused), func(id string) bool { return id == check })
	if v == entities.Fail {
		p.Refused = append(p.Refused, check)
	}
}

// preflightPause is the least time after a preflight that did not pass.
const preflightPause = 10 * time.Second

// answer is what a preflight read of a check. One without a reading could not be evaluated.
func answer(e entities.Evaluation, readings map[string]entities.CheckReading, now time.Time) entities.CheckReading {
	r, ok := readings[e.Key()]
	if !ok {
		r = entities.CheckReading{Verdict: entities.Error, Reason: "the preflight could not evaluate it"}
	}
	r.At = now
	return r
}

// PreflightDone takes in what a preflight read, by Evaluation.Key. The decision made in the same moment may
// set the target; a later one evaluates again.
func (s *State) PreflightDone(op PreflightOp, readings map[string]entities.CheckReading, now time.Time) {
	if op.Window {
		s.windowRead(op, readings, now)
		return
	}
	c := s.Channels[op.Channel]
	if c == nil {
		return // the channel was removed meanwhile
	}
	p := &Preflight{Release: op.Release, Done: now}
	for _, e := range op.Checks {
		r := answer(e, readings, now)
		s.Evaluated(e, r, now)
		if r.Verdict != entities.Pass {
			p.Next = now.Add(max(e.Interval, preflightPause))
		}
		p.Read = append(p.Read, e.ID+"@"+e.Definition)
	}
	c.Preflight = p
}

// windowRead takes in the fresh reading at the end of windows: what passes has soaked, an error is evaluated
// again after the check's interval, and anything else fails the channel.
func (s *State) windowRead(op PreflightOp, readings map[string]entities.CheckReading, now time.Time) {
	c := s.Channels[op.Channel]
	if c == nil {
		return // the channel was removed meanwhile
	}
	spec, declared := s.Spec.Channel(op.Channel)
	if p := c.Preflight; p == nil || !p.Running || !p.Window || p.Release != op.Release {
		return
	}
	c.Preflight = nil
	if !declared || !op.still(c) {
		return
	}
	again := time.Duration(0)
	together := !slices.ContainsFunc(op.Checks, func(e entities.Evaluation) bool { return answer(e, readings, now).Verdict != entities.Pass })
	for _, e := range op.Checks {
		r := answer(e, readings, now)
		s.Evaluated(e, r, now)
		switch {
		case r.Verdict == entities.Error && (again == 0 || e.Interval < again):
			again = max(e.Interval, time.Second)
		case r.Verdict == entities.Pass:
			c.soaked(&spec, e.ID, now, together)
		}
	}
	if again > 0 {
		c.Preflight = &Preflight{Release: op.Release, Window: true, Next: now.Add(again)}
	}
}

// still tells whether what was asked about at the end of a window is there, and did not begin anew meanwhile.
func (op PreflightOp) still(c *Channel) bool {
	return !c.StableSince.IsZero() && op.StableSince.Equal(c.StableSince)
}

// soaked notes that the windows of a check which have ended did so with a fresh PASS. Postconditions have to pass together.
func (c *Channel) soaked(spec *entities.ChannelSpec, check string, now time.Time, together bool) {
	for _, w := range spec.Windows(c.StableSince) {
		if w.Check.ID == check && !now.Before(w.End) && (w.Until.IsZero() || together) && !slices.Contains(c.Soaked, w.Key) {
			c.Soaked = append(c.Soaked, w.Key)
		}
	}
}

// Wanted is what the gates of a channel ask for after a decision. It is no part of the state: what nobody
// asks for any more is forgotten by it.
type Wanted struct {
	Release string   // that checks are asked about
	Checks  []string // ids
	Repairs []string // ids of checks asked about a repair
	// Selects is the release for which a command is asked which of the Candidates (as entities.Evaluation has them) are next.
	Selects, Candidates string
	// Besides is the release that a preflight alone asks about, while the checks are asked about what yields to it.
	Besides string
}

// Of tells whether checks are asked about a release.
func (w *Wanted) Of(release string) bool {
	return release == w.Release || release != "" && release == w.Besides
}

// asks tells whether a reading of a release is wanted; "": of a repair.
func (w *Wanted) asks(key, release string) bool {
	switch {
	case release == "":
		return slices.Contains(w.Repairs, strings.TrimPrefix(key, entities.RepairKey("")))
	case key == entities.SelectionID:
		return release == w.Selects
	}
	return release == w.Release && slices.Contains(w.Checks, key)
}

// Forget drops what the gates of a channel do not ask for any more: readings live as long as somebody
// waits for them.
func (s *State) Forget(channel string, w *Wanted) {
	c := s.Channels[channel]
	if c == nil || c.Checks == nil && c.Preflight == nil {
		return
	}
	if w == nil {
		w = &Wanted{}
	}
	for _, key := range entities.SortedKeys(c.Checks) {
		if !w.asks(key, c.Checks[key].Release) {
			delete(c.Checks, key)
		}
	}
	if len(c.Checks) == 0 {
		c.Checks = nil
	}
	if p := c.Preflight; p != nil && (p.used() || !p.Running && !w.Of(p.Release)) {
		c.Preflight = nil
	}
}

// used: the decision that follows a preflight has been made. What it read holds no longer, whether
// the target was set or not; only that the next one is not to come too early is remembered.
func (p *Preflight) used() bool { return !p.Running && !p.Window && p.Next.IsZero() }
