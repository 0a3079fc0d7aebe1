package timeline

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/protocol"
)

// month is four weeks of a service in one channel, in days. The comments state how each line counts.
func month() Input {
	days := func(d float64) time.Time { return hours(24 * d) }
	entry := func(d float64, kind, release, version string) entities.AuditEntry {
		return entities.AuditEntry{At: days(d), Kind: kind, Channel: "production", Release: release, Version: version}
	}
	byUser := func(l entities.AuditEntry, name string) entities.AuditEntry {
		l.Who = &entities.Who{Name: name}
		return l
	}
	return Input{
		Now: days(28), Status: protocol.Status{Channels: []protocol.ChannelStatus{{Name: "production"}}},
		Lines: []entities.AuditEntry{
			entry(-9, entities.EventRelease, "1", "v1"), // before the period, both
			entry(-8, entities.EventTarget, "1", "v1"),
			entry(-7, entities.EventSucceeded, "1", "v1"),

			entry(-1, entities.EventRelease, "2", "v2"), // accepted before, deployed in the period: lead time 2 days
			entry(0.5, entities.EventTarget, "2", "v2"),
			entry(1, entities.EventSucceeded, "2", "v2"),

			entry(2, entities.EventRelease, "3", "v3"), // fails twice, succeeds when tried again: lead time 4 days, recovery 3
			entry(2, entities.EventTarget, "3", "v3"),
			entry(3, entities.EventFailed, "3", "v3"),
			entry(4, entities.EventFailed, "3", "v3"),
			entry(6, entities.EventSucceeded, "3", "v3"),

			entry(7, entities.EventRelease, "4", "v4"), // superseded while it was deployed: nothing
			entry(7, entities.EventTarget, "4", "v4"),
			entry(8, entities.EventRelease, "5", "v5"), // succeeds: lead time 1 day; bob rolls it back a day later, recovery 1 day
			entry(8, entities.EventTarget, "5", "v5"),
			entry(9, entities.EventSucceeded, "5", "v5"),
			byUser(entry(10, entities.EventRollback, "5", "v5"), "bob"),
			entry(11, entities.EventSucceeded, "", "v3"),

			byUser(entry(12, entities.EventTarget, "", "v3"), "bob"), // a restart, and a pin: nothing
			entry(12, entities.EventSucceeded, "", "v3"),
			entry(13, entities.EventTarget, "", "v2"),
			entry(13, entities.EventSucceeded, "", "v2"),

			entry(14, entities.EventRelease, "6", "v6"), // succeeds: lead time 0.5 days; carol rolls it back through the gates, recovery 2.5 days
			entry(14, entities.EventTarget, "6", "v6"),
			entry(14.5, entities.EventSucceeded, "6", "v6"),
			byUser(entry(15, entities.EventRelease, "7", "v2"), "carol"),
			byUser(entry(15, entities.EventRollback, "6", "v6"), "carol"),
			entry(17, entities.EventTarget, "7", "v2"),
			entry(17.5, entities.EventSucceeded, "7", "v2"),

			entry(20, entities.EventRelease, "1", "v8"), // the service was recreated and counts from one; Converge rolls it back, and that fails too
			entry(20, entities.EventTarget, "1", "v8"),
			entry(21, entities.EventRollback, "1", "v8"),
			entry(22, entities.EventFailed, "", "v2"),
		},
	}
}

// The numbers were added up by hand from the comments of month and week.
func TestReportCountsTheTrail(t *testing.T) {
	day := 24 * time.Hour.Seconds()
	number := func(n float64) *float64 { return &n }
	got, _ := Report(month(), monday)
	require.Len(t, got, 1)
	require.Equal(t, 5, got[0].Releases) // 3, 4, 5, 6 and 1 again; 7 is only a rollback
	require.Equal(t, Numbers{
		Succeeded: 4, PerWeek: 1, LeadTime: number(1.5 * day), // of 0.5, 1, 2 and 4 days
		Failed: 4, FailureRate: number(0.8), Automatic: 1, ByPeople: 2,
		Recovery: number(2.5 * day), Unrestored: 1, // of 1, 2.5 and 3 days
	}, got[0].Numbers)

	in := week()
	got, _ = Report(in, hours(-108))
	require.Len(t, got, 1, "no channel waits for production")
	require.Equal(t, Numbers{
		Succeeded: 1, PerWeek: 1, LeadTime: number(3 * 3600), Failed: 1, FailureRate: number(0.5), Automatic: 1, Recovery: number(2 * 3600),
	}, got[0].Numbers)

	got, _ = Report(in, hours(30), "staging")
	require.Len(t, got, 1)
	require.Equal(t, []Deployment{{Release: "4", Version: "v11<b>", Accepted: hours(48), Started: hours(48), Succeeded: hours(52)}}, got[0].Deployments)
	got, known := Report(in, hours(30), "elsewhere")
	require.Empty(t, got)
	require.Equal(t, []string{"staging", "production"}, known)
	got, _ = Report(in, hours(55), "staging")
	require.Equal(t, Numbers{}, got[0].Numbers)
}

