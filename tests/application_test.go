package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/worker/publish"
)

// D5, DESIGN 3: numbers only grow and every publication reaches its services, over as many runs of
// the Application as it takes.
func TestD5NumbersGrowAcrossRuns(t *testing.T) {
	t.Parallel()
	w := shortRuns(t, 60)
	const publications = 12
	for n := 1; n <= publications; n++ {
		w.write(twoChannels + strings.Replace(web, "default: hello", fmt.Sprintf("default: hello-%d", n), 1))
		require.EqualValues(t, n, w.publish().Incarnation)
	}
	again := w.publish()
	require.True(t, again.Unchanged)
	require.EqualValues(t, publications, again.Incarnation)
	w.release("web", "v1")
	w.await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Greater(t, w.runsOf(protocol.ApplicationID(w.app)), 2, "the runs were short")
}

// INTERFACE 4: an application remembers where it comes from; another directory needs --take-over.
func TestAnotherDirectoryNeedsTakeOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	first := w.dir
	w.dir = t.TempDir()
	w.write(twoChannels + web + "description: from elsewhere\n")
	_, err := publish.Publish(t.Context(), publish.Options{Client: w.client, Dir: w.dir, StoreURL: w.store, By: "test", Fake: true})
	require.ErrorContains(t, err, "comes from "+first)
	_, err = publish.Publish(t.Context(), publish.Options{Client: w.client, Dir: w.dir, StoreURL: w.store, By: "test", Fake: true, TakeOver: true})
	require.NoError(t, err)
}

// D11: a runtime belongs to the application that first defines it.
func TestD11RuntimeOfAnotherApplicationIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write(twoChannels + web)
	w.publish()
	other := newWorld(t)
	other.write(strings.ReplaceAll(twoChannels+web, "APP-rt", w.app+"-rt"))
	_, err := publish.Publish(t.Context(), publish.Options{Client: other.client, Dir: other.dir, StoreURL: other.store, By: "test", Fake: true})
	require.ErrorContains(t, err, w.app)
}
