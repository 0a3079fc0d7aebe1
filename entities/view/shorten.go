package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file shortens a status that is too large for one payload, for clients that do not fetch it in parts (F8). It keeps the entries that
// need attention, and counts the omitted ones.

// How many bytes of a shortened status each part gets.
const (
	maxChannelsBytes = 26 << 10
	maxChannelBytes  = 3 << 10
	maxReleasesBytes = 12 << 10
	maxListBytes     = 3 << 10 // each
	maxTextBytes     = 300     // of a reason
	maxLinesBytes    = 6 << 10 // of an explanation
)

// Shorten shortens a status.
func Shorten(s protocol.Status) protocol.Status {
	channels, releases := len(s.Channels), len(s.Releases)
	s.Channels, s.Releases = worstChannels(s.Channels), entities.Fitting(s.Releases, maxReleasesBytes)
	s.MoreChannels += channels - len(s.Channels)
	s.MoreReleases += releases - len(s.Releases)
	s.Pauses, s.Pins = entities.Fitting(s.Pauses, maxListBytes), entities.Fitting(s.Pins, maxListBytes)
	s.Journal, s.Refused = entities.FittingLast(s.Journal, maxListBytes), entities.FittingLast(s.Refused, maxListBytes)
	s.Headline, s.Description = entities.ClipMessage(s.Headline, 4*maxTextBytes), entities.Clip(s.Description, 4*maxTextBytes)
	if s.Deletion != nil {
		d := *s.Deletion
		d.Gone, s.Deletion = nil, &d
	}
	note := fmt.Sprintf("shortened to fit one response: %d channels and %d releases are not listed, and the listed ones may lack details; "+
		"a converge of this version shows all", s.MoreChannels, s.MoreReleases)
	s.Notes = append([]string{note}, entities.Fitting(s.Notes, maxListBytes)...)
	return s
}

// worstChannels returns the channels with the worst states, as many as fit, in their original order.
func worstChannels(all []protocol.ChannelStatus) []protocol.ChannelStatus {
	worst := make([]int, len(all))
	for n := range all {
		worst[n] = n
	}
	severity := func(n int) int { return entities.Status(all[n].Status).Row().Severity }
	slices.SortStableFunc(worst, func(a, b int) int { return cmp.Compare(severity(b), severity(a)) })
	shown := make([]protocol.ChannelStatus, len(all))
	for k, n := range worst {
		shown[k] = shortenChannel(all[n])
	}
	worst = worst[:len(entities.Fitting(shown, maxChannelsBytes))]
	slices.Sort(worst)
	out := make([]protocol.ChannelStatus, 0, len(worst))
	for _, n := range worst {
		out = append(out, shortenChannel(all[n]))
	}
	return out
}

// shortenChannel omits the details of a channel that do not fit.
func shortenChannel(c protocol.ChannelStatus) protocol.ChannelStatus {
	if raw, err := json.Marshal(c); err == nil && len(raw) <= maxChannelBytes {
		return c
	}
	c.Omitted, c.MoreInstances = c.Omitted+len(c.Objects), c.MoreInstances+len(c.Instances)
	c.Objects, c.Instances, c.Checks, c.PreviousPlacements = []entities.Object{}, nil, nil, nil
	c.Conditions = slices.Clone(entities.Fitting(c.Conditions, maxChannelBytes/3))
	c.Reasons = slices.Clone(c.Reasons[:min(2, len(c.Reasons))])
	for n := range c.Reasons {
		c.Reasons[n].Text, c.Reasons[n].Unblock = entities.ClipMessage(c.Reasons[n].Text, maxTextBytes), entities.ClipMessage(c.Reasons[n].Unblock, maxTextBytes)
	}
	c.MissingConfig = entities.ClipMessage(c.MissingConfig, maxTextBytes)
	if c.Rollback != nil {
		b := *c.Rollback
		b.Reason, c.Rollback = entities.ClipMessage(b.Reason, maxTextBytes), &b
	}
	return c
}

// ShortenExplanation shortens an explanation.
func ShortenExplanation(e protocol.Explanation) protocol.Explanation {
	lines := len(e.Lines)
	e.Lines, e.Status = slices.Clone(entities.Fitting(e.Lines, maxLinesBytes)), Shorten(e.Status)
	if more := lines - len(e.Lines); more > 0 {
		e.Lines = append(e.Lines, fmt.Sprintf("and %d more lines, omitted to fit one response; a converge of this version shows all", more))
	}
	return e
}