// Only deployments are counted: a return after an unpin is none; a rollback through the gates is one, under any version; a renamed channel
// is the same channel; a removed channel is not a last one.
func TestReportCountsOnlyDeployments(t *testing.T) {
	entry := func(h float64, kind, channel, release, version string) entities.AuditEntry {
		return entities.AuditEntry{At: hours(h), Kind: kind, Channel: channel, Release: release, Version: version, Who: &entities.Who{Name: "bob"}}
	}
	renamed := entry(3, entities.EventPublish, "prod", "", "")
	renamed.Text = entities.RenameText("production", "prod", 2)
	in := Input{
		Now: hours(168), Status: protocol.Status{Channels: []protocol.ChannelStatus{{Name: "prod"}, {Name: "old", Status: "ORPHANED"}}},
		Lines: []entities.AuditEntry{
			entry(0, entities.EventRelease, "", "1", "v1"), entry(0, entities.EventTarget, "production", "1", "v1"), entry(1, entities.EventSucceeded, "production", "1", "v1"),
			entry(1, entities.EventTarget, "old", "1", "v1"), entry(2, entities.EventSucceeded, "old", "1", "v1"),
			renamed,
			entry(4, entities.EventRelease, "", "2", "v2"), entry(4, entities.EventTarget, "prod", "2", "v2"), entry(5, entities.EventSucceeded, "prod", "2", "v2"),
			// A pin of v1; once unpinned it returns to v2.
			entry(6, entities.EventPin, "prod", "", "v1"), entry(6, entities.EventTarget, "prod", "", "v1"), entry(6, entities.EventSucceeded, "prod", "", "v1"),
			entry(7, entities.EventPin, "prod", "", "v1"), entry(7, entities.EventRelease, "", "3", "v2"), entry(7, entities.EventTarget, "prod", "3", "v2"), entry(7, entities.EventSucceeded, "prod", "3", "v2"),
			// Configuration for v3 that is kept under v2, and is rolled back through the gates.
			entry(8, entities.EventRelease, "", "4", "v3+c2"), entry(8, entities.EventTarget, "prod", "4", "v2+c2"), entry(9, entities.EventSucceeded, "prod", "4", "v2+c2"),
			entry(10, entities.EventRelease, "", "5", "v2"), entry(10, entities.EventRollback, "prod", "4", "v3+c2"),
			entry(11, entities.EventTarget, "prod", "5", "v2"), entry(12, entities.EventSucceeded, "prod", "5", "v2"),
		},
	}
	got, known := Report(in, monday)
	require.Len(t, got, 1)
	require.Equal(t, []string{"prod", "old"}, known)
	require.Equal(t, 3, got[0].Releases)
	var versions []string
	for _, d := range got[0].Deployments {
		versions = append(versions, d.Version)
	}
	require.Equal(t, []string{"v1", "v2", "v3+c2"}, versions)
	require.Equal(t, []any{3, 1, 1}, []any{got[0].Numbers.Succeeded, got[0].Numbers.Failed, got[0].Numbers.ByPeople})

	in.Status = protocol.Status{} // the service no longer exists
	got, _ = Report(in, monday)
	require.Len(t, got, 2)
}

// A cancelled release is no longer being deployed.
func TestCancelEndsTheDeploySpan_A18(t *testing.T) {
	entry := func(h float64, kind string) entities.AuditEntry {
		return entities.AuditEntry{At: hours(h), Kind: kind, Channel: "prod", Release: "1", Version: "v1"}
	}
	in := Input{Now: hours(9), Lines: []entities.AuditEntry{entry(0, entities.EventRelease), entry(1, entities.EventTarget), entry(3, entities.EventCancel)}}
	require.Equal(t, []chart.Span{
		{Kind: chart.Waits, From: hours(0), To: hours(1)}, {Kind: chart.Deploys, From: hours(1), To: hours(3)},
	}, Of(in)[0].Spans)
	in.Lines[2].Channel = "" // everywhere
	require.Equal(t, hours(3), Of(in)[0].Spans[1].To)
}

// A failed release that succeeds when retried failed until the retry, and ran from then on.
func TestARetryEndsTheFailure_B6(t *testing.T) {
	var kinds []string
	for _, e := range Of(month()) {
		if e.Version == "v3" {
			for _, s := range e.Spans {
				kinds = append(kinds, string(s.Kind)+" until "+s.To.Format("Jan 2"))
			}
		}
	}
	require.Equal(t, "deploys until Nov 19, fails until Nov 22, runs until Nov 23, deploys until Nov 27, runs until Nov 28", strings.Join(kinds, ", "))
}

func TestReportChart(t *testing.T) {
	rows, _ := Report(month(), monday)
	rows[0].Service = "web & <more>"
	also, _ := Report(week(), monday)
	also[0].Service = "api"
	c := ReportChart("shop, four weeks", append(rows, also...), monday, hours(24*28))
	svg := c.SVG(time.UTC)
	require.NotContains(t, svg, "<more>")
	if *update {
		require.NoError(t, os.WriteFile("testdata/report.svg", []byte(svg), 0o644))
	}
	golden, err := os.ReadFile("testdata/report.svg")
	require.NoError(t, err)
	require.Equal(t, string(golden), svg)
}
