package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/programtest"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
)

// onlyInClusterTest skips a test that takes too long for CI.
func onlyInClusterTest(t *testing.T) {
	t.Helper()
	if os.Getenv("CONVERGE_CLUSTER_TEST") == "" {
		t.Skip("takes half a minute and more; make cluster-test runs it")
	}
}

// gated is an application whose runtimes are commands: that of staging runs until the file go exists, production needs an approval.
const gated = `apiVersion: converge/v1
kind: Application
name: shop
releaseChannels:
- {name: staging, runtimes: [{name: slow}]}
- name: production
  runtimes: [{name: quick}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}, {manualApproval: {}}]
---
{apiVersion: converge/v1, kind: Runtime, name: slow, custom: {apply: {command: [./apply.sh]}}}
---
{apiVersion: converge/v1, kind: Runtime, name: quick, custom: {apply: {command: [./quick.sh]}}}
---
{apiVersion: converge/v1, kind: Service, name: web, custom: {env: {VERSION: "${{ version }}"}}}
`

// writeGated writes that application to a directory.
func writeGated(t *testing.T, dir string) {
	t.Helper()
	programtest.Write(t, filepath.Join(dir, "apply.sh"), "#!/bin/sh\necho $VERSION >>staging.log\nwhile [ ! -e go ]; do sleep 0.1; done\n")
	programtest.Write(t, filepath.Join(dir, "quick.sh"), "#!/bin/sh\necho $VERSION >>production.log\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.converge.yaml"), []byte(gated), 0o600))
}

func awaitLog(t *testing.T, file, want string) {
	t.Helper()
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		log, _ := os.ReadFile(file) // it may not exist yet
		return string(log) == want, string(log)
	})
}

// An installation moves from a laptop to the cluster by the command line of the page, with an apply under way and an approval that was
// given. The apply is begun again there, once, and the release arrives by that approval.
func TestMovesFromDevWithAReleaseInFlight_F4(t *testing.T) {
	onlyInClusterTest(t)
	t.Parallel()
	w, _, _, _ := newWorld(t)
	d := shared.Dev(t, t.TempDir())
	writeGated(t, d.Dir)
	d.Start()
	d.Await("shop/web", "staging CONVERGED, production CONVERGED")
	run := func(args ...string) string {
		out, code := d.Converge(args...)
		require.Zero(t, code, "converge %v: %s", args, out)
		return out
	}
	run("release", "shop/web", "v1")
	staging := filepath.Join(d.Dir, "staging.log")
	awaitLog(t, staging, "v1\n")
	run("approve", "shop/web", "v1", "production")
	store := filepath.Join(t.TempDir(), "store")
	const line = "set -o pipefail; %[1]s admin export --from dev --yes --address 127.0.0.1:%[2]d | %[1]s admin import --address %[3]s --store %[4]s"
	out, code := d.Run("/bin/bash", "-c", fmt.Sprintf(line, shared.Converge(t), d.Port, w.Address, store))
	require.Zero(t, code, out)
	d.Kill()

	w.App, w.Dir, w.Store = "shop", d.Dir, store
	startWorker(w)
	awaitLog(t, staging, "v1\nv1\n")
	require.NoError(t, os.WriteFile(filepath.Join(d.Dir, "go"), nil, 0o600))
	s := w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Equal(t, "v1\nv1\n", read(t, staging))
	require.Equal(t, "v1\n", read(t, filepath.Join(d.Dir, "production.log")))
	require.Contains(t, journalOf(s), "its installation was moved here")
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}

// The workers are upgraded in waves with a release in flight: the run with the apply stays on the build that began it, and moves to the new
// one when it has ended. The old worker then stops, and the release arrives by the approval that was given before.
func TestWorkersAreUpgradedInWaves(t *testing.T) {
	onlyInClusterTest(t)
	t.Parallel()
	w, _, _, _ := newWorld(t)
	w.App, w.Dir = "shop", t.TempDir()
	writeGated(t, w.Dir)
	old := startWorker(w, "--deployment", "converge", "--build", "one", "--set-current")
	publishNew(w)
	w.Release("web", "v1")
	staging := filepath.Join(w.Dir, "staging.log")
	awaitLog(t, staging, "v1\n")
	w.Act("web", protocol.Approve, `{"by":"alice","version":"v1","topic":"production"}`)
	build := func() string {
		d, err := w.Client.DescribeWorkflowExecution(t.Context(), w.ID("web"), "")
		require.NoError(t, err)
		return d.WorkflowExecutionInfo.GetVersioningInfo().GetDeploymentVersion().GetBuildId()
	}
	require.Equal(t, "one", build())
	startWorker(w, "--deployment", "converge", "--build", "two", "--set-current")
	require.Equal(t, "one", build(), "an apply is under way")
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "go"), nil, 0o600))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { return build() == "two", build() })
	require.NoError(t, old.Process.Signal(syscall.SIGTERM))
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Equal(t, "v1\n", read(t, staging))
	require.Equal(t, "v1\n", read(t, filepath.Join(w.Dir, "production.log")))
}

// The cluster and the store are lost but for a backup. On a new one the installation comes back paused, nothing is taken back, and it
// continues once a person resumes it.
func TestClusterIsRestoredFromABackup_F4(t *testing.T) {
	onlyInClusterTest(t)
	t.Parallel()
	old, server, database, _ := newWorld(t)
	old.StartWorker()
	old.Write(stage.TwoChannels + stage.Web)
	publishNew(old)
	old.Release("web", "v1")
	old.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	archive := filepath.Join(t.TempDir(), "backup.tar.gz")
	awaitCheckpoint(old)
	program(t, old, "admin", "export", "--store", old.Store, archive)
	old.Release("web", "v2") // the backup does not know
	old.Await("web", "staging CONVERGED v2, production CONVERGED v2")
	old.StopWorker()
	server.Kill()
	database.Remove()
	require.NoError(t, os.RemoveAll(old.Store))

	w, _, _, _ := newWorld(t)
	w.App, w.Dir, w.Fake = old.App, old.Dir, old.Fake
	require.Contains(t, program(t, w, "admin", "import", "--restore", "--store", w.Store, archive), "converge resume --all")
	w.StartWorkerAs(worker.Options{})
	w.Await("web", "staging PAUSED v1, production PAUSED v1")
	require.Equal(t, "v2", w.Fake.At(w.App, "web", "production").Version(), "nothing was taken back")
	w.Release("web", "v3")
	program(t, w, "resume", "--all", "--yes")
	w.Await("web", "staging CONVERGED v3, production CONVERGED v3")
}

// awaitCheckpoint waits until the store has the state of web.
func awaitCheckpoint(w *stage.World) {
	w.T.Helper()
	s, err := store.Open(w.T.Context(), w.Store)
	require.NoError(w.T, err)
	defer s.Close() // nothing is being written
	temporaltest.WaitFor(w.T, stage.Patience, func() (bool, string) {
		c, err := s.Checkpoint(w.T.Context(), w.ID("web"))
		return err == nil && time.Since(c.At) > time.Second, fmt.Sprint(c.At, err)
	})
}

// program runs converge against a world's server, and returns what it prints.
func program(t *testing.T, w *stage.World, args ...string) string {
	t.Helper()
	return programOf(t, w, shared.Converge(t), args...)
}

func programOf(t *testing.T, w *stage.World, path string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, append(args, "--address", w.Address)...)
	cmd.Dir, cmd.Env = w.Dir, append(os.Environ(), "CONVERGE_STORE="+w.Store)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "converge %v: %s", args, out)
	return string(out)
}
