package state

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// This file cancels many waiting releases at once.

// Clearing selects the waiting releases to cancel: those older than OlderThan, or all but Except. Exactly one of them is set, to a
// version as for Find. An empty channel means all channels.
type Clearing struct {
	OlderThan, Except string
	Cancelling        // for each of them
}

// Clear cancels the waiting releases in one action. Releases in progress in a channel continue there, and so do releases that take
// another one back.
func (s *State) Clear(c Clearing, now time.Time) (Effect, error) {
	mark, err := s.FindOpen(c.OlderThan+c.Except, c.Channel)
	if err != nil {
		return nil, err
	}
	ended, in := s.toClear(c, mark)
	if len(ended) == 0 {
		return nil, fmt.Errorf("no release waits in %s %s", s.scope(c.Channel), c.of(mark))
	}
	where := strings.Join(in, ", ")
	text := fmt.Sprintf("%s cancelled in %s", c.span(ended, mark), where)
	return func() string {
		asked := ""
		for _, r := range ended {
			if one := s.clear(r, &c.Cancelling, now); one != "" && asked == "" { // they have the same extensions
				asked = one
			}
		}
		line := s.Audit[len(s.Audit)-1]
		line.Text = text
		s.Announce(s.notifications(), line) // once, for all
		s.Record(now, c.Channel, fmt.Sprintf("%s by %s%s", text, c.Who.Name, entities.Because(c.Reason)))
		return text + asked
	}, nil
}

// clear cancels one release where it waits, and describes its work that was requested to end.
func (s *State) clear(r *Release, c *Cancelling, now time.Time) string {
	var in []string
	for _, channel := range s.pendingIn(r, c.Channel) {
		s.cancel(r, channel, c, now)
		in = append(in, channel)
	}
	s.Note(entities.AuditLine{
		At: now, Kind: entities.EventCancel, Who: &c.Who, Channel: c.Channel, Release: r.ID, Version: r.FullVersion,
		Text: "cancelled in " + strings.Join(in, ", "), Reason: c.Reason,
	})
	return s.asked(r, c)
}

// toClear are the releases to cancel, oldest first, and their channels, in the spec's order.
func (s *State) toClear(c Clearing, mark *Release) (ended []*Release, in []string) {
	channels := map[string]bool{}
	for _, r := range s.Releases {
		if r == mark && c.OlderThan != "" {
			break
		}
		pending := s.pendingIn(r, c.Channel)
		if r.Return || r.Line() != mark.Line() || c.Except != "" && r.FullVersion == mark.FullVersion || len(pending) == 0 {
			continue
		}
		ended = append(ended, r)
		for _, channel := range pending {
			channels[channel] = true
		}
	}
	for _, channel := range s.Spec.ChannelNames() {
		if channels[channel] {
			in = append(in, channel)
		}
	}
	return ended, in
}

// pendingIn are the channels where a release waits, one or all.
func (s *State) pendingIn(r *Release, channel string) []string {
	return slices.DeleteFunc(s.phaseChannels(r, channel), func(c string) bool { return r.Phases[c].Phase != maestro.Pending })
}

// of describes the selection.
func (c Clearing) of(mark *Release) string {
	if c.Except != "" {
		return "other than " + mark.FullVersion
	}
	return "that is older than " + mark.FullVersion
}

// span names the cancelled releases, by the first and the last.
func (c Clearing) span(releases []*Release, mark *Release) string {
	first, last := releases[0], releases[len(releases)-1]
	if len(releases) == 1 {
		return first.FullVersion
	}
	but := ""
	if c.Except != "" {
		but = " except " + mark.FullVersion
	}
	return fmt.Sprintf("%d releases, %s to %s%s,", len(releases), first.FullVersion, last.FullVersion, but)
}
