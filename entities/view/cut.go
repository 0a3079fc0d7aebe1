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
	cutChannels = 26 << 10
	cutChannel  = 3 << 10
	cutReleases = 12 << 10
	cutLists    = 3 << 10 // each
	cutText     = 300     // of a reason
	cutLines    = 6 << 10 // of an explanation
)

// Cut shortens a status.
func Cut(s protocol.Status) protocol.Status {
	channels, releases := len(s.Channels), len(s.Releases)
	s.Channels, s.Releases = cutToWorst(s.Channels), entities.Fitting(s.Releases, cutReleases)
	s.MoreChannels += channels - len(s.Channels)
	s.MoreReleases += releases - len(s.Releases)
	s.Pauses, s.Pins = entities.Fitting(s.Pauses, cutLists), entities.Fitting(s.Pins, cutLists)
	s.Journal, s.Refused = entities.FittingLast(s.Journal, cutLists), entities.FittingLast(s.Refused, cutLists)
	s.Headline, s.Description = entities.Clip(s.Headline, 4*cutText), entities.Clip(s.Description, 4*cutText)
	if s.Deletion != nil {
		d := *s.Deletion
		d.Gone, s.Deletion = nil, &d
	}
	why := fmt.Sprintf("shortened to fit one response: %d channels and %d releases are not listed, and the listed ones may lack details; "+
		"a converge of this version shows all", s.MoreChannels, s.MoreReleases)
	s.Notes = append([]string{why}, entities.Fitting(s.Notes, cutLists)...)
	return s
}

// cutToWorst returns the channels with the worst states, as many as fit, in their original order.
func cutToWorst(all []protocol.ChannelStatus) []protocol.ChannelStatus {
	worst := make([]int, len(all))
	for n := range all {
		worst[n] = n
	}
	severity := func(n int) int { return entities.Status(all[n].Status).Row().Severity }
	slices.SortStableFunc(worst, func(a, b int) int { return cmp.Compare(severity(b), severity(a)) })
	shown := make([]protocol.ChannelStatus, len(all))
	for k, n := range worst {
		shown[k] = cutOne(all[n])
	}
	worst = worst[:len(entities.Fitting(shown, cutChannels))]
	slices.Sort(worst)
	out := make([]protocol.ChannelStatus, 0, len(worst))
	for _, n := range worst {
		out = append(out, cutOne(all[n]))
	}
	return out
}

// cutOne omits the details of a channel that do not fit.
func cutOne(c protocol.ChannelStatus) protocol.ChannelStatus {
	if raw, err := json.Marshal(c); err == nil && len(raw) <= cutChannel {
		return c
	}
	c.Omitted, c.MoreInstances = c.Omitted+len(c.Objects), c.MoreInstances+len(c.Instances)
	c.Objects, c.Instances, c.Checks, c.Left = []entities.Object{}, nil, nil, nil
	c.Conditions = slices.Clone(entities.Fitting(c.Conditions, cutChannel/3))
	c.Reasons = slices.Clone(c.Reasons[:min(2, len(c.Reasons))])
	for n := range c.Reasons {
		c.Reasons[n].Text, c.Reasons[n].Unblock = entities.Clip(c.Reasons[n].Text, cutText), entities.Clip(c.Reasons[n].Unblock, cutText)
	}
	c.Lacks = entities.Clip(c.Lacks, cutText)
	if c.Rollback != nil {
		b := *c.Rollback
		b.Reason, c.Rollback = entities.Clip(b.Reason, cutText), &b
	}
	return c
}

// CutExplanation shortens an explanation.
func CutExplanation(e protocol.Explanation) protocol.Explanation {
	lines := len(e.Lines)
	e.Lines, e.Status = slices.Clone(entities.Fitting(e.Lines, cutLines)), Cut(e.Status)
	if more := lines - len(e.Lines); more > 0 {
		e.Lines = append(e.Lines, fmt.Sprintf("and %d more lines, omitted to fit one response; a converge of this version shows all", more))
	}
	return e
}
