package decide

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file holds approvals: by people for a release, by topic (A14), and for every single apply if a runtime requires that (C10). A
// release waits for people once it has arrived: the preconditions pass, all checks before were evaluated, and none fails. A check that passes
// in time, such as a window, does not delay them.

func approvalID(topic string) string { return string(KindApproval) + "/" + topic }

// applyApprovalID is the id of the judgement on the approval of an apply.
func applyApprovalID(channel string) string { return approvalID(state.ApplyTopic + channel) }

func judgeApprovals(p *admission, _ entities.Stage) {
	open, since := p.needsPeople(), p.lastPassed()
	for _, c := range p.spec.Approvals() {
		j := p.judgeApproval(c)
		if j.Verdict == entities.Wait && j.Since.Before(since) {
			j.Since = since
		}
		if j.Verdict == entities.Wait && open {
			j.Eligible = p.s.EligibleApprovers(p.release, p.spec.Name, c)
		}
		p.addApproval(j, open)
	}
	if !p.approvesApplies() {
		return
	}
	j := Judgement{Kind: KindApproval, ID: applyApprovalID(p.spec.Name), Subject: state.ApplyTopic + p.spec.Name, Verdict: entities.Pass}
	for n := range p.insts {
		i := &p.insts[n]
		switch {
		case !i.runtime.ApproveApplies:
		case !i.EntryApproved(p.release):
			j.Verdict, j.Since, j.Reason = entities.Wait, since, "every apply here needs an approval, by anyone"
		case j.Verdict == entities.Pass:
			given := i.Approval.For(p.release.FullVersionFor(i.ID))
			j.Since, j.Reason = given.At, "approved by "+given.Who.Name
		}
	}
	if j.Verdict == entities.Wait && open {
		j.Eligible = p.s.EligibleForApplies(p.spec.Name)
	}
	p.addApproval(j, open)
}

// approvesApplies reports whether some instance of the channel requires an approval of every apply.
func (v *view) approvesApplies() bool {
	return slices.ContainsFunc(v.insts, func(i instance) bool { return i.runtime.ApproveApplies })
}

// needsPeople reports whether the release waits for nothing but time and people, as far as the gates so far say.
func (p *admission) needsPeople() bool {
	return p.arrived && !slices.ContainsFunc(p.gates, func(j Judgement) bool {
		unread := j.Kind == KindCheck && j.Verdict == entities.Wait && j.Since.IsZero()
		return j.Verdict == entities.Fail || unread || j.Kind == KindExtension && j.Verdict != entities.Pass
	})
}

// addApproval adds the judgement on an approval. open: people are asked for it if it is missing.
func (p *admission) addApproval(j Judgement, open bool) {
	p.add(j)
	if added := &p.gates[len(p.gates)-1]; added.Verdict == entities.Wait && open {
		added.Code, p.facts.WaitsApproval = CodeOpen, true
	}
}

// judgeApproval passes if enough distinct authorized people approved.
func (p *admission) judgeApproval(c entities.Condition) Judgement {
	t := p.release.CountApprovals(p.spec.Name, c)
	j := Judgement{
		Kind: KindApproval, ID: c.ID, Subject: c.Topic, Verdict: entities.Wait, Since: t.Since, Reason: p.s.ApprovalText(p.release, p.spec.Name, c),
		Have: p.s.FormatApprovers(p.release, c.Topic, t.Approvers), Need: t.Required,
	}
	switch {
	case t.Rejected != nil:
		j.Verdict, j.Code = entities.Fail, CodeRejected
	case t.Satisfied():
		j.Verdict = entities.Pass
	}
	return j
}

func unblockApproval(v *view, j *Judgement, r *state.Release) string {
	return v.command("approve", r, j.Subject)
}

func isManualApproval(k entities.ConditionKind) bool { return k == entities.ManualApproval }

// approvalIDs lists those that can be bypassed.
func approvalIDs(v *view, entered bool) []string {
	out := conditionIDs(isManualApproval)(v, entered)
	if v.approvesApplies() {
		out = append(out, applyApprovalID(v.spec.Name))
	}
	return out
}
