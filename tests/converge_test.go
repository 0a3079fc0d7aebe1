package tests

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// A8, A9, C: a release goes to staging, then to production, each applied once.
func TestA8ReleaseGoesThroughTheChannels(t *testing.T) {
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
