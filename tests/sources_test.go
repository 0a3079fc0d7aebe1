package tests

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/origin"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/client/watch"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/gittest"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// watchRepository watches a repository until stop is called, and tells what was reported.
func watchRepository(t *testing.T, w *world, r *gittest.Repo) (said <-chan string, stop func()) {
	t.Helper()
	source, err := origin.Parse("git::" + r.URL() + "//deploy")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	reports, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		watch.Publisher{
			Source: source, Interval: 50 * time.Millisecond, Quiet: 10 * time.Millisecond, MaxDelay: time.Second, Since: publish.Since(ctx, w.Client),
			Publish: func(ctx context.Context, tree origin.Tree) error {
				_, err := publish.Publish(ctx, publish.Options{Client: w.Client, StoreURL: w.Store, By: "watcher", Fake: true}.Of(tree))
				return err
			},
			Report: func(err error) {
				if err != nil {
					reports <- err.Error()
				}
			},
		}.Run(ctx)
	}()
	return reports, func() { cancel(); <-done }
}

// newest waits until an incarnation is newest, and returns it.
func newest(t *testing.T, w *world, number int64) protocol.Incarnation {
	t.Helper()
	var last protocol.ApplicationStatus
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		status, err := publish.Status(t.Context(), w.Client, w.App)
		last = status
		return err == nil && status.Newest == number, "not yet newest"
	})
	return last.Incarnations[len(last.Incarnations)-1]
}

// What is committed is published and released, also what was while nobody watched; what is broken is said, and the next good commit
// is taken.
func TestARepositoryIsWatched_D3_D6_D8_D14(t *testing.T) {
	w := newWorld(t)
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	r := gittest.New(t)
	commit := func(message, yaml string) string {
		return r.Commit(t, message, map[string]string{"deploy/converge.yaml": strings.ReplaceAll(yaml, "APP", w.App)}).String()
	}
	first := commit("Begin", stage.TwoChannels+stage.Web+"version: v1\n")
	_, stop := watchRepository(t, w, r)
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	one := newest(t, w, 1)
	require.Equal(t, protocol.Origin{Path: r.URL() + "//deploy", Commit: first}, one.Origin)
	require.Equal(t, []string{first[:12] + " Ada: Begin"}, one.Causes)
	require.Equal(t, "watcher", one.By)
	stop()

	var causes []string
	for _, version := range []string{"v2", "v3", "v4"} {
		hash := commit("Release "+version, stage.TwoChannels+stage.Web+"version: "+version+"\n")
		causes = append([]string{hash[:12] + " Ada: Release " + version}, causes...)
		r.Commit(t, "Say so", map[string]string{"README": version})
	}
	said, stop := watchRepository(t, w, r)
	w.Await("web", "staging CONVERGED v4, production CONVERGED v4")
	require.Equal(t, causes, newest(t, w, 2).Causes)

	commit("Break it", stage.TwoChannels+stage.Web+"version: v5\nreplicass: 3\n")
	for !strings.Contains(<-said, "replicass") { // a branch that is just being written is said, too
	}
	newest(t, w, 2)
	good := commit("Mend it", stage.TwoChannels+stage.Web+"version: v6\n")
	w.Await("web", "staging CONVERGED v6, production CONVERGED v6")
	three := newest(t, w, 3)
	require.Equal(t, good, three.Origin.Commit)
	require.Len(t, three.Causes, 2)
	stop()
}

// watchable is an application of one service whose runtime writes the version into a file.
const watchable = `apiVersion: converge/v1
kind: Application
name: NAME
releaseChannels: [{name: prod, runtimes: [{name: NAME-files}]}]
---
apiVersion: converge/v1
kind: Runtime
name: NAME-files
custom: {apply: {command: [sh, -c, 'echo "$PVN_SERVICE_VERSION" > "${TMPDIR:-/tmp}/NAME.version"']}}
---
apiVersion: converge/v1
kind: Service
name: web
version: RELEASED
`

// One process watches a repository and a directory beside a source that is not there; apply and incarnations say the commits.
func TestWatchAsACommand_D6_D9(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	text := func(name, version string) string {
		return strings.NewReplacer("NAME", name, "RELEASED", version).Replace(watchable)
	}
	dir := filepath.Join(home, "first")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte(text("first", "v1")), 0o600))
	d := shared.Dev(t, dir)
	d.Env = []string{"XDG_CACHE_HOME=" + filepath.Join(home, "cache"), "TMPDIR=" + home, "CONVERGE_BY=ci"}
	d.Start()
	d.Await("first/web", "prod CONVERGED v1")

	r := gittest.New(t)
	begin := r.Commit(t, "Begin", map[string]string{"deploy/converge.yaml": text("shop", "v1")})
	source := "git::" + r.URL() + "//deploy"
	out, code := d.Converge("config", "publish", source)
	require.Zero(t, code, out)
	d.Await("shop/web", "prod CONVERGED v1")

	other := filepath.Join(home, "other")
	require.NoError(t, os.Mkdir(other, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(other, "converge.yaml"), []byte(text("other", "v1")), 0o600))
	said := d.Background("config", "watch", "git::file:///nowhere", source, other, "--interval", "1s", "--quiet", "10ms")
	d.Await("other/web", "prod CONVERGED v1")
	r.Commit(t, "Say so", map[string]string{"README": "more"})
	sell := r.Commit(t, "Sell more", map[string]string{"deploy/converge.yaml": text("shop", "v2")})
	d.Await("shop/web", "prod CONVERGED v2")
	require.Contains(t, said(), "git::file:///nowhere: read git::file:///nowhere: repository does not exist")
	published := source + ": incarnation 2 of shop published: 1 service, 1 changed\n  " + sell.String()[:12] + " Ada: Sell more\n"
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return strings.Contains(said(), published), published }) // it may converge before that is said

	out, code = d.Converge("config", "list", "shop")
	require.Zero(t, code)
	require.Contains(t, out, r.URL()+"//deploy@"+sell.String()[:12])
	require.Contains(t, out, begin.String()[:12]+" Ada: Begin")
	list := stage.Only(t, "../docs/sources.md", "Sources").With(strings.NewReplacer("github.com/acme/shop", r.URL()))
	columns, err := os.ReadFile("../cmd/converge/incarnations.go") // their names are printed on a terminal only
	require.NoError(t, err)
	require.Contains(t, string(columns), `{"`+strings.Join(strings.Fields(list.Commands[0].Shown[0]), `", "`)+`"}`)
	list.Commands[0].Shown = list.Commands[0].Shown[1:]
	d.RunPage(list)
	d.RunPage(stage.Only(t, "../docs/sources.md", "All commits"))
	out, code = d.Converge("config", "diff", "shop", "1")
	require.Zero(t, code)
	require.Contains(t, out, "from "+r.URL()+"//deploy@"+sell.String()[:12]+"\n  "+sell.String()[:12]+" Ada: Sell more\n")
	data, err := os.ReadFile(filepath.Join(home, "shop.version"))
	require.NoError(t, err)
	require.Equal(t, "v2\n", string(data))
}
