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

// This file records the results of checks: while a release waits, immediately before a target is set, and at the end of a post-deployment
// window.

// Evaluation of a check for a release; nil: for a repair of the current target. In a fleet it concerns the first instance that has a
// target, or gets one, and is not on a drained runtime.
func (s *State) Evaluation(channel *entities.ChannelSpec, c *entities.Check, r *Release) entities.Evaluation {
	e := entities.Evaluation{Channel: channel.Name, ID: c.ID, Kind: c.Kind, Definition: c.Definition, Interval: c.Interval}
	if len(channel.Instances) == 0 {
		return e
	}
	first := s.RepresentativeInstance(channel, r)
	if c.Remote {
		e.Runtime = first.Runtime
	}
	id := channel.ID(first)
	if i := s.Instances[id]; i != nil && i.Delivery.Target != nil {
		t := i.Delivery.Target
		e.FullVersion, e.Payload, e.CurrentPayload = t.FullVersion, t.Payload, t.Payload
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

// OldestIncarnation is the lowest incarnation of the targets in a channel; 0: none.
func (s *State) OldestIncarnation(channel string) (oldest int64) {
	for _, i := range s.InstancesIn(channel) {
		if t := i.Delivery.Target; t != nil && (oldest == 0 || t.Incarnation < oldest) {
			oldest = t.Incarnation
		}
	}
	return oldest
}

// RepresentativeInstance is the instance by which a channel is judged: the first one for which the release has a payload, or, without a
// release, the first one with a target. Instances on drained runtimes do not count. If there is none, it is the first declared instance.
func (s *State) RepresentativeInstance(channel *entities.ChannelSpec, r *Release) entities.InstanceSpec {
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

// WithKnownResult adds the last known result of a check.
func (s *State) WithKnownResult(e entities.Evaluation) entities.Evaluation {
	if st := s.Channels[e.Channel].LastReading(e); st != nil {
		e.KnownDigest, e.Errors, e.ReasonDigest, e.ReasonAt = st.Digest(), st.Errors, st.ReasonDigest(), st.At
		if st.Verdict == entities.Error {
			e.Retry = st.Retry
		}
	}
	return e
}

// LastReading is the last known result of a check, or nil: of this release, and with this definition.
func (c *Channel) LastReading(e entities.Evaluation) *CheckState {
	if c == nil {
		return nil
	}
	st := c.Checks[e.ReadingKey()]
	if st == nil || st.Release != e.Release || st.Definition != e.Definition || st.CandidatesDigest != e.CandidatesDigest() {
		return nil
	}
	return st
}

// RecordCheck records the result of a check. It ignores a reading of a release that is over here, of a check with another definition, or
// one that is older than the known reading.
func (s *State) RecordCheck(e entities.Evaluation, r entities.CheckReading, now time.Time) {
	c := s.Channels[e.Channel]
	if c == nil || !s.evaluationCurrent(e) {
		return
	}
	if r.At.IsZero() {
		r.At = now
	}
	if !r.Verdict.Known() { // of a newer version
		r.Verdict, r.Reason = entities.Error, fmt.Sprintf("verdict %q is unknown to this version", r.Verdict)
	}
	before := c.LastReading(e)
	if before != nil && r.At.Before(before.At) {
		return
	}
	st := &CheckState{Release: e.Release, Definition: e.Definition, CandidatesDigest: e.CandidatesDigest(), CheckReading: r, Since: now}
	if before == nil || before.Verdict != r.Verdict {
		before = &CheckState{Since: now}
	}
	st.Since, st.NotifiedErrors = before.Since, before.NotifiedErrors
	if r.Verdict == entities.Error {
		if st.Errors = max(r.Errors, before.Errors+1); st.Retry.IsZero() {
			st.Retry = entities.RetryAt(e.Interval, st.Errors, r.At)
		}
	}
	if c.Checks == nil {
		c.Checks = map[string]*CheckState{}
	}
	c.Checks[e.ReadingKey()] = st
	if r := s.ReleaseByID(e.Release); r != nil {
		r.Phases[e.Channel].recordRefusal(e.ID, st.Verdict)
	}
}

// CheckInterval of a check of a channel, by the key of its readings; 0: it is not declared.
func (s *State) CheckInterval(channel, reading string) time.Duration {
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

// UnnotifiedChecks are the readings of checks with so many consecutive errors that people must be notified: after three errors, and each
// time that the number doubles (D16).
func (s *State) UnnotifiedChecks() []UnnotifiedCheck {
	var out []UnnotifiedCheck
	for _, channel := range entities.SortedKeys(s.Channels) {
		checks := s.Channels[channel].Checks
		for _, key := range entities.SortedKeys(checks) {
			if st := checks[key]; st.Verdict == entities.Error && entities.NeedsNotification(st.Errors, st.NotifiedErrors) {
				out = append(out, UnnotifiedCheck{channel, strings.TrimPrefix(key, entities.RepairKey("")), st})
			}
		}
	}
	return out
}

// UnnotifiedCheck is a check that people must be notified of.
type UnnotifiedCheck struct {
	Channel, Check string
	*CheckState
}

// NotifyCheckErrors reports that a check cannot be evaluated: in the journal, in the audit trail, and in notifications.
func (s *State) NotifyCheckErrors(u UnnotifiedCheck, now time.Time) {
	u.NotifiedErrors = u.Errors
	text := fmt.Sprintf("%s could not be evaluated %d times in a row; the next retry is after %s",
		u.Check, u.Errors, entities.RetryInterval(s.CheckInterval(u.Channel, u.Check), u.Errors))
	s.AppendJournal(now, u.Channel, text+": "+u.Reason)
	entry := entities.AuditEntry{At: now, Kind: entities.EventError, Channel: u.Channel, Release: u.Release, Text: text, Reason: u.Reason}
	if r := s.ReleaseByID(u.Release); r != nil {
		entry.Version = r.FullVersion
	}
	s.recordAudit(entry)
}

// evaluationCurrent reports whether the check is still declared with the same definition, and its subject is still in progress.
func (s *State) evaluationCurrent(e entities.Evaluation) bool {
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

// recordRefusal records whether a check returned FAIL for a pending release.
func (p *PhaseState) recordRefusal(check string, v entities.Verdict) {
	if p.Phase != maestro.Pending {
		return
	}
	p.FailedChecks = slices.DeleteFunc(slices.Clone(p.FailedChecks), func(id string) bool { return id == check })
	if v == entities.Fail {
		p.FailedChecks = append(p.FailedChecks, check)
	}
}

// preflightInterval is the minimum time after a preflight that did not pass.
const preflightInterval = 10 * time.Second

// preflightReading is the reading of a check in a preflight. A check without a reading could not be evaluated.
func preflightReading(e entities.Evaluation, readings map[string]entities.CheckReading, now time.Time) entities.CheckReading {
	r, ok := readings[e.Key()]
	if !ok {
		r = entities.CheckReading{Verdict: entities.Error, Reason: "the preflight could not evaluate it"}
	}
	r.At = now
	return r
}

// preflightStarted records that a preflight runs. It keeps the number of errors in a row.
func (c *Channel) preflightStarted(op PreflightOp) {
	p := &Preflight{Release: op.Release, Running: true, Window: op.Window}
	if before := c.Preflight; before != nil && before.Release == op.Release && !op.Window {
		p.Errors = before.Errors
	}
	c.Preflight = p
}

// RecordPreflight records the readings of a preflight, by Evaluation.Key. The decision at the same moment may set the target; a later one
// evaluates again.
func (s *State) RecordPreflight(op PreflightOp, readings map[string]entities.CheckReading, now time.Time) {
	if op.Window {
		s.recordWindow(op, readings, now)
		return
	}
	c := s.Channels[op.Channel]
	if c == nil {
		return // the channel was removed in the meantime
	}
	p := &Preflight{Release: op.Release, Done: now}
	failed := 1 // preflights in a row with an error
	if before := c.Preflight; before != nil && before.Release == op.Release {
		failed += before.Errors
	}
	for _, e := range op.Checks {
		r := preflightReading(e, readings, now)
		s.RecordCheck(e, r, now)
		interval := max(e.Interval, preflightInterval)
		switch r.Verdict {
		case entities.Pass:
		case entities.Error:
			p.Errors, interval = failed, entities.RetryInterval(interval, failed)
			fallthrough
		default:
			p.delay(now.Add(interval))
		}
		p.Evaluated = append(p.Evaluated, e.ID+"@"+e.Definition)
	}
	c.Preflight = p
}

// delay delays the next preflight until a time, or a later one that another check requires.
func (p *Preflight) delay(until time.Time) {
	if until.After(p.Next) {
		p.Next = until
	}
}

// recordWindow records the fresh readings at the end of windows: a passing check has soaked, an error is evaluated again with the backoff of
// the check, and any other verdict fails the channel.
func (s *State) recordWindow(op PreflightOp, readings map[string]entities.CheckReading, now time.Time) {
	c := s.Channels[op.Channel]
	if c == nil {
		return // the channel was removed in the meantime
	}
	spec, declared := s.Spec.Channel(op.Channel)
	if p := c.Preflight; p == nil || !p.Running || !p.Window || p.Release != op.Release {
		return
	}
	c.Preflight = nil
	if !declared || !op.stillValid(c) {
		return
	}
	allPass := !slices.ContainsFunc(op.Checks, func(e entities.Evaluation) bool { return preflightReading(e, readings, now).Verdict != entities.Pass })
	for _, e := range op.Checks {
		r := preflightReading(e, readings, now)
		s.RecordCheck(e, r, now)
		if r.Verdict == entities.Pass {
			c.markSoaked(&spec, e.ID, now, allPass)
		}
	}
}

// stillValid reports whether the window that was evaluated exists and did not restart in the meantime.
func (op PreflightOp) stillValid(c *Channel) bool {
	return !c.StableSince.IsZero() && op.StableSince.Equal(c.StableSince)
}

// markSoaked records that the ended windows of a check ended with a fresh PASS. Postconditions must pass together.
func (c *Channel) markSoaked(spec *entities.ChannelSpec, check string, now time.Time, allPass bool) {
	for _, w := range spec.Windows(c.StableSince) {
		if w.Check.ID == check && !now.Before(w.End) && (w.Until.IsZero() || allPass) && !slices.Contains(c.Soaked, w.Key) {
			c.Soaked = append(c.Soaked, w.Key)
		}
	}
}

// NeededChecks is the set of evaluations that the gates of a channel need after a decision. It is not part of the state. Readings that are
// not in it are removed.
type NeededChecks struct {
	Release string   // the release that the checks are evaluated for
	Checks  []string // ids
	Repairs []string // ids of checks evaluated for a repair
	// SelectionFor is the release for which a command selects the next instances among Candidates (in the form of entities.Evaluation).
	SelectionFor, Candidates string
	// PreflightFor is the release that only a preflight evaluates, while the checks are evaluated for the release that yields to it.
	PreflightFor string
}

// IsFor reports whether checks are evaluated for a release.
func (w *NeededChecks) IsFor(release string) bool {
	return release == w.Release || release != "" && release == w.PreflightFor
}

// includes reports whether a reading of a release is wanted; "": of a repair.
func (w *NeededChecks) includes(key, release string) bool {
	switch {
	case release == "":
		return slices.Contains(w.Repairs, strings.TrimPrefix(key, entities.RepairKey("")))
	case key == entities.SelectionID:
		return release == w.SelectionFor
	}
	return release == w.Release && slices.Contains(w.Checks, key)
}

// PruneReadings removes the readings that the gates of a channel do not need any more.
func (s *State) PruneReadings(channel string, w *NeededChecks) {
	c := s.Channels[channel]
	if c == nil || c.Checks == nil && c.Preflight == nil {
		return
	}
	if w == nil {
		w = &NeededChecks{}
	}
	for _, key := range entities.SortedKeys(c.Checks) {
		if !w.includes(key, c.Checks[key].Release) {
			delete(c.Checks, key)
		}
	}
	if len(c.Checks) == 0 {
		c.Checks = nil
	}
	if p := c.Preflight; p != nil && (p.isConsumed() || !p.Running && !w.IsFor(p.Release)) {
		c.Preflight = nil
	}
}

// isConsumed reports whether the decision after a preflight was made. Its readings are not valid any more, whether the target was set or
// not. Only the earliest time of the next preflight is kept.
func (p *Preflight) isConsumed() bool { return !p.Running && !p.Window && p.Next.IsZero() }
