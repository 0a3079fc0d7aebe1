package state

import (
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file withdraws approvals: the approvers of a release did not know that it would fail. After a failure their approvals do not count
// any more in channels that it has not entered, nor where it was rolled back (G2). A rejection stays, and so does a bypass, which lets a
// release pass in any case.

// withdraw withdraws the approvals of a release that failed in a channel, or was rolled back there, in the downstream channels that it
// has not entered. includeChannel: also in the channel itself, which it would have to enter again.
func (s *State) withdraw(r *Release, channel string, includeChannel bool, why string, now time.Time) {
	for _, c := range s.Spec.ChannelNames() {
		p := r.phaseState(c)
		downstream := p != nil && p.Phase == maestro.Pending && s.isDownstream(c, channel)
		if !downstream && !(includeChannel && c == channel) {
			continue
		}
		if of := append(s.withdrawTopics(r, c, why), s.withdrawApplies(r, c)...); len(of) > 0 {
			s.recordWithdrawal(r, c, of, why, now)
		}
	}
}

// recordWithdrawal records the withdrawn approvals of a channel.
func (s *State) recordWithdrawal(r *Release, channel string, of []string, why string, now time.Time) {
	text := "approval withdrawn: " + strings.Join(of, ", ")
	s.AppendJournal(now, channel, r.FullVersion+" "+text+entities.Because(why))
	s.recordAudit(entities.AuditEntry{
		At: now, Kind: entities.EventApproval, Channel: channel, Release: r.ID, Version: r.FullVersion, Text: text, Reason: why,
	})
	s.Channel(channel).AnnouncedWait = "" // the wait for an approval is announced again
}

// withdrawTopics withdraws the approvals of topics that a channel requires, and lists them.
func (s *State) withdrawTopics(r *Release, channel, why string) []string {
	spec, _ := s.Spec.Channel(channel)
	var of []string
	for i := range r.Approvals {
		a := &r.Approvals[i]
		required := slices.ContainsFunc(spec.Approvals(), func(c entities.Condition) bool { return c.Topic == a.Topic })
		if _, already := a.Withdrawn[channel]; a.Reject || already {
			continue
		}
		if a.Withdraw(channel, why); required {
			of = append(of, a.Topic+" by "+a.Who.Name)
		}
	}
	return of
}

// withdrawApplies withdraws the approvals of the apply with which the release would enter.
func (s *State) withdrawApplies(r *Release, channel string) []string {
	var of []string
	for _, i := range s.InstancesIn(channel) {
		if !i.EntryApproved(r) {
			continue
		}
		if text := ApplyTopic + channel + " by " + i.Approval.For(r.FullVersionFor(i.ID)).Who.Name; !slices.Contains(of, text) {
			of = append(of, text)
		}
		i.Approval.remove(func(given *entities.Approval) bool { return given.Version == r.FullVersionFor(i.ID) })
	}
	return of
}

// isDownstream reports whether a channel is downstream of another, directly or indirectly.
func (s *State) isDownstream(channel, of string) bool {
	spec, _ := s.Spec.Channel(channel)
	for n := range spec.Conditions {
		for _, up := range spec.Conditions[n].Channels {
			if up == of || s.isDownstream(up, of) {
				return true
			}
		}
	}
	return false
}
