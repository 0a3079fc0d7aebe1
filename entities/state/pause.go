package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// SetPause takes in that something this service is part of was paused, or, when pause is nil, resumed:
// its application ("application") or a runtime ("runtime/NAME"). The same news twice changes nothing.
func (s *State) SetPause(scope string, pause *Pause, now time.Time) {
	at := slices.IndexFunc(s.Pauses, func(p Pause) bool { return p.Scope == scope })
	switch {
	case pause == nil && at < 0:
	case pause == nil:
		by := s.Pauses[at].By
		s.Pauses = slices.Delete(slices.Clone(s.Pauses), at, at+1)
		s.Record(now, "", fmt.Sprintf("%s resumed (paused by %s)", scope, by))
	case at >= 0:
		s.Pauses[at] = Pause{Scope: scope, By: pause.By, Reason: pause.Reason, At: pause.At}
	default:
		s.Pauses = append(s.Pauses, Pause{Scope: scope, By: pause.By, Reason: pause.Reason, At: pause.At})
		s.Record(now, "", fmt.Sprintf("%s paused by %s%s", scope, pause.By, entities.Because(pause.Reason)))
	}
}

// PauseOf returns the pause that holds an instance: its channel's before the service's, that before its
// runtime's and its application's.
func (s *State) PauseOf(id entities.InstanceID) (Pause, bool) {
	if len(s.Pauses) == 0 {
		return Pause{}, false
	}
	runtime, _ := s.Runtime(id)
	return s.nearest(func(p Pause) int { return nearness(p, id.Channel, runtime) })
}

// PauseIn returns the pause that holds a channel whatever runtimes its instances are on; an empty channel asks
// for the service as a whole.
func (s *State) PauseIn(channel string) (Pause, bool) {
	return s.nearest(func(p Pause) int { return nearness(p, channel, "") })
}

func (s *State) nearest(nearness func(Pause) int) (Pause, bool) {
	found, nearest := Pause{}, 0
	for _, p := range s.Pauses {
		if n := nearness(p); n > nearest {
			found, nearest = p, n
		}
	}
	return found, nearest > 0
}

// nearness of a pause to a channel on a runtime; zero when it does not hold it.
func nearness(p Pause, channel, runtime string) int {
	switch {
	case p.Scope == entities.ScopeApplication:
		return 1
	case p.Scope != "":
		if runtime != "" && p.Scope == entities.ScopeRuntime+runtime {
			return 2
		}
	case p.Channel == "":
		return 3
	case p.Channel == channel:
		return 4
	}
	return 0
}

// Pause pauses a channel, or the service when channel is empty (A16).
func (s *State) Pause(channel string, who entities.Who, reason string, now time.Time) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	for _, p := range s.Pauses {
		if p.Channel == channel && p.Scope == "" {
			return already("%s is already paused by %s", s.scope(channel), p.By)
		}
	}
	return func() string {
		s.Pauses = append(s.Pauses, Pause{Channel: channel, By: who.Name, Reason: reason, At: now})
		s.noteAct(entities.EventPause, who, nil, channel, "paused", reason, now)
		return s.scope(channel) + " is paused"
	}, nil
}

// Resume ends a pause of exactly that scope.
func (s *State) Resume(channel string, who entities.Who, now time.Time) (Effect, error) {
	if at := slices.IndexFunc(s.Pauses, func(p Pause) bool { return p.Channel == channel && p.Scope == "" }); at >= 0 {
		return func() string { return s.resume(at, channel, who, now) }, nil
	}
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	if p, ok := s.pauseShown(channel); ok {
		return nil, fmt.Errorf("%s is not paused by itself: %s is, by %s; resume it there: %s", s.scope(channel), s.where(p), p.By, s.ResumeWith(p))
	}
	return already("%s is not paused", s.scope(channel))
}

func (s *State) resume(at int, channel string, who entities.Who, now time.Time) string {
	s.Pauses = append(s.Pauses[:at:at], s.Pauses[at+1:]...)
	s.Record(now, channel, "resumed by "+who.Name)
	s.noteAct(entities.EventPause, who, nil, channel, "resumed", "", now)
	if still, ok := s.pauseShown(channel); ok {
		return fmt.Sprintf("%s resumed, but %s is still paused by %s", s.scope(channel), s.where(still), still.By)
	}
	return s.scope(channel) + " resumed"
}

// pauseShown is the nearest pause of a channel, or of the runtime of its only instance.
func (s *State) pauseShown(channel string) (Pause, bool) {
	if c, ok := s.Spec.Channel(channel); ok && len(c.Instances) == 1 {
		return s.PauseOf(c.ID(c.Instances[0]))
	}
	return s.PauseIn(channel)
}

// where names what a pause holds, for people.
func (s *State) where(p Pause) string {
	switch {
	case p.Scope == entities.ScopeApplication:
		return "application " + s.Application
	case p.Scope != "":
		return p.Scope
	}
	return s.scope(p.Channel)
}

// ResumeWith is the command that ends a pause.
func (s *State) ResumeWith(p Pause) string {
	name := s.Application + "/" + s.Service
	switch {
	case p.Scope == entities.ScopeApplication:
		return "converge resume " + s.Application
	case strings.HasPrefix(p.Scope, entities.ScopeRuntime):
		return "converge resume " + p.Scope
	case p.Channel != "":
		return fmt.Sprintf("converge resume %s --channel %s", name, p.Channel)
	}
	return "converge resume " + name
}
