package view_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/view"
)

// randomStatus is a status of any size up to the limits.
func randomStatus(t *rapid.T) (s protocol.Status) {
	count := func(most int, what string) int { return rapid.SampledFrom([]int{0, 1, most / 10, most}).Draw(t, what) }
	text := func(most int, what string) string { return strings.Repeat("é", count(most, what)/2) }
	reason, name := text(500, "reason"), "n"+text(62, "name")
	s.Headline, s.Description = text(40_000, "headline"), text(150_000, "description")
	objects, conditions, checks := count(20, "objects"), count(10, "conditions"), count(10, "checks")
	for n := range rapid.SampledFrom([]int{0, 1, 20, 100, 500}).Draw(t, "channels") {
		c := protocol.ChannelStatus{Name: fmt.Sprint(name, n), Runtime: name, Status: string(entities.StatusConverged), Target: name + name, Desired: name + name, MissingConfig: reason}
		for range objects {
			c.Objects = append(c.Objects, entities.Object{Name: name, Message: reason})
		}
		for k := range conditions {
			c.Conditions = append(c.Conditions, protocol.ConditionStatus{ID: fmt.Sprint(name, k), Reason: reason, Unblock: reason})
			c.Reasons = append(c.Reasons, protocol.Reason{Text: reason, Unblock: reason})
		}
		for range checks {
			c.Checks = append(c.Checks, protocol.CheckStatus{ID: name, Reason: reason})
		}
		c.Rollback = &entities.Rollback{Reason: reason}
		s.Channels = append(s.Channels, c)
		s.Pauses, s.Pins = append(s.Pauses, entities.Pause{Channel: name, Reason: reason}), append(s.Pins, protocol.PinStatus{Channel: name, Reason: reason})
		s.Notes = append(s.Notes, reason)
	}
	for n := range count(10, "releases") {
		r := protocol.ReleaseStatus{ID: fmt.Sprint(n), Version: name + name, Phases: map[string]string{}, Reasons: map[string]string{}}
		for _, c := range s.Channels {
			r.Phases[c.Name], r.Reasons[c.Name] = "failed", reason
		}
		s.Releases = append(s.Releases, r)
	}
	for range 40 {
		s.Journal = append(s.Journal, entities.JournalEntry{Text: reason, At: time.Unix(1, 1)})
	}
	return s
}

// A status of any size fits into a payload once it is shortened, and counts the omitted entries.
func TestShortenedStatusFits_F8(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := randomStatus(t)
		short := view.Shorten(s)
		lines := make([]string, 2000)
		for n := range lines {
			lines[n] = strings.Repeat("x", 100)
		}
		raw, err := json.Marshal(view.ShortenExplanation(protocol.Explanation{Lines: lines, Status: s}))
		switch {
		case err != nil || len(raw) > protocol.MaxPayload:
			t.Fatalf("%d bytes: %v", len(raw), err)
		case len(short.Channels)+short.MoreChannels != len(s.Channels), len(short.Releases)+short.MoreReleases != len(s.Releases):
			t.Fatalf("%d channels and %d releases are not counted", len(s.Channels), len(s.Releases))
		}
	})
}

// Entries that need a person are kept.
func TestShortenedStatusKeepsTheWorst_F8(t *testing.T) {
	t.Parallel()
	var s protocol.Status
	for n := range 500 {
		c := protocol.ChannelStatus{Name: fmt.Sprintf("c%03d", n), Status: string(entities.StatusConverged), Reasons: []protocol.Reason{{Text: strings.Repeat("x", 500)}}}
		if n == 400 {
			c.Status = string(entities.StatusFailed)
		}
		s.Channels = append(s.Channels, c)
	}
	short := view.Shorten(s)
	failed := short.Channels[len(short.Channels)-1]
	require.Equal(t, "c400 FAILED", failed.Name+" "+failed.Status)
	require.Equal(t, "c000", short.Channels[0].Name, "in their order")
	require.Contains(t, short.Notes[0], "a converge of this version shows all")
}
