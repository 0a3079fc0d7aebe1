// Package cluster runs Converge on Temporal with PostgreSQL, as a team does that has a cluster of its own: a PostgreSQL of Debian, a server
// from the module of Temporal with the schema that its tool makes, and workers as processes.
package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/cluster/lab"
	"github.com/converge-engine/converge/tests/internal/proxy"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/programtest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

var shared = stage.New(nil)

func TestMain(m *testing.M) {
	if lab.PlayRole(os.Args) {
		return
	}
	os.Exit(shared.Main(m))
}

// needsPostgres skips a test where PostgreSQL is not installed.
func needsPostgres(t *testing.T) {
	t.Helper()
	if _, err := lab.Installed(); err != nil {
		t.Skip(err)
	}
}

// newWorld is a namespace on a server with PostgreSQL. The server reaches it through a proxy.
func newWorld(t *testing.T) (*stage.World, *lab.Server, *lab.Postgres, *proxy.Proxy) {
	t.Helper()
	needsPostgres(t)
	database, err := lab.StartPostgres()
	require.NoError(t, err)
	t.Cleanup(database.Remove)
	between, err := proxy.New(net.JoinHostPort(lab.Host, strconv.Itoa(database.Port)))
	require.NoError(t, err)
	t.Cleanup(between.Close)
	_, text, err := net.SplitHostPort(between.Address())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	s, err := lab.StartServer(0, port)
	require.NoError(t, err)
	t.Cleanup(s.Kill)
	require.NoError(t, s.Register(t.Context()))
	return shared.At(t, s.Address()), s, database, between
}

// publishNew publishes to a namespace whose search attributes are new: the server does not know them everywhere yet, which publish waits for.
func publishNew(w *stage.World) {
	w.T.Helper()
	_, err := publish.Publish(w.T.Context(), publish.Options{Client: w.Client, Namespace: client.DefaultNamespace, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true})
	require.NoError(w.T, err)
}

// A release goes its way on PostgreSQL. Nothing is lost, and nothing is applied twice, while the database is restarted, cleanly and at once,
// while it fails over, and while the server is killed.
func TestReleasesOnPostgreSQL_F1(t *testing.T) {
	t.Parallel()
	w, server, database, between := newWorld(t)
	w.StartWorker()
	w.Write(stage.TwoChannels + stage.Web)
	publishNew(w)
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	w.Act("web", protocol.Pause, `{"by":"bob","channel":"production","reason":"drill"}`)
	applied := []string{"v1"}
	for n, how := range []func(){
		func() { database.Stop(syscall.SIGINT); require.NoError(t, database.Start()) },
		func() { database.Stop(syscall.SIGQUIT); require.NoError(t, database.Start()) },
		func() { // a failover: connections break, and new ones fail until the other database serves, which has the same data
			between.Cut()
			database.Stop(syscall.SIGINT)
			require.NoError(t, database.Start())
			between.Restore()
		},
		func() { server.Kill(); require.NoError(t, server.Start()) },
	} {
		version := fmt.Sprintf("v%d", n+2)
		applied = append(applied, version)
		w.Release("web", version)
		since := time.Now()
		how()
		w.Await("web", "staging CONVERGED "+version+", production PAUSED v1")
		t.Logf("%s converged %s after the interruption began", version, time.Since(since).Round(100*time.Millisecond))
	}
	require.Equal(t, applied, versionsApplied(w, "staging"))
	w.Act("web", protocol.Resume, `{"by":"bob","channel":"production"}`)
	last := applied[len(applied)-1]
	w.Await("web", "staging CONVERGED "+last+", production CONVERGED "+last)
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "by mistake"))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		var s protocol.Status
		err := w.Query(w.ID("web"), protocol.QueryStatus, &s)
		return err == nil && stage.Channels(s) == "staging CONVERGED "+last+", production CONVERGED "+last, fmt.Sprint(err)
	})
	require.Equal(t, applied, versionsApplied(w, "staging"))
	require.Empty(t, w.Fake.Overlaps())
}

// versionsApplied are the versions that were applied to a channel of web, in order.
func versionsApplied(w *stage.World, channel string) (all []string) {
	for _, a := range w.Fake.Applies() {
		if a.Instance == w.App+"/web/"+channel && a.Err == "" {
			all = append(all, a.Version)
		}
	}
	return all
}

