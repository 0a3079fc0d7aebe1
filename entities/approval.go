package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/maestro"
)

// This file holds approvals: people's words on a release, by topic (A14), and on every single apply
// where a runtime asks for that (C10). An approval may be given before its turn comes.

const applyTopic = "apply/"

// applyApproval is the id under which the approval of an apply is judged.
func applyApproval(channel string) string { return "approval/" + applyTopic + channel }

// approvals adds the judgements of the approvals of a channel. A person is waited for once all that
// comes before passes.
func (p *passage) approvals() {
	before, since := p.clear, p.since()
	for _, c := range p.spec.Conditions {
		if c.Kind == ManualApproval {
			j := p.judgeApproval(c)
			if j.Verdict == Wait && j.Since.Before(since) {
				j.Since = since
			}
			p.addApproval(j, before)
		}
	}
	if p.runtime.ApproveApplies && !p.inst.approves(p.release.FullVersion) {
		p.addApproval(Judgement{
			ID: applyApproval(p.spec.Name), Verdict: Wait, Since: since, Reason: "every apply is approved here, by anybody",
			Unblock: p.command("approve", p.release, applyTopic+p.spec.Name),
		}, before)
	} else if p.runtime.ApproveApplies {
		a := p.inst.ApplyApproved
		p.add(Judgement{ID: applyApproval(p.spec.Name), Verdict: Pass, Since: a.At, Reason: "approved by " + a.Who.Name})
	}
}

func (p *passage) addApproval(j Judgement, before bool) {
	p.add(j)
	if p.gates[len(p.gates)-1].Verdict == Wait && before {
		p.facts.WaitsApproval = true
	}
}

// judgeApproval passes when enough distinct people who may approve have done so.
func (p *passage) judgeApproval(c Condition) Judgement {
	j := Judgement{ID: c.ID, Verdict: Pass}
	var who []string
	for i := range p.release.Approvals {
		a := &p.release.Approvals[i]
		switch {
		case a.Topic != c.Topic:
		case a.Reject:
			return Judgement{ID: c.ID, Verdict: Fail, Reason: a.rejection(), Since: a.At}
		case mayApprove(c, a.Who) && !slices.Contains(who, a.Who.Name):
			who = append(who, a.Who.Name)
			if a.At.After(j.Since) {
				j.Since = a.At
			}
		}
	}
	need := max(c.MinApprovers, 1)
	j.Reason = fmt.Sprintf("%d of %d", len(who), need)
	if len(who) > 0 {
		j.Reason += " (" + p.stated(who) + ")"
	}
	if len(who) < need {
		j.Verdict = Wait
		j.Reason += ", by " + whoMay(c, who)
		j.Unblock = p.command("approve", p.release, c.Topic)
	}
	return j
}

// stated lists approvers; where callers can prove who they are, one who did not is shown as such.
func (p *passage) stated(who []string) string {
	if p.s.Spec.Identity == nil {
		return strings.Join(who, ", ")
	}
	shown := make([]string, len(who))
	for i, name := range who {
		shown[i] = name + " stated"
		for _, a := range p.release.Approvals {
			if a.Who.Name == name && a.Who.Proven {
				shown[i] = name
			}
		}
	}
	return strings.Join(shown, ", ")
}

func mayApprove(c Condition, who Who) bool { return len(c.Approvers) == 0 || who.among(c.Approvers) }

// whoMay says who can still approve: "any of group:sre except alice".
func whoMay(c Condition, have []string) string {
	text := "anybody"
	if len(c.Approvers) > 0 {
		text = "any of " + strings.Join(c.Approvers, ", ")
	}
	if len(have) > 0 {
		text += " except " + strings.Join(have, ", ")
	}
	return text
}

func (a *Approval) rejection() string { return "rejected by " + a.Who.Name + because(a.Comment) }

// Approve takes in a person's word on a release and a topic; a.Reject: it is rejected, which is
// final for that release in the channels of the topic that it has not entered.
func (s *State) Approve(version string, a Approval) (string, error) {
	r, err := s.findOpen(version, "")
	if err != nil {
		return "", err
	}
	if a.Who.Name == "" {
		return "", fmt.Errorf("nobody is named who approves or rejects %s", r.FullVersion)
	}
	if channel, ok := strings.CutPrefix(a.Topic, applyTopic); ok && s.approvesApplies(channel) {
		return s.approveApply(r, channel, a)
	}
	if err := s.checkApproval(r, a); err != nil {
		return "", err
	}
	r.Approvals = append(r.Approvals, a)
	if a.Reject {
		return s.reject(r, a), nil
	}
	s.noteApproval(r, a, "", "approved "+a.Topic)
	return fmt.Sprintf("%s approved for %s by %s%s", r.FullVersion, a.Topic, a.Who.Name, s.progress(r, a.Topic)), nil
}

