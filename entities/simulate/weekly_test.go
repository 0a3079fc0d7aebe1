package simulate

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

var update = flag.Bool("update", false, "update the golden files")

// weekly goes from staging to prod-1 and prod-2. Each of them opens once a week, on Mondays at nine; or, with soaking, each accepts a
// release that was healthy for a week in the channel before.
func weekly(strategy string, soaking bool) *state.State {
	s := shop()
	s.Spec.Maestro.Strategy = strategy
	channel := func(name, after string) entities.ChannelSpec {
		c := s.Spec.Channels[0]
		c.Name = name
		if after != "" {
			c.Conditions = []entities.Condition{{ID: "channel-stable/" + after, Kind: entities.ChannelStable, Channels: []string{after}}}
		}
		switch {
		case after != "" && soaking:
			c.Conditions[0].Kind, c.Conditions[0].For = entities.ChannelStableFor, 7*day
		case after != "":
			c.Checks = []entities.Check{{ID: "mondays", Kind: entities.CheckAllowedTimes, Definition: "d1", At: []entities.CheckAt{{Stage: entities.PreApproval}}}}
		}
		return c
	}
	s.Spec.Channels = []entities.ChannelSpec{channel("staging", ""), channel("prod-1", "staging"), channel("prod-2", "prod-1")}
	return s
}

// mondays opens for a minute, so a release enters one channel a week.
func mondays(_ entities.Evaluation, at time.Time) entities.CheckReading {
	open := time.Date(at.Year(), at.Month(), at.Day(), 9, 0, 0, 0, time.UTC)
	for open.Weekday() != time.Monday || !at.Before(open.Add(time.Minute)) {
		open = open.Add(day)
	}
	if at.Before(open) {
		return entities.CheckReading{Verdict: entities.Wait, Reason: "opens " + open.Format("Mon 15:04"), Next: open}
	}
	return entities.CheckReading{Verdict: entities.Pass, Next: open.Add(time.Minute)}
}

// With a week between promotions, a second release that is made once the first is in prod-1 goes to staging at once, and to prod-1 in the
// week in which the first goes to prod-2: a release reaches the last channel every week, not every other.
func TestWeeklyReleases_B2_B3(t *testing.T) {
	weeklyReleases(t, "weekly", false)
}

// The same with durations: for: 168h in both.
func TestWeeklyReleasesWithAWeekOfSoak_B2_B3(t *testing.T) {
	weeklyReleases(t, "soaking", true)
}

func weeklyReleases(t *testing.T, file string, soaking bool) {
	for _, strategy := range []string{"", string(maestro.Latest), string(maestro.Train)} {
		t.Run("strategy "+strategy, func(t *testing.T) {
			s := weekly(strategy, soaking)
			var table strings.Builder
			at := time.Date(2026, 11, 18, 12, 0, 0, 0, time.UTC) // a Wednesday
			for n := 1; n <= 4; n++ {
				version := fmt.Sprint("v", n)
				got, err := Run(Input{State: s, Version: version, At: at, Judge: mondays, Apply: 2 * time.Minute})
				require.NoError(t, err)
				for _, c := range got.Channels {
					fmt.Fprintf(&table, "%s  %-7s  %s  %s\n", version, c.Name, got.moment(c.Entered, time.UTC), got.moment(c.Succeeded, time.UTC))
				}
				if n == 2 && strategy == string(maestro.Latest) {
					golden(t, file+".svg", got.SVG(time.UTC))
				}
				next := at.Add(7 * day)
				if soaking { // once it is in prod-1, which the time of an apply delays
					next = got.Channels[1].Succeeded.Add(time.Hour)
				}
				s = stateAt(t, s, version, at, next)
				at = next
			}
			golden(t, file+".txt", table.String())
		})
	}
}

// stateAt is the service at a time after a release.
func stateAt(t *testing.T, s *state.State, version string, at, end time.Time) *state.State {
	t.Helper()
	s, err := clone(s)
	require.NoError(t, err)
	p := &simulation{Input: Input{State: s, Version: version, At: at, Judge: mondays, Apply: 2 * time.Minute}, s: s, now: at, end: end}
	p.release, p.timeline = p.open(), &Timeline{}
	p.run()
	return p.s
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}
