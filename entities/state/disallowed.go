package state

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file withdraws approvals of people who may not approve any more: an approval that was given before a rule does not count if the
// rule excludes the approver (G3). Rules take effect at once, also for waiting releases.

// approveVerb is the verb that a grant names.
const approveVerb = "approve"

// disallowedApproval is an approval that counts in a channel although the approver could not give it now, and why.
type disallowedApproval struct {
	release  *Release
	channel  string
	why      string
	approval *entities.Approval
}

// HasDisallowedApprovals reports whether any approval counts whose approver could not give it now.
func (s *State) HasDisallowedApprovals() bool { return len(s.disallowedApprovals()) > 0 }

// WithdrawDisallowed withdraws such approvals of releases that have not entered the channel.
func (s *State) WithdrawDisallowed(now time.Time) {
	for _, d := range s.disallowedApprovals() {
		text := d.approval.Topic + " by " + d.approval.Who.Name
		if d.approval.Version != "" { // of the next apply
			s.dropApplyApprovals(d.channel, d.approval.Version)
		} else {
			d.approval.Withdraw(d.channel, d.why)
		}
		s.recordWithdrawal(d.release, d.channel, []string{text}, d.why, now)
	}
}

func (s *State) disallowedApprovals() []disallowedApproval {
	var out []disallowedApproval
	for _, r := range s.Releases {
		for _, c := range s.Spec.ChannelNames() {
			if p := r.phaseState(c); p == nil || p.Phase != maestro.Pending {
				continue
			}
			for _, a := range s.approvalsFor(r, c) {
				if why := s.approvalDenial(c, a); why != "" {
					out = append(out, disallowedApproval{r, c, why, a})
				}
			}
		}
	}
	return out
}

// approvalsFor are the approvals of a release that count in a channel.
func (s *State) approvalsFor(r *Release, channel string) []*entities.Approval {
	var out []*entities.Approval
	for i := range r.Approvals {
		a := &r.Approvals[i]
		if _, withdrawn := a.Withdrawn[channel]; !withdrawn && !a.Reject && s.requiresApproval(channel, a.Topic) {
			out = append(out, a)
		}
	}
	for _, i := range s.instancesWithApplyApproval(channel) {
		if i.EntryApproved(r) {
			return append(out, i.Approval.For(r.FullVersionFor(i.ID)))
		}
	}
	return out
}

// requiresApproval reports whether a channel requires the approval of a topic.
func (s *State) requiresApproval(channel, topic string) bool {
	spec, _ := s.Spec.Channel(channel)
	for _, c := range spec.Approvals() {
		if c.Topic == topic {
			return true
		}
	}
	return false
}

// approvalDenial returns why a person could not approve in a channel with the current rules, or "". The list of approvers of a condition
// is checked separately, when approvals are counted.
func (s *State) approvalDenial(channel string, a *entities.Approval) string {
	i, grants := s.Spec.Identity, s.Spec.Grants
	if !a.Who.Proven && (i.RequiresProof(approveVerb) || i.RestrictedByGrant(grants, approveVerb) || i != nil && s.RestrictsApprovers(a.Topic)) {
		return fmt.Sprintf("approvals require proof of identity since incarnation %d", s.Spec.Incarnation)
	}
	if err := entities.Authorize(grants, approveVerb, []string{channel}, a.Who); err != nil {
		return fmt.Sprintf("%s, since incarnation %d", err, s.Spec.Incarnation)
	}
	return ""
}

func (s *State) dropApplyApprovals(channel, version string) {
	for _, i := range s.instancesWithApplyApproval(channel) {
		i.Approval.remove(func(given *entities.Approval) bool { return given.Version == version })
	}
}
