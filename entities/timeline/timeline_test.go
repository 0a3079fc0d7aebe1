package timeline

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/protocol"
)

var update = flag.Bool("update", false, "write the golden chart")

var monday = time.Date(2026, 11, 16, 9, 0, 0, 0, time.UTC)

func hours(h float64) time.Time { return monday.Add(time.Duration(h * float64(time.Hour))) }

// week is: v8 goes everywhere; v9 goes to staging, waits a day because somebody paused production, fails there and is rolled
// back; v10 was called off; v11, with a name that would be markup, waits for an approval.
func week() Input {
	entry := func(h float64, kind, channel, release, version, text string) entities.AuditEntry {
		return entities.AuditEntry{At: hours(h), Kind: kind, Channel: channel, Release: release, Version: version, Text: text}
	}
	paused := entry(5, entities.EventPause, "production", "", "", "paused")
	paused.Who, paused.Reason = &entities.Who{Name: "bob"}, "incident 12"
	return Input{
		Now: hours(60), Needs: map[string][]string{"production": {"staging"}},
		Status: protocol.Status{
			Channels: []protocol.ChannelStatus{
				{Name: "staging", Target: "v11<b>"},
				{Name: "production", Target: "v8", Desired: "v11<b>", Conditions: []protocol.ConditionStatus{
					{ID: "approval/go-live", Verdict: "WAIT", Reason: "0 of 1", Since: hours(52)},
				}},
			},
			Releases: []protocol.ReleaseStatus{{ID: "4", Version: "v11<b>", Phases: map[string]string{"staging": "succeeded", "production": "pending"}}},
		},
		Lines: []entities.AuditEntry{
			entry(0, entities.EventRelease, "", "1", "v8", ""),
			entry(0, entities.EventTarget, "staging", "1", "v8", ""),
			entry(1, entities.EventSucceeded, "staging", "1", "v8", ""),
			entry(1, entities.EventTarget, "production", "1", "v8", ""),
			entry(3, entities.EventSucceeded, "production", "1", "v8", ""),
			entry(4, entities.EventRelease, "", "2", "v9", ""),
			entry(4, entities.EventTarget, "staging", "2", "v9", ""),
			paused,
			entry(6, entities.EventSucceeded, "staging", "2", "v9", ""),
			entry(29, entities.EventPause, "production", "", "", "resumed"),
			entry(29, entities.EventTarget, "production", "2", "v9", ""),
			entry(32, entities.EventFailed, "production", "2", "v9", ""),
			entry(33, entities.EventRollback, "production", "2", "v9", ""),
			entry(34, entities.EventSucceeded, "production", "2", "v8", ""),
			entry(40, entities.EventRelease, "", "3", "v10", ""),
			entry(45, entities.EventCancel, "", "3", "v10", ""),
			entry(48, entities.EventRelease, "", "4", "v11<b>", ""),
			entry(48, entities.EventTarget, "staging", "4", "v11<b>", ""),
			entry(52, entities.EventSucceeded, "staging", "4", "v11<b>", ""),
			entry(52, entities.EventWaiting, "production", "4", "v11<b>", "v11<b> waits for approval/go-live"),
		},
	}
}

func TestSpansOfReleasesInChannels_B6(t *testing.T) {
	var got []string
	for _, e := range Of(week()) {
		for _, s := range e.Spans {
			to := "…"
			if !s.To.IsZero() {
				to = fmt.Sprint(s.To.Sub(monday).Hours())
			}
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %v-%s %s", e.Version, e.Channel, s.Kind, s.From.Sub(monday).Hours(), to, strings.Join(s.Reasons, "; "))))
		}
	}
	require.Equal(t, `v11<b> staging deploys 48-52
v11<b> staging runs 52-…
v11<b> production waits 48-… v11<b> waits for approval/go-live; approval/go-live: 0 of 1; not succeeded in staging yet
v10 staging waits 40-45 cancelled
v10 production waits 40-45 cancelled; not succeeded in staging yet
v9 staging deploys 4-6
v9 staging runs 6-48
v9 production waits 4-29 paused by bob: incident 12; not succeeded in staging yet
v9 production deploys 29-32
v9 production fails 32-33
v8 staging deploys 0-1
v8 staging runs 1-4
v8 production waits 0-1 not succeeded in staging yet
v8 production deploys 1-3
v8 production runs 3-29
v8 production deploys 33-34
v8 production runs 34-…`, strings.Join(got, "\n"))
}

