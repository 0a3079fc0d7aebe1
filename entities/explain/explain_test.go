package explain

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

var update = flag.Bool("update", false, "write the golden texts")

// TestGolden renders every testdata/*.txtar: its comment is the story and its first word the time,
// the *.json files are the statuses, and the other files are the renderings: "table", "table timeless"
// (for output through a pipe), "explain", "explain CHANNEL" and "markdown" (the last three of the first status).
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			stamp, _, _ := strings.Cut(string(a.Comment), " ")
			now, err := time.Parse(time.RFC3339, stamp)
			require.NoError(t, err)
			services := statuses(t, a)
			for i, f := range a.Files {
				if strings.HasSuffix(f.Name, ".json") {
					continue
				}
				got := render(f.Name, services, now.UTC())
				require.Equal(t, got, render(f.Name, services, now.UTC()), "the same input gives the same bytes")
				if *update {
					a.Files[i].Data = []byte(got)
					continue
				}
				require.Equal(t, string(f.Data), got, f.Name)
			}
			if *update {
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o644))
			}
		})
	}
}

func statuses(t *testing.T, a *txtar.Archive) []protocol.Status {
	t.Helper()
	var out []protocol.Status
	for _, f := range a.Files {
		if strings.HasSuffix(f.Name, ".json") {
			var s protocol.Status
			require.NoError(t, json.Unmarshal(f.Data, &s), f.Name)
			out = append(out, s)
		}
	}
	return out
}

func render(section string, services []protocol.Status, now time.Time) string {
	kind, channel, _ := strings.Cut(section, " ")
	switch kind {
	case "explain":
		lookup := func(application, service string) (protocol.Status, bool) {
			n := slices.IndexFunc(services, func(s protocol.Status) bool { return s.Application == application && s.Service == service })
			return services[max(n, 0)], n >= 0
		}
		return strings.Join(LinesWithLookup(services[0], channel, lookup, now), "\n") + "\n"
	case "markdown":
		return Markdown(services[0])
	default:
		if channel == "timeless" {
			now = time.Time{}
		}
		o := Table(services, now)
		lines := []string{strings.Join(Header[:], " | ")}
		for _, r := range o.Rows {
			lines = append(lines, strings.TrimRight(strings.Join(r[:], " | "), " |"))
		}
		for _, m := range o.Releases {
			lines = append(lines, strings.Join(m.Header, " | "))
			for _, r := range m.Rows {
				lines = append(lines, strings.TrimRight(strings.Join(r, " | "), " |"))
			}
		}
		return strings.Join(append(lines, o.Lines...), "\n") + "\n"
	}
}

