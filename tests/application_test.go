package tests

import (
	"fmt"
	"os"
	"path/filepath"
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

// An application may define runtimes for the services of others only. A change of one is published, though its own services and rules stay as
// they are: other applications get the new definition with their next publication.
func TestRuntimesForOtherApplicationsArePublished_D11(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	application := "apiVersion: converge/v1\nkind: Application\nname: NAME\nreleaseChannels: [{name: prod, runtimes: [{name: APP-RUNTIME}]}]\n"
	runtime := "---\napiVersion: converge/v1\nkind: Runtime\nname: APP-RUNTIME\nfake: {steadyPollInterval: INTERVAL}\n"
	publishAt := func(dir string, yaml ...string) publish.Result {
		t.Helper()
		text := strings.ReplaceAll(strings.Join(yaml, ""), "APP", w.App)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(text), 0o600))
		result, err := publish.Publish(t.Context(), publish.Options{Client: w.Client, Dir: dir, StoreURL: w.Store, By: "test", Fake: true})
		require.NoError(t, err)
		return result
	}
	platform, shop := t.TempDir(), t.TempDir()
	eu := strings.NewReplacer("NAME", "APP-platform", "RUNTIME", "eu").Replace(application)
	define := func(name, interval string) string {
		return strings.NewReplacer("RUNTIME", name, "INTERVAL", interval).Replace(runtime)
	}
	use := func(name string) publish.Result {
		t.Helper()
		return publishAt(shop, strings.NewReplacer("NAME", "APP", "RUNTIME", name).Replace(application)+stage.Web)
	}
	require.Empty(t, publishAt(platform, eu, define("eu", "1m")).Runtimes, "nothing was published before")
	use("eu")
	require.True(t, use("eu").Unchanged)

	changed := publishAt(platform, eu, define("eu", "2m"), define("us", "1m"))
	require.Equal(t, []string{"changed runtime " + w.App + "-eu: fake.steadyPollInterval", "new runtime " + w.App + "-us"}, changed.Runtimes)
	require.False(t, changed.Unchanged)
	require.EqualValues(t, 1, changed.Incarnation)
	require.True(t, publishAt(platform, eu, define("eu", "2m"), define("us", "1m")).Unchanged)
	again := use("eu")
	require.False(t, again.Unchanged, "its service has the new definition")
	require.Equal(t, []string{"web"}, again.Changed)
	other := strings.NewReplacer("NAME", "APP-other", "RUNTIME", "us").Replace(application)
	require.EqualValues(t, 1, publishAt(t.TempDir(), other+stage.Web).Incarnation)
}
