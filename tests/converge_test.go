package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// A8, A9, C: a release goes to staging, then to production, each applied once.
func TestA8ReleaseGoesThroughTheChannels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	w.await("web", "staging CONVERGED, production CONVERGED")
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.release("web", "v2")
	w.await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Equal(t, 2, w.fake.At(w.app, "web", "staging").Applies())
	require.Equal(t, 2, w.fake.At(w.app, "web", "production").Applies())
	require.Empty(t, w.fake.Overlaps())
}

// B10: a failed release is superseded by its fix without help.
func TestB10FixSupersedesFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.fake.At(w.app, "web", "staging").FailAppliesForGood(1, "no such image")
	w.release("web", "v2")
	s := w.await("web", "staging FAILED v2, production BLOCKED v1")
	require.Contains(t, s.Channels[0].Reasons[0].Text, "no such image")
	w.release("web", "v3")
	w.await("web", "staging CONVERGED v3, production CONVERGED v3")
}

// A12: what was changed by hand is repaired.
func TestA12DriftIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	staging := w.fake.At(w.app, "web", "staging")
	staging.SetVersion("by-hand")
	w.awaitThat("web", "repaired", func(protocol.Status) bool { return staging.Version() == "v1" })
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// Section 9: an idle, converged service writes no history over ten poll intervals and more.
// Alone, since it measures.
func TestIdleServiceWritesNoHistory(t *testing.T) {
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	staging := w.fake.At(w.app, "web", "staging")
	looks := staging.Looks()
	temporaltest.WaitFor(t, patience, func() (bool, string) { return staging.Looks() >= looks+2, "looking" })
	before, looks := len(w.history(w.id("web"))), staging.Looks()
	temporaltest.WaitFor(t, patience, func() (bool, string) { return staging.Looks() >= looks+10, "looking" })
	require.Equal(t, before, len(w.history(w.id("web"))))
}

// Section 9: what a release costs in history is written down in docs/architecture.md: 25 events for
// a service in two channels whose runtime is done when its apply returns, 19 for one channel.
// Nothing but its own rows runs meanwhile, since it measures.
func TestReleaseCostsInEvents(t *testing.T) {
	one := strings.Replace(twoChannels, "- {name: production, runtimes: [{name: APP-rt}], preconditions: [{releaseChannelStable: {releaseChannel: staging}}]}\n", "", 1)
	for _, c := range []struct {
		name, yaml, want string
		failing, events  int
	}{
		{"one channel", one, "staging CONVERGED %s", 0, 19},
		{"two channels", twoChannels, "staging CONVERGED %[1]s, production CONVERGED %[1]s", 0, 25},
		{"an apply that fails once", one, "staging CONVERGED %s", 1, 36},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.write(c.yaml + web)
			w.publish()
			w.release("web", "v1")
			w.await("web", fmt.Sprintf(c.want, "v1"))
			before := w.settled("web")
			w.fake.At(w.app, "web", "staging").FailApplies(c.failing, "try again")
			w.signal("web", protocol.Release, `{"version":"v2","by":"test"}`)
			w.await("web", fmt.Sprintf(c.want, "v2"))
			// A watch that is replaced in the middle of a look ends by itself, in a few events more; a
			// failed attempt spends a few less when its look and its timer come together.
			spent := w.settled("web") - before
			t.Logf("%d events", spent)
			require.Positive(t, spent)
			require.LessOrEqual(t, spent, c.events+4)
		})
	}
}

// settled waits until two more looks have written nothing, and returns the length of the history.
func (w *world) settled(service string) int {
	w.t.Helper()
	staging := w.fake.At(w.app, service, "staging")
	events := -1
	temporaltest.WaitFor(w.t, patience, func() (bool, string) {
		before, looks := len(w.history(w.id(service))), staging.Looks()
		temporaltest.WaitFor(w.t, patience, func() (bool, string) { return staging.Looks() >= looks+2, "looking" })
		events = len(w.history(w.id(service)))
		return events == before, fmt.Sprintf("%d then %d events", before, events)
	})
	return events
}
