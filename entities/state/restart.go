package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file restarts instances at their current version (I1).

// Restart restores the instances of a channel that was taken down. Otherwise it restarts the instances of a channel, or of the service if
// channel is empty, at their current targets. It uses a separate apply, which a pause holds and a pin does not. No gate is evaluated,
// because no new version goes out. An instance that has not converged, or whose channel is report-only (A25), is left alone, and named.
func (s *State) Restart(channel string, who entities.Who, reason string, now time.Time) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	again, left := s.restartable(channel)
	switch {
	case len(again) > 0:
	case len(left) > 0:
		return nil, fmt.Errorf("nothing can be restarted now: %s", strings.Join(left, ", "))
	default:
		return nil, fmt.Errorf("nothing was released to %s yet: there is nothing to restart", s.scope(channel))
	}
	return func() string {
		var where []string
		instead := s.instead(again)
		for _, i := range again {
			if s.isDown(i) {
				s.bringBack(i.ID.Channel)
			}
			s.restartInstance(i, now)
			if s.onlyReported(i) { // its gates decide about its entry
				continue
			}
			if c := i.ID.Channel; !slices.Contains(where, c) {
				where = append(where, c)
				s.Record(now, c, i.present()+" restarted by "+who.Name+entities.Because(reason))
				s.note(entities.AuditLine{
					At: now, Kind: entities.EventTarget, Who: &who, Channel: c, Version: i.present(), Text: "target " + i.present() + " again (restart)", Reason: reason,
				})
			}
		}
		text := fmt.Sprintf("%s/%s restarts in %s", s.Application, s.Title(), strings.Join(where, ", ")) + instead
		if len(where) == 0 {
			text = "the reported target is applied once its gates pass again"
		}
		if len(left) > 0 {
			text += "; skipped: " + strings.Join(left, ", ")
		}
		return text
	}, nil
}

// instead is the command that goes back to a good version instead of a cancelled one that the restart restores; or "".
func (s *State) instead(again []*Instance) string {
	for _, i := range again {
		if d := &i.Delivery; d.Cancelled != "" && !d.Converged {
			return fmt.Sprintf("; %s was cancelled %s, before it had succeeded there; to return to the last good version: converge rollback %s/%s %s --channel %s",
				i.present(), d.Cancelled, s.Application, s.Title(), i.present(), i.ID.Channel)
		}
	}
	return ""
}

// restartable are the instances of a channel, or of all channels that are not taken down, that can restart, and those that are left alone
// and why.
func (s *State) restartable(channel string) (again []*Instance, left []string) {
	for _, c := range s.Spec.ChannelNames() {
		down := s.DownIn(c)
		switch {
		case channel != "" && c != channel:
			continue
		case down != nil && channel == "":
			left = append(left, fmt.Sprintf("%s (%s; converge restart %s/%s %s)", c, down.Text(), s.Application, s.Title(), c))
			continue
		}
		for _, i := range s.In(c) {
			if why := s.notRestarted(i); why != "" && down == nil {
				left = append(left, s.Shown(i.ID)+" ("+why+")")
			} else if i.Delivery.Target != nil {
				again = append(again, i)
			}
		}
	}
	return again, left
}

// notRestarted returns why an instance with a target is left alone, or "".
func (s *State) notRestarted(i *Instance) string {
	switch d := &i.Delivery; {
	case d.Target == nil:
		return ""
	case s.ReportsOnly(i.ID.Channel):
		return "its channel is report-only"
	case !d.Converged && !d.Restarting || d.Apply.Running:
		return i.present() + " has not converged"
	}
	return ""
}

// restartInstance sets the current target again. The rollback target of the instance does not change.
func (s *State) restartInstance(i *Instance, now time.Time) {
	d := &i.Delivery
	if s.onlyReported(i) {
		s.backToGood(i, now)
		return
	}
	rollback, before, cancelled, cut := d.Rollback, d.BeforePin, d.Cancelled, d.Cut
	s.returnTo(i, *d.Target, now)
	d.Rollback, d.BeforePin, d.Cancelled, d.Cut = rollback, before, cancelled, cut
	d.Restarted, d.Restarting = now, true
	s.Channel(i.ID.Channel).endWindow()
}
