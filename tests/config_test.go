package tests

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// B9: a configuration-only change goes through the channels as v2-i2 and touches only those whose
// payload changed; a change of rules alone releases nothing.
func TestB9ConfigurationChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	w.release("web", "v2")
	w.await("web", "staging CONVERGED v2, production CONVERGED v2")

	w.write(twoChannels + web + "perReleaseChannel: [{releaseChannel: production, parameters: {greeting: hi}}]\n")
	w.publish()
	s := w.await("web", "staging CONVERGED v2, production CONVERGED v2-i2")
	require.Equal(t, map[string]string{"staging": "succeeded", "production": "succeeded"}, s.Releases[0].Phases)
	require.Equal(t, 1, w.fake.At(w.app, "web", "staging").Applies(), "staging's payload did not change")
	require.Equal(t, 2, w.fake.At(w.app, "web", "production").Applies())

	w.write(twoChannels + web + "perReleaseChannel: [{releaseChannel: production, parameters: {greeting: hi}}]\nprogressDeadline: 1h\n")
	w.publish()
	s = w.awaitThat("web", "incarnation 3", func(s protocol.Status) bool { return s.Incarnation == 3 })
	require.Len(t, s.Releases, 2, "rules alone make no release")
	require.Equal(t, 2, w.fake.At(w.app, "web", "production").Applies())

	w.release("web", "v3")
	w.await("web", "staging CONVERGED v3, production CONVERGED v3")
}

// D5: old content gets a new number, and the payload that it changes back is released.
func TestD5RevertGetsANewNumber(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	require.EqualValues(t, 1, w.publish().Incarnation)
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.write(twoChannels + strings.Replace(web, "default: hello", "default: bye", 1))
	require.EqualValues(t, 2, w.publish().Incarnation)
	w.await("web", "staging CONVERGED v1-i2, production CONVERGED v1-i2")
	w.write(twoChannels + web)
	require.EqualValues(t, 3, w.publish().Incarnation)
	w.await("web", "staging CONVERGED v1-i3, production CONVERGED v1-i3")
}

// INTERFACE 1: configChanges: hold waits for the next release, and says so.
func TestConfigChangesHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web + "configChanges: hold\n")
	w.publish()
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.write(twoChannels + strings.Replace(web, "default: hello", "default: bye", 1) + "configChanges: hold\n")
	w.publish()
	s := w.awaitThat("web", "incarnation 2", func(s protocol.Status) bool { return s.Incarnation == 2 })
	require.Contains(t, s.Notes, "config i2 waits for the next release")
	require.Equal(t, "staging CONVERGED v1, production CONVERGED v1", channels(s))
	require.EqualValues(t, 2, w.release("web", "v2").Incarnation)
	s = w.await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.Empty(t, s.Notes)
}

// INTERFACE 1: the file may own the version; then changing it releases, and releasing is refused.
func TestVersionInTheFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web + "version: v7\n")
	w.publish()
	w.await("web", "staging CONVERGED v7, production CONVERGED v7")
	err := w.update(w.id("web"), protocol.Release, protocol.ReleaseRequest{Act: protocol.Act{By: "test"}, Version: "v8"}, nil)
	require.ErrorContains(t, err, "is set to v7 in converge.yaml:")
	w.write(twoChannels + web + "version: v8\n")
	w.publish()
	w.await("web", "staging CONVERGED v8, production CONVERGED v8")
}

// A known version name means the same bytes again, and other parameters under it are refused.
func TestKnownVersionMeansTheSameBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	release := func(version, greeting string) error {
		var answer protocol.ReleaseAnswer
		return w.update(w.id("web"), protocol.Release, protocol.ReleaseRequest{
			Act: protocol.Act{By: "test"}, Version: version, Parameters: map[string]any{"greeting": greeting},
		}, &answer)
	}
	require.NoError(t, release("v1", "one"))
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.NoError(t, release("v2", "two"))
	w.await("web", "staging CONVERGED v2, production CONVERGED v2")
	require.ErrorContains(t, release("v1", "other"), "v1 is known with other parameters")
	require.ErrorContains(t, release("v3-i9", "x"), "marks the release of a configuration change")
	require.ErrorContains(t, w.update(w.id("web"), protocol.Release, protocol.ReleaseRequest{
		Act: protocol.Act{By: "test"}, Version: "v4", Parameters: map[string]any{"greting": "x"},
	}, nil), `no parameter "greting"; expected one of greeting`)
	require.NoError(t, release("v1", "one"))
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
}

// D10: what is no longer declared is left in place, reported, and not acted upon.
func TestD10RemovedChannelIsOrphaned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.write(twoChannels + web + "releaseChannels: [staging]\n")
	w.publish()
	w.await("web", "staging CONVERGED v1, production ORPHANED v1")
	w.write(twoChannels + web)
	w.publish()
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Equal(t, 1, w.fake.At(w.app, "web", "production").Applies())
}