// checkApproval refuses a word that would change nothing or may not be given.
func (s *State) checkApproval(r *Release, a Approval) error {
	asking := s.asking(a.Topic)
	if len(asking) == 0 {
		return fmt.Errorf("no approval topic %q; expected %s", a.Topic, oneOf(s.topics()))
	}
	for i := range r.Approvals {
		old := &r.Approvals[i]
		switch {
		case old.Topic != a.Topic:
		case old.Reject:
			return fmt.Errorf("%s was %s, for %s; that is final", r.FullVersion, old.rejection(), a.Topic)
		case old.Who.Name == a.Who.Name && !a.Reject:
			return fmt.Errorf("%s has already approved %s for %s; it takes somebody else", a.Who.Name, r.FullVersion, a.Topic)
		}
	}
	if r.Over() {
		return fmt.Errorf("%s is over: %s", r.FullVersion, phases(r))
	}
	open, may, list := false, false, []string{}
	for _, ask := range asking {
		p := r.Phases[ask.channel]
		open = open || p != nil && p.Phase == maestro.Pending
		may = may || mayApprove(ask.condition, a.Who)
		list = append(list, ask.condition.Approvers...)
	}
	switch {
	case !open:
		return fmt.Errorf("%s waits for %s in no channel: %s", r.FullVersion, a.Topic, phases(r))
	case !may:
		return fmt.Errorf("%s is not among those who approve %s: %s", a.Who.Name, a.Topic, allowed(list))
	}
	return nil
}

// reject ends the release in the channels of the topic that it has not entered.
func (s *State) reject(r *Release, a Approval) string {
	var ended []string
	for _, ask := range s.asking(a.Topic) {
		if p := r.Phases[ask.channel]; p != nil && p.Phase == maestro.Pending {
			ended = append(ended, s.rejectIn(r, ask.channel, a))
		}
	}
	s.noteApproval(r, a, "", "rejected "+a.Topic)
	return fmt.Sprintf("%s rejected by %s in %s", r.FullVersion, a.Who.Name, strings.Join(ended, ", "))
}

func (s *State) rejectIn(r *Release, channel string, a Approval) string {
	r.Phases[channel] = &PhaseState{Phase: maestro.Cancelled, Since: a.At, Reason: a.rejection()}
	return channel
}

func (s *State) noteApproval(r *Release, a Approval, channel, text string) {
	s.Record(a.At, channel, fmt.Sprintf("%s %s by %s%s", r.FullVersion, text, a.Who.Name, because(a.Comment)))
	s.Note(AuditLine{
		At: a.At, Kind: EventApproval, Who: &a.Who, Channel: channel, Release: r.ID, Version: r.FullVersion,
		Text: text, Reason: a.Comment,
	})
}

// progress says how many approvals a topic has, where more than one is needed.
func (s *State) progress(r *Release, topic string) string {
	most := ""
	for _, ask := range s.asking(topic) {
		p := passage{view: s.viewOf(ask.channel, r, r.At), release: r}
		j := p.judgeApproval(ask.condition)
		if ask.condition.MinApprovers > 1 {
			most = ": " + j.Reason
		}
		if j.Verdict == Wait {
			break
		}
	}
	return most
}

// asks is a channel that asks for the approval of a topic.
type asks struct {
	channel   string
	condition Condition
}

func (s *State) asking(topic string) []asks {
	var out []asks
	for n := range s.Spec.Channels {
		for _, c := range s.Spec.Channels[n].Conditions {
			if c.Kind == ManualApproval && c.Topic == topic {
				out = append(out, asks{s.Spec.Channels[n].Name, c})
			}
		}
	}
	return out
}

// topics are all that can be approved, in the channels' order.
func (s *State) topics() []string {
	var out []string
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		for _, cond := range c.Conditions {
			if cond.Kind == ManualApproval && !slices.Contains(out, cond.Topic) {
				out = append(out, cond.Topic)
			}
		}
		if s.approvesApplies(c.Name) {
			out = append(out, applyTopic+c.Name)
		}
	}
	return out
}

