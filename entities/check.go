package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// This file holds checks: what is judged outside of the state, protections (A19, A20) and conditions
// on other services (D20–D22). A decision says which are to be judged now; nobody is asked while
// something cheaper holds a release anyway.

// checks adds the judgements of the checks whose first stage this is.
func (p *passage) checks(stage Stage) {
	for i := range p.spec.Checks {
		c := &p.spec.Checks[i]
		if c.before() != stage {
			continue
		}
		j := p.judgeCheck(c, p.release)
		if p.asked {
			p.want(c, p.release.ID)
		} else {
			j = Judgement{ID: c.ID, Verdict: Wait, Reason: "judged" + unasked}
		}
		p.add(j)
	}
}

// before is the first stage at which a check holds a release back, or "".
func (c *Check) before() Stage {
	first := Stage("")
	for _, at := range c.At {
		switch {
		case at.Stage == PreApproval:
			return PreApproval
		case at.Stage == PostApproval, at.Stage == Deployment && first == "":
			first = at.Stage
		}
	}
	return first
}

// judgeCheck gives the verdict of the newest reading of a check, if it is of this release and under
// today's definition. Of a release that is nil: of a repair.
func (v *view) judgeCheck(c *Check, r *Release) Judgement {
	st := v.inst.reading(v.s.lookAt(v.spec, c, r))
	if st == nil {
		return Judgement{ID: c.ID, Verdict: Wait, Reason: "not judged yet"}
	}
	j := Judgement{ID: c.ID, Verdict: st.Verdict, Reason: st.Reason, Since: st.Since, Next: st.Next}
	if st.Verdict == Error && st.Errors > 1 {
		j.Reason += "; " + ordinal(st.Errors) + " failure"
	}
	if st.Verdict == Fail && r != nil {
		j.Unblock = "release a version that passes, or: " + v.command("bypass", r, v.spec.Name, c.ID, "--reason …")
	}
	return j
}

// at is when a check is asked at a stage, or nil.
func (c *Check) at(stage Stage) *CheckAt {
	for i := range c.At {
		if c.At[i].Stage == stage {
			return &c.At[i]
		}
	}
	return nil
}

// repairHeld: a repair waits for the checks that repairs ask (DESIGN section 4).
func (v *view) repairHeld() bool {
	if !v.inst.Converged || v.spec.Drift == DriftObserve {
		return false
	}
	held := false
	for i := range v.spec.Checks {
		c := &v.spec.Checks[i]
		if !c.Repairs {
			continue
		}
		v.wants().repairs = append(v.wants().repairs, c.ID)
		if j := v.judgeCheck(c, nil); j.Verdict != Pass {
			held = true
			v.reason("not repaired yet: %s%s", j.ID, because(j.Reason))
		}
	}
	return held
}

// want says that a check is to be judged now for a release.
func (v *view) want(c *Check, release string) {
	if release != v.wants().release {
		v.wants().checks, v.wants().release = nil, release
	}
	v.wants().checks = append(v.wants().checks, c.ID)
}

// CheckLooks are the checks that are to be judged now, channel by channel in the spec's order. None:
// nothing is to be observed. They are as of the last decision.
func (s *State) CheckLooks() []CheckLook {
	if s.Spec == nil {
		return nil
	}
	var out []CheckLook
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		i := s.Instances[c.Name]
		if i == nil || i.wants == nil {
			continue
		}
		release := s.ReleaseByID(i.wants.release)
		for m := range c.Checks {
			if check := &c.Checks[m]; release != nil && slices.Contains(i.wants.checks, check.ID) {
				out = append(out, s.known(s.lookAt(c, check, release)))
			}
		}
		for m := range c.Checks {
			if check := &c.Checks[m]; slices.Contains(i.wants.repairs, check.ID) {
				out = append(out, s.known(s.lookAt(c, check, nil)))
			}
		}
	}
	return out
}

// lookAt is a look at a check for a release; nil: for a repair of the present target.
func (s *State) lookAt(channel *ChannelSpec, c *Check, r *Release) CheckLook {
	l := CheckLook{Channel: channel.Name, ID: c.ID, Kind: c.Kind, Definition: c.Definition, Interval: c.Interval}
	if i := s.Instances[channel.Name]; i != nil && i.Target != nil {
		l.FullVersion, l.Payload, l.Present = i.Target.FullVersion, i.Target.Payload, i.Target.Payload
	}
	if r != nil {
		l.Release, l.FullVersion, l.Payload = r.ID, r.FullVersion, r.Payloads[channel.Name]
	}
	return l
}

