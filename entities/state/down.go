package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file takes a single channel down and brings it back. The channel stays declared, and nothing runs there until then.

// Down records that a person took a channel down.
type Down struct {
	Who    entities.Who `json:"who"`
	Reason string       `json:"reason,omitempty"`
	At     time.Time    `json:"at"`
}

// Text states who took it down, and why.
func (d *Down) Text() string { return "taken down by " + d.Who.Name + entities.Because(d.Reason) }

// DownIn is the record that a channel is taken down, or nil.
func (s *State) DownIn(channel string) *Down {
	if c := s.Channels[channel]; c != nil {
		return c.Down
	}
	return nil
}

// TakeDown removes the objects of a channel. It stays declared and empty until a person restarts it. A release in progress there must end
// first.
func (s *State) TakeDown(channel string, who entities.Who, reason string, now time.Time) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	if down := s.DownIn(channel); down != nil {
		return already("%s is already %s", s.scope(channel), down.Text())
	}
	if why := s.notDown(channel); why != nil {
		return nil, why
	}
	return func() string {
		s.Channel(channel).Down = &Down{Who: who, Reason: reason, At: now}
		s.Channel(channel).endWindow()
		s.Record(now, channel, s.Channel(channel).Down.Text())
		s.noteAct(entities.EventDelete, who, nil, channel, "taken down", reason, now)
		return fmt.Sprintf("%s is being taken down; to restore it: converge restart %s/%s %s", s.scope(channel), s.Application, s.Title(), channel)
	}, nil
}

// notDown returns why a channel cannot be taken down now, or nil.
func (s *State) notDown(channel string) error {
	for _, r := range s.Releases {
		if p, _ := r.PhaseIn(channel); p == maestro.InProgress {
			return fmt.Errorf("%s is in progress in %s: wait until it has converged, or cancel it first", r.FullVersion, s.scope(channel))
		}
	}
	if s.ReportsOnly(channel) {
		return fmt.Errorf("%s is report-only: Converge does not remove its objects", s.scope(channel))
	}
	some := false
	for _, i := range s.In(channel) {
		runtime, rt := s.Runtime(i.ID)
		switch d := &i.Delivery; {
		case d.Apply.Running:
			return fmt.Errorf("an apply of %s runs in %s: wait until it ends, or cancel it first", i.present(), s.Shown(i.ID))
		case d.Target != nil && !rt.CanRemove:
			return fmt.Errorf("runtime %s cannot remove the objects of %s", runtime, s.Shown(i.ID))
		}
		some = some || i.Delivery.Target != nil
	}
	if !some {
		return fmt.Errorf("nothing was released to %s yet: there is nothing to take down", s.scope(channel))
	}
	return nil
}

// bringBack ends the takedown of a channel: its targets are applied again.
func (s *State) bringBack(channel string) {
	s.Channel(channel).Down = nil
	for _, i := range s.In(channel) {
		i.Removed, i.Down = false, false
	}
}

// isDown reports whether the objects of an instance are to be removed, or were.
func (s *State) isDown(i *Instance) bool {
	return slices.Contains(s.Spec.ChannelNames(), i.ID.Channel) && s.DownIn(i.ID.Channel) != nil
}