func (s *State) approvesApplies(channel string) bool { return s.runtime(channel).ApproveApplies }

// approveApply approves the next apply of a release in a channel: the one that waits there, or the
// one with which the release will enter. It is used up when that apply begins.
func (s *State) approveApply(r *Release, channel string, a Approval) (string, error) {
	i := s.Instance(channel)
	p := r.Phases[channel]
	pending := p != nil && p.Phase == maestro.Pending
	there := i.Target != nil && i.Target.FullVersion == r.FullVersion
	switch {
	case !pending && !there:
		return "", fmt.Errorf("no apply of %s will come in %s: %s", r.FullVersion, channel, phases(r))
	case !pending && a.Reject:
		return "", fmt.Errorf("%s is the target of %s already; take it back with: converge rollback", r.FullVersion, channel)
	case !pending && i.ApplyAsked.IsZero():
		return "", fmt.Errorf("no apply of %s waits for approval in %s", r.FullVersion, channel)
	case i.approves(r.FullVersion):
		return "", fmt.Errorf("the apply of %s in %s is already approved, by %s", r.FullVersion, channel, i.ApplyApproved.Who.Name)
	case a.Reject:
		s.rejectIn(r, channel, a)
		s.noteApproval(r, a, channel, "rejected "+a.Topic)
		return fmt.Sprintf("%s rejected by %s in %s", r.FullVersion, a.Who.Name, channel), nil
	}
	a.Version = r.FullVersion
	i.ApplyApproved, i.ApplyAsked = &a, time.Time{}
	s.noteApproval(r, a, channel, "approved "+a.Topic)
	return fmt.Sprintf("the apply of %s in %s is approved by %s", r.FullVersion, channel, a.Who.Name), nil
}

// approves: the next apply of a version is approved here.
func (i *Instance) approves(version string) bool {
	return i.ApplyApproved != nil && i.ApplyApproved.Version == version
}

// applyUnapproved: the apply that is wanted waits for a person's word. A way back does not.
func (v *view) applyUnapproved() bool {
	i := v.inst
	if !v.runtime.ApproveApplies || v.wayBack() || i.approves(i.Target.FullVersion) {
		return false
	}
	if r := v.release(v.turn.Holder); r != nil && r.bypassed(v.spec.Name, applyApproval(v.spec.Name)) != nil {
		return false
	}
	v.wants().approval = true
	v.facts.WaitsApproval = true
	if i.ApplyAsked.IsZero() {
		v.d.Changes = append(v.d.Changes, Change{Kind: ChangeAwait, Channel: v.spec.Name, Target: i.Target, Cause: "every apply is approved here"})
	}
	j := Judgement{
		ID: applyApproval(v.spec.Name), Verdict: Wait, Since: i.ApplyAsked,
		Reason:  "an apply of " + i.Target.FullVersion + " waits for a person's approval",
		Unblock: fmt.Sprintf("converge approve %s/%s %s %s", v.s.Application, v.s.Service, i.Target.FullVersion, applyTopic+v.spec.Name),
	}
	v.out.Gates = append(v.out.Gates, j)
	if i.Converged {
		v.reason("not repaired yet: %s", j.Reason)
	}
	return true
}

// stopAsking: no apply is wanted any more that a person's word was waited for.
func (v *view) stopAsking() {
	held := v.changed || v.facts.Paused || v.mode.Drain || v.out.wants != nil && v.out.wants.approval
	if !held && !v.inst.ApplyAsked.IsZero() {
		v.d.Changes = append(v.d.Changes, Change{Kind: ChangeAwait, Channel: v.spec.Name, Cause: "no apply waits for approval any more"})
	}
}

// forgetApproval drops the approval of an apply that will not come any more.
func (s *State) forgetApproval(i *Instance) {
	a := i.ApplyApproved
	if a == nil || i.Target != nil && i.Target.FullVersion == a.Version && !i.Converged {
		return
	}
	for _, r := range s.Releases {
		if p := r.Phases[i.Channel]; r.FullVersion == a.Version && p != nil && p.Phase == maestro.Pending {
			return
		}
	}
	if i.Target != nil && i.Target.FullVersion == a.Version && i.Status == StatusDegraded {
		return
	}
	i.ApplyApproved = nil
}
