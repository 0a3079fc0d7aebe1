package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// A configuration-only change goes through the channels as v2-i2 and touches only those whose
// payload changed; a change of rules alone releases nothing.
func TestConfigurationChange_B9(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Release("web", "v2")
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")

	w.Write(stage.TwoChannels + stage.Web + "perReleaseChannel: [{releaseChannel: production, parameters: {greeting: hi}}]\n")
	w.Publish()
	s := w.Await("web", "staging CONVERGED v2, production CONVERGED v2-i2")
	require.Equal(t, map[string]string{"staging": "succeeded", "production": "succeeded"}, s.Releases[0].Phases)
	require.Equal(t, 1, w.Fake.At(w.App, "web", "staging").Applies(), "staging's payload did not change")
	require.Equal(t, 2, w.Fake.At(w.App, "web", "production").Applies())

	w.Write(stage.TwoChannels + stage.Web + "perReleaseChannel: [{releaseChannel: production, parameters: {greeting: hi}}]\nprogressDeadline: 1h\n")
	w.Publish()
	s = w.AwaitThat("web", "incarnation 3", func(s protocol.Status) bool { return s.Incarnation == 3 })
	require.Len(t, s.Releases, 2, "rules alone make no release")
	require.Equal(t, 2, w.Fake.At(w.App, "web", "production").Applies())

	w.Release("web", "v3")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
}

// Old content gets a new number, and the payload that it changes back is released.
func TestRevertGetsANewNumber_D5(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	require.EqualValues(t, 1, w.Publish().Incarnation)
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Write(stage.TwoChannels + strings.Replace(stage.Web, "default: hello", "default: bye", 1))
	require.EqualValues(t, 2, w.Publish().Incarnation)
	w.Await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	w.Write(stage.TwoChannels + stage.Web)
	require.EqualValues(t, 3, w.Publish().Incarnation)
	w.Await("web", "staging CONVERGED v1-i3, production CONVERGED v1-i3")
}

// configChanges: hold waits for the next release, and says so.
func TestConfigChangesHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web + "configChanges: hold\n")
	w.Publish()
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Write(stage.TwoChannels + strings.Replace(stage.Web, "default: hello", "default: bye", 1) + "configChanges: hold\n")
	w.Publish()
	s := w.AwaitThat("web", "incarnation 2", func(s protocol.Status) bool { return s.Incarnation == 2 })
	require.Contains(t, s.Notes, "config i2 waits for the next release")
	require.Equal(t, "staging CONVERGED v1, production CONVERGED v1", stage.Channels(s))
	require.EqualValues(t, 2, w.Release("web", "v2").Incarnation)
	s = w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Empty(t, s.Notes)
}

// The file may own the version; then changing it releases, and releasing is refused.
func TestVersionInTheFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web + "version: v7\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v7, production CONVERGED v7")
	err := w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{RequestMeta: protocol.RequestMeta{By: "test"}, Version: "v8"}, nil)
	require.ErrorContains(t, err, "is set to v7 in converge.yaml:")
	w.Write(stage.TwoChannels + stage.Web + "version: v8\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v8, production CONVERGED v8")
}

// A known version name means the same bytes again, and other parameters under it are refused.
func TestKnownVersionMeansTheSameBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	release := func(version, greeting string) error {
		var answer protocol.ReleaseAnswer
		return w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{
			RequestMeta: protocol.RequestMeta{By: "test"}, Version: version, Parameters: map[string]any{"greeting": greeting},
		}, &answer)
	}
	require.NoError(t, release("v1", "one"))
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.NoError(t, release("v2", "two"))
	w.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.ErrorContains(t, release("v1", "other"), "v1 already exists with other parameters")
	require.ErrorContains(t, release("v3-i9", "x"), "marks the release of a configuration change")
	require.ErrorContains(t, w.Update(w.ID("web"), protocol.Release, protocol.ReleaseRequest{
		RequestMeta: protocol.RequestMeta{By: "test"}, Version: "v4", Parameters: map[string]any{"greting": "x"},
	}, nil), `no parameter "greting"; expected one of greeting`)
	require.NoError(t, release("v1", "one"))
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// What is no longer declared is left in place, reported, and not acted upon.
func TestRemovedChannelIsOrphaned_D10(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.RunWeb()
	w.Write(stage.TwoChannels + stage.Web + "releaseChannels: [staging]\n")
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production ORPHANED v1")
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Equal(t, 1, w.Fake.At(w.App, "web", "production").Applies())
}
