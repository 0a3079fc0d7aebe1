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

// BulkCancellation selects the waiting releases to cancel: those older than OlderThan, or all but Except. Exactly one of them is set, to a
// version as for Find. An empty channel means all channels.
type BulkCancellation struct {
	OlderThan, Except string
	Cancellation      // for each of them
}

// CancelWaiting cancels the waiting releases in one action. Releases in progress in a channel continue there, and so do releases that
// roll another one back.
func (s *State) CancelWaiting(c BulkCancellation, now time.Time) (Effect, error) {
	reference, err := s.FindOpen(c.OlderThan+c.Except, c.Channel)
	if err != nil {
		return nil, err
	}
	cancelled, in := s.selectWaiting(c, reference)
	if len(cancelled) == 0 {
		return nil, fmt.Errorf("no release waits in %s %s", s.scopeName(c.Channel), c.selectionText(reference))
	}
	channels := strings.Join(in, ", ")
	text := fmt.Sprintf("%s cancelled in %s", c.rangeText(cancelled, reference), channels)
	return func() string {
		ending := ""
		for _, r := range cancelled {
			if one := s.cancelWaiting(r, &c.Cancellation, now); one != "" && ending == "" { // they have the same extensions
				ending = one
			}
		}
		entry := s.Audit[len(s.Audit)-1]
		entry.Text = text
		s.Announce(s.notifications(), entry) // once, for all
		s.AppendJournal(now, c.Channel, fmt.Sprintf("%s by %s%s", text, c.Who.Name, entities.Because(c.Reason)))
		return text + ending
	}, nil
}

// cancelWaiting cancels one release where it waits, and describes its work that was requested to end.
func (s *State) cancelWaiting(r *Release, c *Cancellation, now time.Time) string {
	var in []string
	for _, channel := range s.pendingChannels(r, c.Channel) {
		s.cancelInChannel(r, channel, c, now)
		in = append(in, channel)
	}
	s.AppendAudit(entities.AuditEntry{
		At: now, Kind: entities.EventCancel, Who: &c.Who, Channel: c.Channel, Release: r.ID, Version: r.FullVersion,
		Text: "cancelled in " + strings.Join(in, ", "), Reason: c.Reason,
	})
	return s.requestEnd(r, c)
}

// selectWaiting are the releases to cancel, oldest first, and their channels, in the spec's order.
func (s *State) selectWaiting(c BulkCancellation, reference *Release) (selected []*Release, in []string) {
	channels := map[string]bool{}
	for _, r := range s.Releases {
		if r == reference && c.OlderThan != "" {
			break
		}
		pending := s.pendingChannels(r, c.Channel)
		if r.Return || r.Track() != reference.Track() || c.Except != "" && r.FullVersion == reference.FullVersion || len(pending) == 0 {
			continue
		}
		selected = append(selected, r)
		for _, channel := range pending {
			channels[channel] = true
		}
	}
	for _, channel := range s.Spec.ChannelNames() {
		if channels[channel] {
			in = append(in, channel)
		}
	}
	return selected, in
}

// pendingChannels are the channels where a release waits, one or all.
func (s *State) pendingChannels(r *Release, channel string) []string {
	return slices.DeleteFunc(s.phaseChannels(r, channel), func(c string) bool { return r.Phases[c].Phase != maestro.Pending })
}

// selectionText describes the selection.
func (c BulkCancellation) selectionText(reference *Release) string {
	if c.Except != "" {
		return "other than " + reference.FullVersion
	}
	return "that is older than " + reference.FullVersion
}

// rangeText names the cancelled releases, by the first and the last.
func (c BulkCancellation) rangeText(releases []*Release, reference *Release) string {
	first, last := releases[0], releases[len(releases)-1]
	if len(releases) == 1 {
		return first.FullVersion
	}
	except := ""
	if c.Except != "" {
		except = " except " + reference.FullVersion
	}
	return fmt.Sprintf("%d releases, %s to %s%s,", len(releases), first.FullVersion, last.FullVersion, except)
}
