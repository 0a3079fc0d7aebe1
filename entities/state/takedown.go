package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file deletes a single channel and restores it. The channel stays declared, and nothing runs there until then.

// ChannelDeletion records that a person deleted a channel.
type ChannelDeletion struct {
	Who    entities.Who `json:"who"`
	Reason string       `json:"reason,omitempty"`
	At     time.Time    `json:"at"`
}

// Text states who deleted it, and why.
func (d *ChannelDeletion) Text() string {
	return "deleted by " + d.Who.Name + entities.Because(d.Reason)
}

// TakedownOf is the record that a channel is deleted, or nil.
func (s *State) TakedownOf(channel string) *ChannelDeletion {
	if c := s.Channels[channel]; c != nil {
		return c.Takedown
	}
	return nil
}

// TakeDown removes the objects of a channel. It stays declared and empty until a person restarts it. A release in progress there must end
// first.
func (s *State) TakeDown(channel string, who entities.Who, reason string, now time.Time) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	if down := s.TakedownOf(channel); down != nil {
		return noChange("%s is already %s", s.scopeName(channel), down.Text())
	}
	if why := s.checkTakeDown(channel); why != nil {
		return nil, why
	}
	return func() string {
		s.Channel(channel).Takedown = &ChannelDeletion{Who: who, Reason: reason, At: now}
		s.Channel(channel).endWindow()
		s.AppendJournal(now, channel, s.Channel(channel).Takedown.Text())
		s.recordAction(entities.EventDelete, who, nil, channel, "deleted", reason, now)
		return fmt.Sprintf("%s is being deleted; to restore it: converge restart %s/%s %s", s.scopeName(channel), s.Application, s.Title(), channel)
	}, nil
}

// checkTakeDown returns why a channel cannot be deleted now, or nil.
func (s *State) checkTakeDown(channel string) error {
	for _, r := range s.Releases {
		if p, _ := r.PhaseIn(channel); p == maestro.InProgress {
			return fmt.Errorf("%s is in progress in %s: wait until it has converged, or cancel it first", r.FullVersion, s.scopeName(channel))
		}
	}
	if s.IsReportOnly(channel) {
		return fmt.Errorf("%s is report-only: Converge does not remove its objects", s.scopeName(channel))
	}
	found := false
	for _, i := range s.InstancesIn(channel) {
		runtime, rt := s.Runtime(i.ID)
		switch d := &i.Delivery; {
		case d.Apply.Running:
			return fmt.Errorf("an apply of %s runs in %s: wait until it ends, or cancel it first", i.currentVersion(), s.DisplayName(i.ID))
		case d.Target != nil && !rt.CanRemove:
			return fmt.Errorf("runtime %s cannot remove the objects of %s", runtime, s.DisplayName(i.ID))
		}
		found = found || i.Delivery.Target != nil
	}
	if !found {
		return fmt.Errorf("nothing was released to %s yet: there is nothing to delete", s.scopeName(channel))
	}
	return nil
}

// endTakedown ends the deletion of a channel: its targets are applied again.
func (s *State) endTakedown(channel string) {
	s.Channel(channel).Takedown = nil
	for _, i := range s.InstancesIn(channel) {
		i.RemovalStarted, i.TakenDown = false, false
	}
}

// isTakenDown reports whether the objects of an instance are to be removed, or were.
func (s *State) isTakenDown(i *Instance) bool {
	return slices.Contains(s.Spec.ChannelNames(), i.ID.Channel) && s.TakedownOf(i.ID.Channel) != nil
}
