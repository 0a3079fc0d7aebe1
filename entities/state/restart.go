package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file restarts instances at their current version (I1).

// Restart restores the instances of a deleted channel. Otherwise it restarts the instances of a channel, or of the service if
// channel is empty, at their current targets. It uses a separate apply, which a pause holds and a pin does not. No gate is evaluated,
// because no new version is deployed. An instance that has not converged, or whose channel is report-only (A25), is skipped, and named.
func (s *State) Restart(channel string, who entities.Who, reason string, now time.Time) (Effect, error) {
	if err := s.checkChannel(channel); err != nil {
		return nil, err
	}
	instances, skipped := s.restartable(channel)
	switch {
	case len(instances) > 0:
	case len(skipped) > 0:
		return nil, fmt.Errorf("nothing can be restarted now: %s", strings.Join(skipped, ", "))
	default:
		return nil, fmt.Errorf("nothing was released to %s yet: there is nothing to restart", s.scopeName(channel))
	}
	return func() string {
		var channels []string
		hint := s.cancelledHint(instances)
		for _, i := range instances {
			if s.isTakenDown(i) {
				s.endTakedown(i.ID.Channel)
			}
			s.restartInstance(i, now)
			if s.neverApplied(i) { // its gates decide about its entry
				continue
			}
			if c := i.ID.Channel; !slices.Contains(channels, c) {
				channels = append(channels, c)
				s.AppendJournal(now, c, i.currentVersion()+" restarted by "+who.Name+entities.Because(reason))
				s.recordAudit(entities.AuditEntry{
					At: now, Kind: entities.EventTarget, Who: &who, Channel: c, Version: i.currentVersion(), Text: "target " + i.currentVersion() + " again (restart)", Reason: reason,
				})
			}
		}
		text := fmt.Sprintf("%s/%s restarts in %s", s.Application, s.Title(), strings.Join(channels, ", ")) + hint
		if len(channels) == 0 {
			text = "the reported target is applied once its gates pass again"
		}
		if len(skipped) > 0 {
			text += "; skipped: " + strings.Join(skipped, ", ")
		}
		return text
	}, nil
}

// cancelledHint is the command that returns to a good version instead of a cancelled one that the restart restores; or "".
func (s *State) cancelledHint(instances []*Instance) string {
	for _, i := range instances {
		if d := &i.Delivery; d.Cancelled != "" && !d.Converged {
			return fmt.Sprintf("; %s was cancelled %s, before it succeeded there; to return to the last good version: converge rollback %s/%s %s --channel %s",
				i.currentVersion(), d.Cancelled, s.Application, s.Title(), i.currentVersion(), i.ID.Channel)
		}
	}
	return ""
}

// restartable are the instances of a channel, or of all channels that are not deleted, that can restart, and those that are skipped
// and why.
func (s *State) restartable(channel string) (instances []*Instance, skipped []string) {
	for _, c := range s.Spec.ChannelNames() {
		down := s.TakedownOf(c)
		switch {
		case channel != "" && c != channel:
			continue
		case down != nil && channel == "":
			skipped = append(skipped, fmt.Sprintf("%s (%s; converge restart %s/%s %s)", c, down.Text(), s.Application, s.Title(), c))
			continue
		}
		for _, i := range s.InstancesIn(c) {
			if why := s.restartRefusal(i); why != "" && down == nil {
				skipped = append(skipped, s.DisplayName(i.ID)+" ("+why+")")
			} else if i.Delivery.Target != nil {
				instances = append(instances, i)
			}
		}
	}
	return instances, skipped
}

// restartRefusal returns why an instance with a target is skipped, or "".
func (s *State) restartRefusal(i *Instance) string {
	switch d := &i.Delivery; {
	case d.Target == nil:
		return ""
	case s.IsReportOnly(i.ID.Channel):
		return "its channel is report-only"
	case !d.Converged && !d.Restarting || d.Apply.Running:
		return i.currentVersion() + " has not converged"
	}
	return ""
}

// restartInstance sets the current target again. The rollback target of the instance does not change.
func (s *State) restartInstance(i *Instance, now time.Time) {
	d := &i.Delivery
	if s.neverApplied(i) {
		s.restoreLastGood(i, now)
		return
	}
	rollback, before, cancelled, channelRemoved := d.Rollback, d.BeforePin, d.Cancelled, d.ChannelRemoved
	s.restoreTarget(i, *d.Target, now)
	d.Rollback, d.BeforePin, d.Cancelled, d.ChannelRemoved = rollback, before, cancelled, channelRemoved
	d.RestartedAt, d.Restarting = now, true
	s.Channel(i.ID.Channel).endWindow()
}