// The Temporal UI queries the details repeatedly, so their size is bounded for any service.
func TestMarkdownIsBounded(t *testing.T) {
	status := func(n int, failing int) protocol.Status {
		s := protocol.Status{Application: "shop", Service: "web", Headline: strings.Repeat("long ", 500), Incarnation: 42}
		for i := range n {
			c := protocol.ChannelStatus{Name: fmt.Sprintf("channel-%03d", i), Status: "CONVERGED", Current: "v1", Target: "v1"}
			if i < failing {
				c.Status = "FAILED"
				c.Reasons = []protocol.Reason{{Text: strings.Repeat("mishap|", 100)}}
			}
			s.Channels = append(s.Channels, c)
		}
		return s
	}
	for _, tt := range []struct {
		channels, failing int
		want              []string
	}{
		{10, 2, []string{"| channel-009 | v1 | v1 | CONVERGED |"}},
		{300, 2, []string{"| channel-001 |", "298 more channels CONVERGED, not listed"}},
		{300, 300, []string{"| channel-000 |", "more channels not CONVERGED, not listed: see `converge status shop/web`"}},
	} {
		got := Markdown(status(tt.channels, tt.failing))
		require.LessOrEqual(t, len(got), MarkdownLimit)
		got = strings.ReplaceAll(got, gap, "")
		for _, want := range tt.want {
			require.Contains(t, got, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for _, tt := range []struct {
		in   time.Duration
		want string
	}{
		{0, "0s"},
		{400 * time.Millisecond, "0s"},
		{20 * time.Second, "20s"},
		{59*time.Second + 600*time.Millisecond, "1m"},
		{-9 * time.Minute, "9m"},
		{9*time.Minute + 40*time.Second, "9m"},
		{2*time.Hour + 5*time.Minute, "2h 5m"},
		{2 * time.Hour, "2h"},
		{70*time.Hour + 3*time.Minute, "2d 22h"},
		{400 * 24 * time.Hour, "400d"},
	} {
		require.Equal(t, tt.want, Duration(tt.in), tt.in.String())
	}
}

func TestClock(t *testing.T) {
	ref := time.Date(2026, 11, 20, 10, 50, 0, 0, time.UTC)
	for _, tt := range []struct {
		in   time.Time
		want string
	}{
		{ref.Add(-time.Hour), "09:50 UTC"},
		{ref.Add(-11 * time.Hour), "Thu 23:50 UTC"},
		{ref.Add(70 * time.Hour), "Mon 08:50 UTC"},
		{ref.Add(-8 * 24 * time.Hour), "Nov 12 10:50 UTC"},
		{ref.Add(-400 * 24 * time.Hour), "2025-10-16 10:50 UTC"},
	} {
		require.Equal(t, tt.want, clock(tt.in, ref, false))
	}
	paris := time.FixedZone("CET", 3600)
	require.Equal(t, "11:50 CET", clock(ref, ref.In(paris), false))
}

func TestCauseOfAFailureComesFirst(t *testing.T) {
	for reason, want := range map[string]string{
		"apply failed 4 times: ./run exited with status 1":                        "./run exited with status 1 (apply failed 4 times)",
		"apply failed once: quota exceeded":                                       "quota exceeded (apply failed once)",
		"the rollback to v1 failed: no route":                                     "no route (the rollback to v1 failed)",
		"v2 was rolled back: no route":                                            "no route (v2 was rolled back)",
		"repaired 5 times since 10:00:00 UTC: web FAILED":                         "web FAILED (repaired 5 times since 10:00:00 UTC)",
		"applying v2, attempt 2 of 3; the last failed: quota exceeded":            "quota exceeded (applying v2, attempt 2 of 3; the last failed)",
		"staging stable at v2":                                                    "staging stable at v2",
		"v2 failed: ./run exited 1: listen tcp :80: bind: address already in use": "listen tcp :80: bind: address already in use (./run exited 1; v2 failed)",
	} {
		require.Equal(t, want, causeFirst(reason))
	}
}

// In the Temporal UI what a person can do comes first, and a reason that is too long for the table is below it.
func TestMarkdownBeginsWithWhatWaitsForAPerson(t *testing.T) {
	cause := "listen tcp 127.0.0.1:8111: bind: address already in use by another process of the machine"
	s := protocol.Status{Application: "shop", Service: "web", Headline: "production waits for go-live", Channels: []protocol.ChannelStatus{
		{Name: "staging", Status: "FAILED", Current: "v1", Target: "v2", Reasons: []protocol.Reason{{Code: "failure", Text: "v2 failed: " + cause}}},
		{Name: "production", Status: "WAITING_MANUAL_APPROVAL", Current: "v1", Target: "v1", Desired: "v2", Conditions: []protocol.ConditionStatus{{
			ID: "approval/go-live", Kind: "approval", Subject: "go-live", Verdict: "WAIT", Code: "open", Reason: "0 of 1, by any of bob", Need: 1,
			Unblock: "converge approve shop/web v2 go-live",
		}}},
	}}
	text := Markdown(s)
	require.Contains(t, text, "\n\n- **go-live** of v2: 0 of 1, by any of bob; converge approve shop/web v2 go-live\n\n| channel")
	require.Contains(t, text, "|\n\n- staging: "+cause+" (v2 failed)\n")
	for n := range 9 {
		c := s.Channels[1]
		c.Name, c.Conditions = fmt.Sprint("p", n), slices.Clone(c.Conditions)
		c.Conditions[0].Subject = fmt.Sprint("topic", n)
		s.Channels = append(s.Channels, c)
	}
	require.Contains(t, Markdown(s), "- 5 more approvals: see `converge approvals shop/web`\n")
}

// A running apply says when it times out, rather than when the progress deadline is.
func TestRunningApplySaysWhenItTimesOut(t *testing.T) {
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	s := protocol.Status{Application: "shop", Service: "web", Channels: []protocol.ChannelStatus{{
		Name: "staging", Status: "CONVERGING", Current: "v1", Target: "v2", Desired: "v2",
		Reasons:    []protocol.Reason{{Code: "progress", Text: "applying v2, attempt 2 of 3; the last failed: quota exceeded"}},
		NextChange: now.Add(9 * time.Minute), ApplyEnds: now.Add(2 * time.Minute),
	}}}
	require.Equal(t, "quota exceeded (applying v2, attempt 2 of 3; the last failed) (times out in 2m)", Table([]protocol.Status{s}, now).Rows[0][6])
	require.Contains(t, Lines(s, "staging", now), "Next: the apply ends, or times out at 10:02:00 UTC (in 2m).")
	require.NotContains(t, strings.Join(Lines(s, "staging", now), "\n"), "10:09")
}
