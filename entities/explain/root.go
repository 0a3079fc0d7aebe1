package explain

import (
	"cmp"
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Cause says what holds a channel in the end (A13): it follows what a release waits for from channel to channel of the
// service; "" where nothing is known of that. A time of zero says it in words that do not change before what holds it does.
func Cause(s protocol.Status, c protocol.ChannelStatus, now time.Time) string {
	at, r := root(s, c)
	return holds(s, at, r, now)
}

// root is the channel that others wait for, and that waits for none, with the release that is waited for there.
func root(s protocol.Status, c protocol.ChannelStatus) (protocol.ChannelStatus, protocol.ReleaseStatus) {
	r, _ := releaseIn(s, c)
	for at := c; ; {
		next, ok := upstream(s, at, r)
		if !ok || next.Name == c.Name { // a circle, which configuration has none of
			return at, r
		}
		at = next
		if phase := r.Phases[at.Name]; phase != pending {
			return at, r
		}
		r, _ = releaseIn(s, at) // or what is ahead of it there
	}
}

// Others says what a service of an application says of itself; false where it cannot be asked.
type Others func(application, service string) (protocol.Status, bool)

// mostHops bounds how many other services are asked for what holds a channel.
const mostHops = 20

// rootElsewhere follows what a channel waits for from service to service, as root does from channel to channel: what holds the last
// of them, and "" where that is the channel's own business, or where all wait in a circle.
func rootElsewhere(s protocol.Status, c protocol.ChannelStatus, others Others, now time.Time) string {
	why, seen := "", map[string]bool{name(s) + " " + c.Name: true}
	for range mostHops {
		application, service, channel, waits := elsewhere(s, c)
		if !waits || others == nil {
			return why
		}
		next, known := others(application, service)
		n := slices.IndexFunc(next.Channels, func(of protocol.ChannelStatus) bool { return of.Name == channel })
		switch {
		case !known || n < 0:
			return why
		case next.Channels[n].Status == converged:
			return why // it waits for nothing, and what is expected of it was never released
		case seen[name(next)+" "+channel]:
			return ""
		}
		seen[name(next)+" "+channel] = true
		at, r := root(next, next.Channels[n])
		if text := holds(next, at, r, now); text != "" {
			why = name(next) + ": " + text
		}
		s, c = next, at
	}
	return why
}

// elsewhere is the channel of another service that a channel waits for first, if it does.
func elsewhere(s protocol.Status, c protocol.ChannelStatus) (application, service, channel string, ok bool) {
	all := unmet(c)
	if len(all) == 0 {
		return "", "", "", false
	}
	service, channel, ok = entities.DependsOn(all[0].ID)
	application, service = entities.ServiceIn(s.Application, service)
	return application, service, cmp.Or(channel, c.Name), ok
}

// upstream is the channel that the next release of a channel still has to succeed in.
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

// holds says what a release waits for in a channel, or how far it is there.
func holds(s protocol.Status, c protocol.ChannelStatus, r protocol.ReleaseStatus, now time.Time) string {
	w := &writer{status: s, now: now}
	if pauses := w.pausesOf(c); len(pauses) > 0 {
		return paused(s, pauses[0], now)
	}
	all := unmet(c)
	switch why := reason(c); {
	case r.Phases[c.Name] == inProgress && now.IsZero():
		return r.Version + " is going out to " + c.Name
	case r.Phases[c.Name] == inProgress:
		return r.Version + " is going out to " + c.Name + after(": ", why)
	case r.Phases[c.Name] != pending || len(all) == 0:
		return after(c.Name+" is "+c.Status+": ", why)
	case all[0].Kind == check && now.IsZero():
		return "" // it may name who asks, and what they say of each other would grow for ever
	case all[0].Plain:
		return r.Version + " waits in " + c.Name + after(": ", oneLine(all[0].Reason, textLimit))
	}
	return r.Version + " waits in " + c.Name + " for " + named(all[0], now)
}

// paused says by whom what is paused, and since when.
func paused(s protocol.Status, p entities.Pause, now time.Time) string {
	scope, _ := pauseScope(s, p)
	if p.Scope == "" {
		scope = joined(" in ", s.Service, p.Channel)
	}
	why := oneLine(p.Reason, textLimit)
	if why != "" {
		why = "(" + why + ")"
	}
	return joined(" ", scope, "is paused by", cmp.Or(p.By, "someone"), why, since(p.At, now))
}

// named is a condition with all that it says.
func named(k protocol.ConditionStatus, now time.Time) string {
	text := k.ID + after(": ", oneLine(k.Reason, textLimit))
	if k.Kind == check { // it says itself since when
		return text
	}
	return joined("; ", text, since(k.Since, now))
}

// reason is the first of the reasons for a channel's status that is no gate of what comes next.
func reason(c protocol.ChannelStatus) string {
	for _, r := range c.Reasons {
		if r.Code != "gate" && r.Code != "command" {
			return oneLine(r.Text, textLimit)
		}
	}
	return ""
}
