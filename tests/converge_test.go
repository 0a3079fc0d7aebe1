package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// A release goes to staging, then to production, each applied once.
func TestReleaseGoesThroughTheChannels_A8_A9(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Await("web", "staging CONVERGED, production CONVERGED")
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Equal(t, 2, w.Fake.At(w.App, "web", "staging").Applies())
	require.Equal(t, 2, w.Fake.At(w.App, "web", "production").Applies())
	require.Empty(t, w.Fake.Overlaps())
}

// A failed release is superseded by its fix without help.
func TestFixSupersedesFailure_B10(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	w.Fake.At(w.App, "web", "staging").FailAppliesPermanently(1, "no such image")
	w.Release("web", "v2")
	s := w.Await("web", "staging ROLLED_BACK v1, production BLOCKED v1")
	require.Contains(t, s.Channels[0].Reasons[0].Text, "no such image")
	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
}

// What was changed by hand is repaired.
func TestDriftIsRepaired_A12(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	staging := w.Fake.At(w.App, "web", "staging")
	staging.SetVersion("by-hand")
	w.AwaitThat("web", "repaired", func(protocol.Status) bool { return staging.Version() == "v1" })
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// What is steady is read by the worker itself: the server is to ask for a reading half a day later, and what is changed by hand is repaired after
// the interval.
func TestDriftIsRepairedBetweenTheServersReadings_A12_F9(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	w := newWorld(t)
	w.Write(strings.Replace(stage.TwoChannels, "steadyPollInterval: 300ms", "steadyPollInterval: 1m", 1) + stage.Web)
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	staging := w.Fake.At(w.App, "web", "staging")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		d, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
		require.NoError(t, err)
		for _, a := range d.PendingActivities {
			if next := a.GetNextAttemptScheduleTime(); next != nil && time.Until(next.AsTime()) > protocol.ServerPollInterval/2 {
				return true, ""
			}
		}
		return false, fmt.Sprint(d.PendingActivities)
	})
	staging.SetVersion("by-hand")
	temporaltest.WaitFor(t, 2*time.Minute, func() (bool, string) { return staging.Version() == "v1", staging.Version() })
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// An idle, converged service writes no history over ten poll intervals and more.
// Alone, since it measures.
func TestIdleServiceWritesNoHistory(t *testing.T) {
	w := newWorld(t)
	w.RunWeb()
	staging := w.Fake.At(w.App, "web", "staging")
	looks := staging.Readings()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return staging.Readings() >= looks+2, "looking" })
	before, looks := len(w.History(w.ID("web"))), staging.Readings()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return staging.Readings() >= looks+10, "looking" })
	require.Equal(t, before, len(w.History(w.ID("web"))))
}

// What a release costs in history is written down in docs/architecture.md: 27 events for
// a service in two channels whose runtime is done when its apply returns, 21 for one channel.
// Nothing but its own rows runs meanwhile, since it measures.
func TestReleaseCostsInEvents(t *testing.T) {
	one := strings.Replace(stage.TwoChannels, "- {name: production, runtimes: [{name: APP-rt}], preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}\n", "", 1)
	for _, c := range []struct {
		name, yaml, want string
		failing, events  int
	}{
		{"one channel", one, "staging CONVERGED %s", 0, 21},
		{"two channels", stage.TwoChannels, "staging CONVERGED %[1]s, production CONVERGED %[1]s", 0, 27},
		{"an apply that fails once", one, "staging CONVERGED %s", 1, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Write(c.yaml + stage.Web)
			w.Publish()
			w.Release("web", "v1")
			w.Await("web", fmt.Sprintf(c.want, "v1"))
			before := w.settled("web")
			w.Fake.At(w.App, "web", "staging").FailApplies(c.failing, "try again")
			w.Signal("web", protocol.Release, `{"version":"v2","by":"test"}`)
			w.Await("web", fmt.Sprintf(c.want, "v2"))
			// An observation that is replaced ends by itself: in four events where its cancellation is seen first, in five where it
			// just began and fails; one that waits ends in none. A release replaces one, a retry another. A failed attempt spends a few
			// less when its observation and its timer come together. On a quiet machine 21, 27, and 40 to 43 were seen, beside a load
			// on all cores no more.
			spent := w.settled("web") - before
			t.Logf("%d events", spent)
			require.Positive(t, spent)
			require.LessOrEqual(t, spent, c.events+4)
		})
	}
}

// settled waits until two more readings have written nothing, and returns the length of the history.
func (w *world) settled(service string) int {
	w.T.Helper()
	staging := w.Fake.At(w.App, service, "staging")
	events := -1
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		before, looks := len(w.History(w.ID(service))), staging.Readings()
		temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) { return staging.Readings() >= looks+2, "looking" })
		events = len(w.History(w.ID(service)))
		return events == before, fmt.Sprintf("%d then %d events", before, events)
	})
	return events
}
