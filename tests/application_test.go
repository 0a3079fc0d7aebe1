package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// Numbers only grow and every publication reaches its services, over as many runs of
// the Application as it takes.
func TestNumbersGrowAcrossRuns_D5(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 60)
	const publications = 18
	for n := 1; n <= publications; n++ {
		w.Write(stage.TwoChannels + strings.Replace(stage.Web, "default: hello", fmt.Sprintf("default: hello-%d", n), 1))
		require.EqualValues(t, n, w.Publish().Incarnation)
	}
	again := w.Publish()
	require.True(t, again.Unchanged)
	require.EqualValues(t, publications, again.Incarnation)
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Greater(t, w.runsOf(protocol.ApplicationID(w.App)), 2, "the runs were short")
}

// An application remembers where it comes from; another directory needs --take-over.
func TestAnotherDirectoryNeedsTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	first := w.Dir
	w.Dir = t.TempDir()
	w.Write(stage.TwoChannels + stage.Web + "description: from elsewhere\n")
	_, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true})
	require.ErrorContains(t, err, "comes from "+first)
	_, err = publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true, TakeOver: true})
	require.NoError(t, err)
}

// A runtime belongs to the application that first defines it.
func TestRuntimeOfAnotherApplicationIsRefused_D11(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(stage.TwoChannels + stage.Web)
	w.Publish()
	other := newWorld(t)
	other.Write(strings.ReplaceAll(stage.TwoChannels+stage.Web, "APP-rt", w.App+"-rt"))
	_, err := publish.Publish(t.Context(), publish.Options{Client: other.Client, Dir: other.Dir, StoreURL: other.Store, By: "test", Fake: true})
	require.ErrorContains(t, err, w.App)
}