// A cluster as `make cluster` starts it takes a newcomer's application from nothing to its second version, and doctor finds nothing wrong.
func TestClusterTakesANewcomersApplication(t *testing.T) {
	t.Parallel()
	needsPostgres(t)
	port, board := shared.FreePort(t), shared.FreePort(t)
	var said stage.Buffer
	cluster := lab.Up{Program: shared.Converge(t), Store: filepath.Join(t.TempDir(), "store"), Port: port, Board: board, Out: &said}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cluster.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended, said.String())
	})
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // a worker adds the search attributes before it serves
		return strings.Contains(said.String(), "The board: ") && strings.Contains(said.String(), "serving; "), said.String()
	})

	d := shared.Prompt(t, t.TempDir(), net.JoinHostPort(lab.Host, strconv.Itoa(port)))
	d.Env = append(d.Env, "CONVERGE_STORE="+cluster.Store)
	run := func(args ...string) string {
		out, code := d.Converge(args...)
		require.Zero(t, code, "converge %v: %s", args, out)
		return out
	}
	run("config", "init", "shop")
	run("config", "publish", "shop")
	for _, version := range []string{"v1", "v2"} {
		run("release", "shop/hello", version, "--wait")
		d.Await("shop/hello", "staging CONVERGED "+version+", production CONVERGED "+version)
	}
	require.NotContains(t, run("admin", "doctor", "--exit-code"), "no-workers")
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		response, err := http.Get(fmt.Sprintf("http://%s:%d/api/v1/applications", lab.Host, board)) //nolint:noctx // of a test
		if err != nil {
			return false, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return err == nil && strings.Contains(string(body), `"shop"`), string(body)
	})
}

// commands is an application whose runtime is a command that runs until the file go exists.
const commands = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: production, runtimes: [{name: APP-rt}]}
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
custom: {apply: {command: [./apply.sh]}}
`

// A worker that is killed in the middle of an apply is replaced by the other one, once, and the journal says so.
func TestKilledWorkerIsReplacedOnce_A11(t *testing.T) {
	t.Parallel()
	w, _, _, _ := newWorld(t)
	programtest.Write(t, filepath.Join(w.Dir, "apply.sh"), "#!/bin/sh\necho $VERSION >>log\nwhile [ ! -e go ]; do sleep 0.1; done\n")
	w.Write(commands + stage.Web)
	first := startWorker(w)
	publishNew(w)
	w.Release("web", "v1")
	begun := func(n int) {
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			log, _ := os.ReadFile(filepath.Join(w.Dir, "log")) // it may not exist yet
			return strings.Count(string(log), "\n") == n, string(log)
		})
	}
	begun(1)
	startWorker(w)
	require.NoError(t, first.Process.Kill())
	killed := time.Now()
	begun(2)
	t.Logf("taken over %s after the worker was killed", time.Since(killed).Round(100*time.Millisecond))
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "go"), nil, 0o600))
	s := w.Await("web", "production CONVERGED v1")
	begun(2)
	require.Contains(t, journalOf(s), "apply of v1 was begun 2 times: a worker that ran it was lost, stopped, or cut off from the server")
}

// journalOf is the text of a service's journal, a line for each entry.
func journalOf(s protocol.Status) string {
	var all strings.Builder
	for _, line := range s.Journal {
		all.WriteString(line.Text + "\n")
	}
	return all.String()
}

// startWorker starts a worker as a process.
func startWorker(w *stage.World, args ...string) *exec.Cmd {
	w.T.Helper()
	return startWorkerOf(w, shared.Converge(w.T), args...)
}

// startWorkerOf starts a worker of a build of converge.
func startWorkerOf(w *stage.World, program string, args ...string) *exec.Cmd {
	w.T.Helper()
	worker := exec.Command(program, append([]string{"worker", "--address", w.Address, "--store", w.Store}, args...)...)
	said := &stage.Buffer{}
	worker.Stderr = io.MultiWriter(os.Stderr, said)
	worker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(w.T, worker.Start())
	w.T.Cleanup(func() {
		_ = worker.Process.Kill() // it may have ended
		_ = worker.Wait()         // reports the kill
	})
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) { return strings.Contains(said.String(), "serving; "), said.String() })
	return worker
}
