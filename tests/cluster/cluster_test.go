// Package cluster runs Converge on Temporal with PostgreSQL, as a team does that has a cluster of its own: a PostgreSQL of Debian, a server
// from the module of Temporal with the schema that its tool makes, and workers as processes.
package cluster

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/tests/internal/proxy"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/programtest"
	"github.com/converge-engine/converge/tests/temporaltest"
)

var shared = stage.New(nil)

func TestMain(m *testing.M) {
	if playRole(os.Args) {
		return
	}
	os.Exit(shared.Main(m))
}

// newWorld is a namespace on a server with PostgreSQL. The server reaches it through a proxy.
func newWorld(t *testing.T) (*stage.World, *server, *postgres, *proxy.Proxy) {
	t.Helper()
	database := newPostgres(t)
	between, err := proxy.New(net.JoinHostPort(host, strconv.Itoa(database.port)))
	require.NoError(t, err)
	t.Cleanup(between.Close)
	_, text, err := net.SplitHostPort(between.Address())
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	s := newServer(t, port)
	register(t, s.address())
	return shared.At(t, s.address()), s, database, between
}

// publishNew publishes to a namespace whose search attributes are new: the server may not know them everywhere yet.
func publishNew(w *stage.World) {
	w.T.Helper()
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		_, err := publish.Publish(w.T.Context(), publish.Options{Client: w.Client, Dir: w.Dir, StoreURL: w.Store, By: "test", Fake: true})
		return err == nil, fmt.Sprint(err)
	})
}

// register makes the namespace, as an administrator does, and waits until the server serves it.
func register(t *testing.T, address string) {
	t.Helper()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		c, err := client.Dial(client.Options{HostPort: address, Logger: stage.Quiet{}})
		if err != nil {
			return false, err.Error()
		}
		defer c.Close()
		service := c.WorkflowService()
		_, _ = service.RegisterNamespace(t.Context(), &workflowservice.RegisterNamespaceRequest{
			Namespace: "default", WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
		}) // it may exist
		_, err = service.CountWorkflowExecutions(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Namespace: "default"})
		return err == nil, fmt.Sprint(err)
	})
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
		func() { database.stop(syscall.SIGINT); database.start() },
		func() { database.stop(syscall.SIGQUIT); database.start() },
		func() { // a failover: connections break, and new ones fail until the other database serves, which has the same data
			between.Cut()
			database.stop(syscall.SIGINT)
			database.start()
			between.Restore()
		},
		func() { server.kill(); server.start() },
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
	var journal []string
	for _, line := range s.Journal {
		journal = append(journal, line.Text)
	}
	require.Contains(t, journal, "apply of v1 was begun 2 times: a worker that ran it was lost, stopped, or cut off from the server")
}

// startWorker starts a worker as a process.
func startWorker(w *stage.World) *exec.Cmd {
	w.T.Helper()
	worker := exec.Command(shared.Converge(w.T), "worker", "--address", w.Address, "--store", w.Store)
	worker.Stderr = os.Stderr
	worker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(w.T, worker.Start())
	w.T.Cleanup(func() {
		_ = worker.Process.Kill() // it may have ended
		_ = worker.Wait()         // reports the kill
	})
	return worker
}