// known fills in what is known.
func (s *State) known(l CheckLook) CheckLook {
	if st := s.Instances[l.Channel].reading(l); st != nil {
		l.Known = st.Digest()
	}
	return l
}

// reading is what is known of a look, or nil.
func (i *Instance) reading(l CheckLook) *CheckState {
	st := i.Checks[l.reading()]
	if st == nil || st.Release != l.Release || st.Definition != l.Definition {
		return nil
	}
	return st
}

// CheckSeen takes in what judging a check gave. A reading of a release that is over here, of a check
// that is no longer declared so, or older than what is known, changes nothing.
func (s *State) CheckSeen(l CheckLook, r CheckReading, now time.Time) {
	i := s.Instances[l.Channel]
	if i == nil || !s.concerns(l) {
		return
	}
	if r.At.IsZero() {
		r.At = now
	}
	if worse(Pass, r.Verdict) || r.Verdict == "" { // of a newer version
		r.Verdict, r.Reason = Error, fmt.Sprintf("verdict %q is unknown to this version", r.Verdict)
	}
	before := i.reading(l)
	if before != nil && r.At.Before(before.At) {
		return
	}
	st := &CheckState{Release: l.Release, Definition: l.Definition, CheckReading: r, Since: now}
	if before != nil && before.Verdict == r.Verdict {
		st.Since, st.Errors = before.Since, before.Errors
	}
	if r.Verdict == Error {
		st.Errors++
	}
	if i.Checks == nil {
		i.Checks = map[string]*CheckState{}
	}
	i.Checks[l.reading()] = st
	if r := s.ReleaseByID(l.Release); r != nil {
		r.Phases[l.Channel].block(l.ID, st.Verdict)
	}
}

// concerns: the check is declared as it was asked, and what it was asked about is still going on.
func (s *State) concerns(l CheckLook) bool {
	spec, _ := s.Spec.Channel(l.Channel)
	for i := range spec.Checks {
		if c := &spec.Checks[i]; c.ID != l.ID || c.Definition != l.Definition {
			continue
		}
		if l.Release == "" {
			return true
		}
		r := s.ReleaseByID(l.Release)
		return r != nil && r.Phases[l.Channel] != nil &&
			(r.Phases[l.Channel].Phase == maestro.Pending || r.Phases[l.Channel].Phase == maestro.InProgress)
	}
	return false
}

// commitWants keeps what the gates of a channel want, and forgets what they do not ask for any
// more: readings live as long as somebody waits for them.
func (s *State) commitWants(c *ChannelDecision) {
	i := s.Instances[c.Channel]
	if i == nil || c.wants == nil && i.quiet() {
		return
	}
	i.wants = c.wants
	w := c.wants
	if w == nil {
		w = &wants{}
	}
	i.forgetReadings(w)
	if p := i.Preflight; p != nil && (p.used() || !p.Running && p.Release != w.release) {
		i.Preflight = nil
	}
	s.forgetApproval(i)
}

// forgetReadings drops what nobody waits for.
func (i *Instance) forgetReadings(w *wants) {
	for _, key := range SortedKeys(i.Checks) {
		st := i.Checks[key]
		wanted := st.Release == w.release && slices.Contains(w.checks, key)
		if st.Release == "" {
			wanted = slices.Contains(w.repairs, strings.TrimPrefix(key, "repair:"))
		}
		if !wanted {
			delete(i.Checks, key)
		}
	}
	if len(i.Checks) == 0 {
		i.Checks = nil
	}
}

// quiet: the gates have left nothing here.
func (i *Instance) quiet() bool {
	return i.wants == nil && i.Checks == nil && i.Preflight == nil && i.ApplyApproved == nil && i.ApplyAsked.IsZero()
}

// ordinal writes 1st, 2nd, 3rd, 4th, 11th, 21st.
func ordinal(n int) string {
	end := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			end = "st"
		case 2:
			end = "nd"
		case 3:
			end = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, end)
}
