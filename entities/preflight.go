package entities

import (
	"slices"
	"strings"
	"time"
)

// This file holds the preflight: right before a target is set, everything outside that holds the
// release is read once more, so that an alert that began to fire a moment ago is seen (A10). Where
// nothing outside is asked, there is none.

const (
	// preflightHolds is for how long the readings of a preflight stand for the present moment: the
	// decision that follows it, and no later one.
	preflightHolds = 2 * time.Second
	// preflightPause is the least time after a preflight that did not pass.
	preflightPause = 10 * time.Second
)

// preflight tells whether everything outside has just been read and lets the release pass; else it
// starts that look. The gates are judged by what it reads, so that they need not be asked again.
func (v *view) preflight(next *Release) bool {
	var looks []CheckLook
	for i := range v.spec.Checks {
		c := &v.spec.Checks[i]
		if c.before() != "" && next.bypassed(v.spec.Name, c.ID) == nil {
			looks = append(looks, v.s.lookAt(v.spec, c, next))
		}
	}
	return len(looks) == 0 || v.lookedAgain(PreflightOp{Channel: v.spec.Name, Release: next.ID, Checks: looks})
}

// preflightPaused: the last preflight did not pass, and the next one comes a little later. Nothing is
// held meanwhile.
func (v *view) preflightPaused(next *Release) bool {
	p := v.inst.Preflight
	if p == nil || p.Running || p.Release != next.ID || p.Window || !v.now.Before(p.Next) {
		return false
	}
	v.due(p.Next)
	v.out.Gates = append(v.out.Gates, Judgement{ID: "preflight", Verdict: Wait, Reason: "did not pass a moment ago", Since: p.Done, Next: p.Next})
	return true
}

// lookedAgain tells whether the looks of an op have just been taken; else it starts them, one op at a
// time per channel, and says so among the gates. Who asks judges the readings.
func (v *view) lookedAgain(op PreflightOp) bool {
	p := v.inst.Preflight
	same := p != nil && p.Release == op.Release && !p.Window
	if same && p.covers(op, v.now) {
		return true
	}
	ids := make([]string, len(op.Checks))
	for i, l := range op.Checks {
		ids[i] = l.ID
	}
	j := Judgement{ID: "preflight", Verdict: Wait, Reason: "looks once more at " + strings.Join(ids, ", ")}
	switch {
	case p != nil && p.Running:
	case same && v.now.Before(p.Next):
		v.due(p.Next)
		j.Next = p.Next
	case !v.mode.Drain:
		v.d.Preflights = append(v.d.Preflights, op)
	}
	v.out.Gates = append(v.out.Gates, j)
	return false
}

// covers: all of these looks were just taken, under today's rules, and all passed.
func (p *Preflight) covers(op PreflightOp, now time.Time) bool {
	if p.Running || now.Before(p.Done) || now.Sub(p.Done) > preflightHolds || !p.Next.IsZero() {
		return false
	}
	for _, l := range op.Checks {
		if !slices.Contains(p.Read, l.ID+"@"+l.Definition) {
			return false
		}
	}
	return true
}

// used: the decision that follows a preflight has been made. What it read holds no longer, whether
// the target was set or not; only that the next one is not to come too early is remembered.
func (p *Preflight) used() bool { return !p.Running && !p.Window && p.Next.IsZero() }

// answer is what a preflight read of a look. A check without a reading could not be judged.
func (l CheckLook) answer(readings map[string]CheckReading, now time.Time) CheckReading {
	r, ok := readings[l.Key()]
	if !ok {
		r = CheckReading{Verdict: Error, Reason: "the preflight could not judge it"}
	}
	r.At = now
	return r
}

// PreflightDone takes in what a preflight read, by CheckLook.Key. The decision made in the same moment may set the target; a later one looks again.
func (s *State) PreflightDone(op PreflightOp, readings map[string]CheckReading, now time.Time) {
	if op.Window {
		s.windowRead(op, readings, now)
		return
	}
	i := s.Instances[op.Channel]
	if i == nil {
		return // the channel was removed meanwhile
	}
	p := &Preflight{Release: op.Release, Done: now}
	for _, l := range op.Checks {
		r := l.answer(readings, now)
		s.CheckSeen(l, r, now)
		if r.Verdict != Pass {
			p.Next = now.Add(max(l.Interval, preflightPause))
		}
		p.Read = append(p.Read, l.ID+"@"+l.Definition)
	}
	i.Preflight = p
}
