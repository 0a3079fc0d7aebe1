package state

import (
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file withdraws what was said by people who may not say it any more: a word that was given while anybody could stands for
// nobody whom the rules ask for since (G3). Rules take effect at once, for releases that wait too.

// approving is the verb that a grant names.
const approving = "approve"

// disallowed is a word that counts in a channel, of somebody who could not give it there any more, and why.
type disallowed struct {
	release *Release
	channel string
	why     string
	of      *entities.Approval
}

// Disallowed tells whether any word that counts is of somebody who could not give it any more.
func (s *State) Disallowed() bool { return len(s.disallowed()) > 0 }

// WithdrawDisallowed withdraws them, where the release is still to come.
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

// asks tells whether a channel asks for the approval of a topic.
func (s *State) asks(channel, topic string) bool {
	spec, _ := s.Spec.Channel(channel)
	for _, c := range spec.Approvals() {
		if c.Topic == topic {
			return true
		}
	}
	return false
}

// mayNotApprove says why somebody could not give a word in a channel by the rules of now, or nothing. Who is on the list of
// those who approve is judged wherever approvals are counted.
func (s *State) mayNotApprove(channel string, a *entities.Approval) string {
	i, grants := s.Spec.Identity, s.Spec.Grants
	if !a.Who.Proven && (i.Demands(approving) || i.Restricts(grants, approving) || i != nil && s.Restricted(a.Topic)) {
		return fmt.Sprintf("it takes proof of who approves since incarnation %d", s.Spec.Incarnation)
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