// A failure is drawn also where a rollback follows at once; a release that was skipped says what went there instead; and one that changes
// nothing runs from then on.
func TestFailuresSkipsAndUnchangedAreDrawn_B6(t *testing.T) {
	entry := func(h float64, kind, release, version, text string) entities.AuditEntry {
		return entities.AuditEntry{At: hours(h), Kind: kind, Channel: "production", Release: release, Version: version, Text: text}
	}
	back := entry(4, entities.EventRollback, "2", "v2", "")
	back.Reason = "exit status 1"
	in := Input{
		Now: hours(12), Status: protocol.Status{Channels: []protocol.ChannelStatus{{Name: "production", Target: "v5"}}},
		Lines: []entities.AuditEntry{
			entry(0, entities.EventRelease, "1", "v1", ""), entry(0, entities.EventTarget, "1", "v1", ""), entry(1, entities.EventSucceeded, "1", "v1", ""),
			entry(2, entities.EventRelease, "2", "v2", ""), entry(2, entities.EventTarget, "2", "v2", ""), entry(4, entities.EventFailed, "2", "v2", ""), back,
			entry(5, entities.EventSucceeded, "2", "v1", ""),
			entry(6, entities.EventRelease, "3", "v3", ""), entry(7, entities.EventRelease, "4", "v4", ""),
			entry(8, entities.EventTarget, "4", "v4", ""), entry(9, entities.EventSucceeded, "4", "v4", ""),
			entry(10, entities.EventRelease, "5", "v5", ""), entry(11, entities.EventSucceeded, "5", "v5", "unchanged"),
		},
	}
	require.Equal(t, strings.TrimPrefix(`
               from Mon 16 Nov 09:00 UTC to Mon 16 Nov 21:00 UTC
v5 production  ·······························░░░██████  waited 1h; runs since Mon 16 Nov 20:00 UTC
v4 production  ······················░░░▒▒▒██████······  waited 1h; ran until Mon 16 Nov 20:00 UTC
v3 production  ···················░░░░░░···············  waited until Mon 16 Nov 17:00 UTC: skipped, v4 went there
v2 production  ······▒▒▒▒▒▒×···························  failed and was taken back at once, Mon 16 Nov 13:00 UTC: exit status 1
v1 production  ▒▒▒███······▒▒▒██████████···············  ran until Mon 16 Nov 17:00 UTC
               ░ waits  ▒ deploys  ▓ soaks  █ runs  × fails`, "\n"), strings.Join(Lines(Of(in), hours(12), time.UTC), "\n"))
}

// A pin that takes the place of another one ends it: what waits afterwards is not held by either.
func TestANewPinReplacesTheOldOne_A17_B6(t *testing.T) {
	pin := func(h float64, version string) entities.AuditEntry {
		return entities.AuditEntry{At: hours(h), Kind: entities.EventPin, Channel: "production", Version: version, Who: &entities.Who{Name: "bob"}}
	}
	in := Input{
		Now: hours(9), Status: protocol.Status{Channels: []protocol.ChannelStatus{{Name: "production"}}},
		Lines: []entities.AuditEntry{
			pin(1, "v7"), pin(2, "v6"), pin(3, "v6"), // the last one ends it
			{At: hours(2.5), Kind: entities.EventRelease, Release: "8", Version: "v8"},
			{At: hours(4), Kind: entities.EventWaiting, Channel: "production", Release: "8", Version: "v8", Text: "v8 waits for approval/go-live"},
			{At: hours(8), Kind: entities.EventTarget, Channel: "production", Release: "8", Version: "v8"},
		},
	}
	waits := Of(in)[0].Spans[0]
	require.Equal(t, []string{"v8 waits for approval/go-live", "pinned to v6 by bob"}, waits.Reasons)
}

func TestNewestReleases(t *testing.T) {
	in := week()
	in.Last = 1
	require.Len(t, Of(in), 2)
	require.Empty(t, Of(Input{Now: monday}))
}

// The chart is the same bytes for the same trail, and what somebody called a version is text in it.
func TestChart(t *testing.T) {
	c := Chart("shop/web & <more>\x1b[2J", Of(week()), hours(60))
	svg := c.SVG(time.UTC)
	require.NotContains(t, svg, "<b>")
	require.NotContains(t, svg, "\x1b")
	if *update {
		require.NoError(t, os.WriteFile("testdata/week.svg", []byte(svg), 0o644))
	}
	golden, err := os.ReadFile("testdata/week.svg")
	require.NoError(t, err)
	require.Equal(t, string(golden), svg)

	text := strings.Join(Lines(Of(week()), hours(60), time.UTC), "\n") + "\n"
	if *update {
		require.NoError(t, os.WriteFile("testdata/week.txt", []byte(text), 0o644))
	}
	golden, err = os.ReadFile("testdata/week.txt")
	require.NoError(t, err)
	require.Equal(t, string(golden), text)
}

