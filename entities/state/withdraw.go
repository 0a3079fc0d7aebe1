package state

import (
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file withdraws approvals: who approved a release before it failed did not know that it would. What a person said of
// it counts no longer where it is still to come, nor where it was taken back (G2). A rejection stays, and so does a bypass,
// which lets a release pass whatever is said.

// withdraw has the approvals of a release that failed in a channel, or was rolled back there, count no longer in the channels
// behind it that it has not entered. Again: nor in the channel itself, which it would have to enter once more.
func (s *State) withdraw(r *Release, channel string, again bool, why string, now time.Time) {
	for _, c := range s.Spec.ChannelNames() {
		p := r.in(c)
		behind := p != nil && p.Phase == maestro.Pending && s.isBehind(c, channel)
		if !behind && !(again && c == channel) {
			continue
		}
		if of := append(s.withdrawTopics(r, c, why), s.withdrawApplies(r, c)...); len(of) > 0 {
			s.noteWithdrawn(r, c, of, why, now)
		}
	}
}

// noteWithdrawn writes down what was withdrawn in a channel.
func (s *State) noteWithdrawn(r *Release, channel string, of []string, why string, now time.Time) {
	text := "approval withdrawn: " + strings.Join(of, ", ")
	s.Record(now, channel, r.FullVersion+" "+text+entities.Because(why))
	s.note(entities.AuditLine{
		At: now, Kind: entities.EventApproval, Channel: channel, Release: r.ID, Version: r.FullVersion, Text: text, Reason: why,
	})
	s.Channel(channel).Announced = "" // whoever is told that an approval is waited for is told again
}

// withdrawTopics withdraws what was said of topics that a channel asks for, and lists it.
func (s *State) withdrawTopics(r *Release, channel, why string) []string {
	spec, _ := s.Spec.Channel(channel)
	var of []string
	for i := range r.Approvals {
		a := &r.Approvals[i]
		asked := slices.ContainsFunc(spec.Approvals(), func(c entities.Condition) bool { return c.Topic == a.Topic })
		if _, already := a.Withdrawn[channel]; a.Reject || already {
			continue
		}
		if a.Withdraw(channel, why); asked {
			of = append(of, a.Topic+" by "+a.Who.Name)
		}
	}
	return of
}

// withdrawApplies withdraws what was said of the apply with which the release would enter.
func (s *State) withdrawApplies(r *Release, channel string) []string {
	var of []string
	for _, i := range s.In(channel) {
		if !i.ApprovesEntry(r) {
			continue
		}
		if said := ApplyTopic + channel + " by " + i.Approval.Of(r.FullIn(i.ID)).Who.Name; !slices.Contains(of, said) {
			of = append(of, said)
		}
		i.Approval.drop(func(given *entities.Approval) bool { return given.Version == r.FullIn(i.ID) })
	}
	return of
}

// isBehind tells whether a channel is entered only after another, directly or by way of others.
func (s *State) isBehind(channel, of string) bool {
	spec, _ := s.Spec.Channel(channel)
	for n := range spec.Conditions {
		for _, up := range spec.Conditions[n].Channels {
			if up == of || s.isBehind(up, of) {
				return true
			}
		}
	}
	return false
}
