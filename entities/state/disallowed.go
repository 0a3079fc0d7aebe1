package state

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file withdraws approvals of people who may not approve any more: an approval that was given before a rule does not count if the
// rule excludes the approver (G3). Rules take effect at once, also for waiting releases.

// approving is the verb that a grant names.
const approving = "approve"

// disallowed is an approval that counts in a channel although the approver could not give it now, and why.
type disallowed struct {
	release *Release
	channel string
	why     string
	of      *entities.Approval
}

// Disallowed reports whether any approval counts whose approver could not give it now.
func (s *State) Disallowed() bool { return len(s.disallowed()) > 0 }

// WithdrawDisallowed withdraws such approvals of releases that have not entered the channel.
func (s *State) WithdrawDisallowed(now time.Time) {
	for _, d := range s.disallowed() {
		said := d.of.Topic + " by " + d.of.Who.Name
		if d.of.Version != "" { // of the next apply
			s.forgetGiven(d.channel, d.of.Version)
		} else {
			d.of.Withdraw(d.channel, d.why)
		}
		s.noteWithdrawn(d.release, d.channel, []string{said}, d.why, now)
	}
}

func (s *State) disallowed() []disallowed {
	var out []disallowed
	for _, r := range s.Releases {
		for _, c := range s.Spec.ChannelNames() {
			if p := r.in(c); p == nil || p.Phase != maestro.Pending {
				continue
			}
			for _, a := range s.wordsOn(r, c) {
				if why := s.mayNotApprove(c, a); why != "" {
					out = append(out, disallowed{r, c, why, a})
				}
			}
		}
	}
	return out
}

// wordsOn are the approvals of a release that count in a channel.
func (s *State) wordsOn(r *Release, channel string) []*entities.Approval {
	var out []*entities.Approval
	for i := range r.Approvals {
		a := &r.Approvals[i]
		if _, withdrawn := a.Withdrawn[channel]; !withdrawn && !a.Reject && s.asks(channel, a.Topic) {
			out = append(out, a)
		}
	}
	for _, i := range s.approvedApplies(channel) {
		if i.ApprovesEntry(r) {
			return append(out, i.Approval.Of(r.FullIn(i.ID)))
		}
	}
	return out
}

// asks reports whether a channel requires the approval of a topic.
func (s *State) asks(channel, topic string) bool {
	spec, _ := s.Spec.Channel(channel)
	for _, c := range spec.Approvals() {
		if c.Topic == topic {
			return true
		}
	}
	return false
}

// mayNotApprove returns why a person could not approve in a channel with the current rules, or "". The list of approvers of a condition
// is checked separately, when approvals are counted.
func (s *State) mayNotApprove(channel string, a *entities.Approval) string {
	i, grants := s.Spec.Identity, s.Spec.Grants
	if !a.Who.Proven && (i.Demands(approving) || i.Restricts(grants, approving) || i != nil && s.Restricted(a.Topic)) {
		return fmt.Sprintf("approvals require proof of identity since incarnation %d", s.Spec.Incarnation)
	}
	if err := entities.Authorize(grants, approving, []string{channel}, a.Who); err != nil {
		return fmt.Sprintf("%s, since incarnation %d", err, s.Spec.Incarnation)
	}
	return ""
}

func (s *State) forgetGiven(channel, version string) {
	for _, i := range s.approvedApplies(channel) {
		i.Approval.drop(func(given *entities.Approval) bool { return given.Version == version })
	}
}
