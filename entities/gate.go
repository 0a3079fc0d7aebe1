package entities

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// passage is one release on its way through the gates of one channel.
type passage struct {
	*view
	release *Release
	gates   []Judgement
	clear   bool // all judgements so far pass
	asked   bool // the preconditions hold: what costs something to know is asked for
}

// admitNext answers: may the release next in line enter now? A target is set only when an apply
// can start (DESIGN section 4); everything that holds it is a judgement that `explain` shows.
func (v *view) admitNext() {
	next := v.release(v.turn.Next)
	if next == nil {
		return
	}
	v.out.Next = next
	p := v.pass(next)
	v.out.Gates = p.gates
	switch {
	case v.changed || v.facts.Paused || !p.clear:
	case v.mode.Drain:
		v.wait("drain", next.FullVersion+" enters once the workflow has continued as new")
	default:
		v.enter(next)
	}
}

// pass takes a release through all that it must pass before it may enter, in order. What is left is
// in enter: a lease, a preflight, and then the target is set. After that come its objects, and the
// post-deployment window.
func (v *view) pass(r *Release) *passage {
	p := &passage{view: v, release: r, clear: true}
	p.channelFree()
	p.preconditions()
	p.asked = p.clear && !v.facts.Paused
	p.checks(PreApproval)
	p.extensions(PreApproval)
	p.approvals()
	p.checks(PostApproval)
	p.extensions(PostApproval)
	p.checks(Deployment)
	p.extensions(Deployment)
	return p
}

// add adds a judgement, unless a person lets the release pass it (A15).
func (p *passage) add(j Judgement) {
	if b := p.release.bypassed(p.spec.Name, j.ID); b != nil && bypassable(j.ID) {
		j = b.judgement()
	}
	p.gates = append(p.gates, j)
	p.clear = p.clear && j.Verdict == Pass
}

// channelFree: nothing else is going on here, and what is there is known.
func (p *passage) channelFree() {
	if holder := p.view.release(p.turn.Holder); holder != nil {
		p.add(Judgement{
			ID: "in-progress", Verdict: Wait,
			Reason: holder.FullVersion + " is in progress here", Since: holder.Phases[p.spec.Name].Since,
		})
	} else if p.inst.Progress.Running {
		p.add(Judgement{ID: "in-progress", Verdict: Wait, Reason: "an apply is still running", Since: p.inst.Progress.Started})
	}
	if j, holds := p.readingGate(); holds {
		p.add(j)
	}
	if j, holds := p.rollbackGate(p.release); holds {
		p.add(j)
	}
	if j, holds := p.pinGate(); holds {
		p.add(j)
	}
}

// readingGate: an unknown state is never "no difference", so it holds ordinary promotion (D17).
func (v *view) readingGate() (Judgement, bool) {
	if !v.unknown() {
		return Judgement{}, false
	}
	if e := v.inst.Reading.Err; e != nil {
		return Judgement{ID: "reading", Verdict: Error, Reason: e.Message, Since: v.inst.ErrSince}, true
	}
	return Judgement{ID: "reading", Verdict: Wait, Reason: "no reading yet"}, true
}

// preconditions: the release has succeeded where it must have, and can still come here (A8).
func (p *passage) preconditions() {
	fix := p.retry(p.release.FullVersion)
	stuck := p.turn.Stuck
	for _, c := range p.spec.Conditions {
		if c.Kind == ManualApproval {
			continue
		}
		j := judge(c, p.release)
		if j.Verdict == Fail {
			stuck, j.Unblock = "", fix
		}
		p.add(j)
	}
	if stuck != "" { // the failure lies further up than the channels this one names
		p.add(Judgement{ID: "upstream", Verdict: Fail, Reason: p.release.FullVersion + " " + stuck, Unblock: fix})
	}
}

// blocked: a check, an extension or a person said no for good, and nobody let the release pass it. It waits on, but does not hold up a newer one that may come (B10).
func (r *Release) blocked(c *ChannelSpec) bool {
	p := r.Phases[c.Name]
	if p == nil || p.Phase != maestro.Pending {
		return false
	}
	for i := range c.Checks {
		check := &c.Checks[i]
		if slices.Contains(p.Blocked, check.ID) && check.before() != "" && r.bypassed(c.Name, check.ID) == nil {
			return true
		}
	}
	for i := range c.Extensions {
		e := &c.Extensions[i]
		st := r.Extensions[e.ExtensionKey()]
		if e.Stage != PostDeployment && st != nil && st.Failed && r.bypassed(c.Name, extensionID(e.Name)) == nil {
			return true
		}
	}
	return r.rejectedIn(c)
}

// rejectedIn: it was rejected for a topic that the channel asks for, as it may since.
func (r *Release) rejectedIn(c *ChannelSpec) bool {
	return slices.ContainsFunc(r.Approvals, func(a Approval) bool {
		return a.Reject && slices.ContainsFunc(c.Conditions, func(cond Condition) bool {
			return cond.Kind == ManualApproval && cond.Topic == a.Topic && r.bypassed(c.Name, cond.ID) == nil
		})
	})
}

// block takes note whether a check says FAIL of a release that is still to come.
func (p *PhaseState) block(id string, v Verdict) {
	if p.Phase != maestro.Pending {
		return
	}
	p.Blocked = slices.DeleteFunc(slices.Clone(p.Blocked), func(b string) bool { return b == id })
	if v == Fail {
		p.Blocked = append(p.Blocked, id)
	}
}

// since is when the last of the judgements so far passed: from then on the release waits for the
// next one.
func (p *passage) since() time.Time {
	last := p.release.At
	for _, j := range p.gates {
		if j.Verdict == Pass && j.Since.After(last) {
			last = j.Since
		}
	}
	return last
}

// command is what a person types about the release of a passage.
func (v *view) command(verb string, r *Release, more ...string) string {
	text := fmt.Sprintf("converge %s %s/%s %s", verb, v.s.Application, v.s.Service, r.FullVersion)
	for _, m := range more {
		text += " " + m
	}
	return text
}

func (v *view) wait(id, reason string) {
	v.out.Gates = append(v.out.Gates, Judgement{ID: id, Verdict: Wait, Reason: reason})
}

// Phase is re-exported for callers that only know entities.
type Phase = maestro.Phase
