package entities

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The scopes of a pause that is wider than the service (A16).
const (
	ScopeApplication = "application"
	scopeRuntime     = "runtime/"
)

// Hold takes in that something this service is part of was paused, or, when pause is nil, resumed:
// its application ("application") or a runtime ("runtime/NAME"). Being told twice changes nothing.
func (s *State) Hold(scope string, pause *Pause, now time.Time) {
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
		s.Record(now, "", fmt.Sprintf("%s paused by %s%s", scope, pause.By, because(pause.Reason)))
	}
}

// PauseOf returns the pause that holds a channel: its own before the service's, that before its
// runtime's and its application's. An empty channel asks for the service as a whole.
func (s *State) PauseOf(channel string) (Pause, bool) {
	found, nearest := Pause{}, 0
	for _, p := range s.Pauses {
		if n := s.nearness(p, channel); n > nearest {
			found, nearest = p, n
		}
	}
	return found, nearest > 0
}

// PauseScope pauses a channel, or the service when channel is empty (A16).
func (s *State) PauseScope(channel string, who Who, reason string, now time.Time) (string, error) {
	if err := s.checkChannel(channel); err != nil {
		return "", err
	}
	for _, p := range s.Pauses {
		if p.Channel == channel && p.Scope == "" {
			return fmt.Sprintf("%s is already paused by %s", s.scope(channel), p.By), nil
		}
	}
	s.Pauses = append(s.Pauses, Pause{Channel: channel, By: who.Name, Reason: reason, At: now})
	s.noteAct(EventPause, who, nil, channel, "paused", reason, now)
	return s.scope(channel) + " is paused", nil
}

// ResumeScope ends a pause of exactly that scope.
func (s *State) ResumeScope(channel string, who Who, now time.Time) (string, error) {
	for i, p := range s.Pauses {
		if p.Channel != channel || p.Scope != "" {
			continue
		}
		s.Pauses = append(s.Pauses[:i:i], s.Pauses[i+1:]...)
		s.Record(now, channel, "resumed by "+who.Name)
		s.noteAct(EventPause, who, nil, channel, "resumed", "", now)
		if still, ok := s.PauseOf(channel); ok {
			return fmt.Sprintf("%s resumed, but %s is still paused by %s", s.scope(channel), s.where(still), still.By), nil
		}
		return s.scope(channel) + " resumed", nil
	}
	if err := s.checkChannel(channel); err != nil {
		return "", err
	}
	if p, ok := s.PauseOf(channel); ok {
		return "", fmt.Errorf("%s is not paused by itself: %s is, by %s; resume it there: %s", s.scope(channel), s.where(p), p.By, s.ResumeWith(p))
	}
	return s.scope(channel) + " is not paused", nil
}

// nearness of a pause to a channel; zero when it does not hold it.
func (s *State) nearness(p Pause, channel string) int {
	switch {
	case p.Scope == ScopeApplication:
		return 1
	case p.Scope != "":
		if name, _ := s.RuntimeOf(channel); channel != "" && p.Scope == scopeRuntime+name {
			return 2
		}
	case p.Channel == "":
		return 3
	case p.Channel == channel:
		return 4
	}
	return 0
}

// where names what a pause holds, for people.
func (s *State) where(p Pause) string {
	switch {
	case p.Scope == ScopeApplication:
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
	case p.Scope == ScopeApplication:
		return "converge resume " + s.Application
	case strings.HasPrefix(p.Scope, scopeRuntime):
		return "converge resume " + p.Scope
	case p.Channel != "":
		return fmt.Sprintf("converge resume %s --channel %s", name, p.Channel)
	}
	return "converge resume " + name
}

// RuntimeOf is the runtime that a channel lives on, by name and as the decision sees it; of a channel
// that is no longer declared, as it was when it still was.
func (s *State) RuntimeOf(channel string) (string, RuntimeSpec) {
	if c, ok := s.Spec.Channel(channel); ok {
		return c.Runtime, s.Spec.Runtimes[c.Runtime]
	}
	if i := s.Instances[channel]; i != nil && i.Left != nil {
		return i.Runtime, *i.Left
	} else if i != nil {
		return i.Runtime, RuntimeSpec{}
	}
	return "", RuntimeSpec{}
}
