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
	return holds(s, root(s, c), now)
}

// root is the channel that others wait for, and that waits for none.
func root(s protocol.Status, c protocol.ChannelStatus) protocol.ChannelStatus {
	seen := map[string]bool{}
	for at := c; !seen[at.Name]; {
		seen[at.Name] = true
		next, ok := upstream(s, at)
		if !ok {
			return at
		}
		at = next
	}
	return c // a circle, which configuration has none of
}

// upstream is the channel that the next release of a channel still has to succeed in.
func upstream(s protocol.Status, c protocol.ChannelStatus) (protocol.ChannelStatus, bool) {
	r, _ := releaseIn(s, c)
	for _, k := range unmet(c) {
		for _, other := range s.Channels {
			if k.Kind == channelStable && slices.Contains(k.Channels, other.Name) && r.Phases[other.Name] != "succeeded" {
				return other, true
			}
		}
	}
	return c, false
}

// holds says what a channel waits for, or is doing.
func holds(s protocol.Status, c protocol.ChannelStatus, now time.Time) string {
	w := &writer{status: s, now: now}
	version := cmp.Or(c.Desired, c.Target)
	if pauses := w.pausesOf(c); len(pauses) > 0 {
		p := pauses[0]
		scope, _ := pauseScope(s, p)
		if p.Scope == "" {
			scope = joined(" ", s.Service, after("in ", p.Channel))
		}
		why := oneLine(p.Reason, textLimit)
		if why != "" {
			why = "(" + why + ")"
		}
		return joined(" ", scope, "is paused by", cmp.Or(p.By, "someone"), why, since(p.At, now))
	}
	switch all := unmet(c); {
	case len(all) > 0 && all[0].Kind == check && now.IsZero():
		return "" // it may name who asks, and what they say of each other would grow for ever
	case len(all) > 0:
		return joined(" ", version, "waits in", c.Name, "for", named(all[0], now))
	}
	switch why := reason(c); {
	case c.Status == string(entities.StatusConverging) && now.IsZero():
		return version + " is going out to " + c.Name
	case c.Status == string(entities.StatusConverging):
		return version + " is going out to " + c.Name + after(": ", why)
	default:
		return after(c.Name+" is "+c.Status+": ", why)
	}
}

// named is a condition with all that it says.
func named(k protocol.ConditionStatus, now time.Time) string {
	if k.Plain {
		return oneLine(k.Reason, textLimit)
	}
	text := k.ID + after(": ", oneLine(k.Reason, textLimit))
	if k.Kind == check { // it says itself since when
		return text
	}
	return joined("; ", text, since(k.Since, now))
}

// reason is the first of the reasons for a channel's status.
func reason(c protocol.ChannelStatus) string {
	if len(c.Reasons) == 0 {
		return ""
	}
	return oneLine(c.Reasons[0].Text, textLimit)
}
