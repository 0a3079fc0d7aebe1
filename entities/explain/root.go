package explain

import (
	"cmp"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// RootCause returns the root cause that blocks a channel (A13). It follows the conditions of a release from channel to channel of the
// service. It returns "" if the cause is unknown. With a zero time the text changes only when the cause changes.
func RootCause(s protocol.Status, c protocol.ChannelStatus, now time.Time) string {
	at, r := rootChannel(s, c)
	return waitReason(s, at, r, now)
}

// rootChannel returns the channel at the start of a chain of waiting channels, and the release that they wait for there.
func rootChannel(s protocol.Status, c protocol.ChannelStatus) (protocol.ChannelStatus, protocol.ReleaseStatus) {
	r, _ := releaseIn(s, c)
	for at := c; ; {
		next, ok := upstream(s, at, r)
		if !ok || next.Name == c.Name { // a cycle; valid configuration has none
			return at, r
		}
		at = next
		if phase := r.Phases[at.Name]; phase != pending {
			return at, r
		}
		r, _ = releaseIn(s, at) // or the release ahead of it there
	}
}

// StatusLookup returns the status of another service of an application; false if it does not answer.
type StatusLookup func(application, service string) (protocol.Status, bool)

// maxHops limits how many other services are queried for a root cause.
const maxHops = 20

// dependencyRootCause follows dependencies from service to service, as rootChannel does from channel to channel, and describes what blocks
// the last one. It returns "" if the cause is in the channel itself, or if services wait for each other in a cycle.
func dependencyRootCause(s protocol.Status, c protocol.ChannelStatus, lookup StatusLookup, now time.Time) string {
	why, seen := "", map[string]bool{name(s) + " " + c.Name: true}
	for range maxHops {
		application, service, channel, waits := dependencyChannel(s, c)
		if !waits || lookup == nil {
			return why
		}
		next, known := lookup(application, service)
		n := slices.IndexFunc(next.Channels, func(c protocol.ChannelStatus) bool { return c.Name == channel })
		switch {
		case !known || n < 0:
			return why
		case next.Channels[n].Status == converged:
			return why // it waits for nothing; the required release was never made
		case seen[name(next)+" "+channel]:
			return ""
		}
		seen[name(next)+" "+channel] = true
		at, r := rootChannel(next, next.Channels[n])
		if text := waitReason(next, at, r, now); text != "" {
			why = name(next) + ": " + text
		}
		s, c = next, at
	}
	return why
}

// dependencyChannel returns the channel of another service that a channel waits for, if that is its first condition.
func dependencyChannel(s protocol.Status, c protocol.ChannelStatus) (application, service, channel string, ok bool) {
	all := unmet(c)
	if len(all) == 0 {
		return "", "", "", false
	}
	service, channel, ok = entities.DependencyOf(all[0].ID)
	application, service = entities.ResolveService(s.Application, service)
	return application, service, cmp.Or(channel, c.Name), ok
}

// upstream returns the channel in which the release has to succeed first.
func upstream(s protocol.Status, c protocol.ChannelStatus, r protocol.ReleaseStatus) (protocol.ChannelStatus, bool) {
	for _, k := range unmet(c) {
		for _, other := range s.Channels {
			if k.Kind == channelStable && slices.Contains(k.Channels, other.Name) && r.Phases[other.Name] != "succeeded" {
				return other, true
			}
		}
	}
	return c, false
}

// waitReason describes what a release waits for in a channel, or its progress there.
func waitReason(s protocol.Status, c protocol.ChannelStatus, r protocol.ReleaseStatus, now time.Time) string {
	w := &writer{status: s, now: now}
	if pauses := w.pausesOf(c); len(pauses) > 0 {
		return pauseText(s, pauses[0], now)
	}
	all := unmet(c)
	switch why := reason(c); {
	case r.Phases[c.Name] == inProgress && now.IsZero():
		return r.Version + " is being deployed to " + c.Name
	case r.Phases[c.Name] == inProgress:
		return r.Version + " is being deployed to " + c.Name + prefixed(": ", why)
	case r.Phases[c.Name] != pending || len(all) == 0:
		return prefixed(c.Name+" is "+c.Status+": ", why)
	case all[0].Kind == check && now.IsZero():
		return "" // the text may name the waiting service, and their texts about each other would grow without end
	case all[0].Plain:
		return r.Version + " waits in " + c.Name + prefixed(": ", oneLine(all[0].Reason, textLimit))
	}
	return r.Version + " waits in " + c.Name + " for " + conditionText(all[0], now)
}

// pauseText says who paused a scope, and since when.
func pauseText(s protocol.Status, p entities.Pause, now time.Time) string {
	scope := pauseScope(s, p)
	if p.Scope == "" {
		scope = joined(" in ", s.Service, p.Channel)
	}
	why := oneLine(p.Reason, textLimit)
	if why != "" {
		why = "(" + why + ")"
	}
	return joined(" ", scope, "is paused by", cmp.Or(p.By, "someone"), why, since(p.At, now))
}

// conditionText describes a condition in full.
func conditionText(k protocol.ConditionStatus, now time.Time) string {
	text := k.ID + prefixed(": ", oneLine(k.Reason, textLimit))
	if k.Kind == check { // a check includes the time itself
		return text
	}
	return joined("; ", text, since(k.Since, now))
}

// reason returns the first reason for a channel's status that is neither a gate of the next release nor a command.
func reason(c protocol.ChannelStatus) string {
	for _, r := range c.Reasons {
		if r.Code != "gate" && r.Code != "command" {
			return oneLine(r.Text, textLimit)
		}
	}
	return ""
}