// A release that goes through a fleet in steps went out once, however many there were (D24).
func TestRolloutStepsAreOneDeployment_D24(t *testing.T) {
	entry := func(at float64, kind string) entities.AuditEntry {
		return entities.AuditEntry{At: hours(at), Kind: kind, Channel: "prod", Release: "1", Version: "v1"}
	}
	in := Input{Now: hours(9), Status: protocol.Status{Channels: []protocol.ChannelStatus{{Name: "prod", Target: "v1"}}}, Lines: []entities.AuditEntry{
		{At: hours(0), Kind: entities.EventRelease, Release: "1", Version: "v1"},
		entry(0, entities.EventTarget),
		entry(1, entities.EventTarget),
		entry(2, entities.EventTarget),
		entry(3, entities.EventSucceeded),
	}}
	got := Of(in)
	require.Len(t, got, 1)
	require.Equal(t, []chart.Span{
		{Kind: chart.Deploys, From: hours(0), To: hours(3), Reasons: []string{"in 3 steps"}}, {Kind: chart.Runs, From: hours(3)},
	}, got[0].Spans)
}

// Values of an aspect have lines of their own: the version runs on beside them, and what of them is taken back ends alone (B5).
func TestAspectsHaveRowsOfTheirOwn_B5(t *testing.T) {
	flags, dark := "flags.x577f1208", "flags.xb125299c"
	entry := func(h float64, kind, release, version string) entities.AuditEntry {
		l := entities.AuditEntry{At: hours(h), Kind: kind, Channel: "prod", Release: release, Version: version}
		if kind == entities.EventRelease {
			l.Channel = ""
		}
		return l
	}
	in := Input{
		Now: hours(9), Status: protocol.Status{Channels: []protocol.ChannelStatus{{Name: "prod", Target: "v2-" + flags}}},
		Lines: []entities.AuditEntry{
			entry(0, entities.EventRelease, "1", "v1"), entry(0, entities.EventTarget, "1", "v1"), entry(1, entities.EventSucceeded, "1", "v1"),
			entry(2, entities.EventRelease, "2", flags), entry(2, entities.EventTarget, "2", "v1-"+flags), entry(3, entities.EventSucceeded, "2", "v1-"+flags),
			entry(4, entities.EventRelease, "3", dark), entry(4, entities.EventTarget, "3", "v1-"+dark), entry(5, entities.EventFailed, "3", "v1-"+dark),
			entry(5, entities.EventRollback, "3", "v1-"+dark), entry(6, entities.EventSucceeded, "", "v1-"+flags),
			entry(7, entities.EventRelease, "4", "v2"), entry(7, entities.EventTarget, "4", "v2-"+flags), entry(8, entities.EventSucceeded, "4", "v2-"+flags),
		},
	}
	require.Equal(t, strings.TrimPrefix(`
                      from Mon 16 Nov 09:00 UTC to Mon 16 Nov 18:00 UTC
v2 prod               ·····························▒▒▒▒███████  runs since Mon 16 Nov 17:00 UTC
flags.xb125299c prod  ················▒▒▒▒▒×··················  failed and was taken back at once, Mon 16 Nov 14:00 UTC
flags.x577f1208 prod  ········▒▒▒▒████·····▒▒▒▒███████████████  runs since Mon 16 Nov 15:00 UTC
v1 prod               ▒▒▒▒█████████████████████████···········  ran until Mon 16 Nov 16:00 UTC
                      ░ waits  ▒ deploys  ▓ soaks  █ runs  × fails`, "\n"), strings.Join(Lines(Of(in), hours(9), time.UTC), "\n"))

	// What was there at each time is one at a time all the same.
	all, _ := Report(in, hours(0))
	var got []string
	for _, s := range ReportChart("", all, hours(0), hours(9)).Rows[0].Spans {
		got = append(got, fmt.Sprintf("%v %s %s", s.From.Sub(monday).Hours(), s.Kind, s.Reasons[0]))
	}
	require.Equal(t, []string{
		"0 deploys v1", "1 runs v1", "2 deploys v1-" + flags, "3 runs v1-" + flags, "4 deploys v1-" + dark, "5 fails v1-" + dark, "5 deploys v1-" + flags,
		"6 runs v1-" + flags, "7 deploys v2-" + flags, "8 runs v2-" + flags,
	}, got)
}

// A release that a person rejected is shown where it waited, with who rejected it and why.
func TestRejectedReleaseIsShown(t *testing.T) {
	rejected := entities.AuditEntry{
		At: hours(3), Kind: entities.EventRejection, Channel: "production", Release: "1", Version: "v1", Text: "rejected go-live",
		Who: &entities.Who{Name: "bob"}, Reason: "not today",
	}
	entries := Of(Input{Now: hours(5), Lines: []entities.AuditEntry{
		{At: hours(0), Kind: entities.EventRelease, Release: "1", Version: "v1"},
		{At: hours(1), Kind: entities.EventWaiting, Channel: "production", Release: "1", Version: "v1", Text: "approval/go-live: 0 of 1"},
		rejected,
	}})
	require.Len(t, entries, 1)
	require.Equal(t, "production", entries[0].Channel)
	require.Equal(t, []chart.Span{{
		Kind: chart.Waits, From: hours(0), To: hours(3), Reasons: []string{"rejected go-live by bob: not today", "approval/go-live: 0 of 1"},
	}}, entries[0].Spans)
}
