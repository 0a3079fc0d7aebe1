package operators

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/converge-engine/converge/tests/programtest"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/proxy"
	"github.com/converge-engine/converge/tests/internal/stage"
)

// commands is one channel on a runtime of commands.
const commands = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels: [{name: production, runtimes: [{name: APP-rt}]}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
custom: {apply: {command: [./apply.sh]}}
`

// stubborn is an apply that writes down ten times a second that it runs, ignores SIGTERM, and ends when it may.
const stubborn = `#!/bin/sh
trap '' TERM
while [ ! -e go ]; do echo $$ >>log; sleep 0.1; done
`

// commanded is a service that is applied by that command.
type commanded struct{ *stage.World }

func newCommanded(t *testing.T) commanded {
	t.Helper()
	c := commanded{shared.OwnServer(t, 0)}
	c.StopWorker()
	programtest.Write(t, filepath.Join(c.Dir, "apply.sh"), stubborn)
	c.Write(commands + stage.Web)
	t.Cleanup(c.letGo) // nothing is left behind
	return c
}

func (c commanded) letGo() {
	require.NoError(c.T, os.WriteFile(filepath.Join(c.Dir, "go"), nil, 0o600))
}

// applies are the processes that wrote, in the order in which they took turns.
func (c commanded) applies() []string {
	log, err := os.ReadFile(filepath.Join(c.Dir, "log"))
	if err != nil {
		return nil
	}
	return slices.Compact(strings.Fields(string(log)))
}

func (c commanded) awaitApplies(n int) {
	c.T.Helper()
	require.Eventually(c.T, func() bool { return len(c.applies()) >= n }, stage.Patience, 50*time.Millisecond)
}

// startProcess starts a worker as a process of its own.
func (c commanded) startProcess() *exec.Cmd {
	c.T.Helper()
	worker := exec.Command(shared.Converge(c.T), "worker", "--address", c.Address, "--store", c.Store)
	worker.Stderr = os.Stderr
	require.NoError(c.T, worker.Start())
	c.T.Cleanup(func() {
		if worker.ProcessState == nil {
			_ = worker.Process.Kill()
			_ = worker.Wait() // reports the kill
		}
	})
	return worker
}

// A command that does not end by itself, on a worker that is cut off, has ended before another worker begins it. The journal and the log of
// the command say so afterwards.
func TestCutOffCommandEndsBeforeAnotherBegins_F2(t *testing.T) {
	t.Parallel()
	c := newCommanded(t)
	toServer, err := proxy.New(c.Address)
	require.NoError(t, err)
	t.Cleanup(toServer.Close)
	c.StartWorkerAt(toServer.Address())
	c.Publish()
	c.Release("web", "v1")
	c.awaitApplies(1)
	c.StartWorker() // that one is not cut off
	toServer.Hold()
	defer toServer.Resume()
	toServer.Cut()
	cut := time.Now()
	c.awaitApplies(2)
	t.Logf("taken over after %s", time.Since(cut))
	c.letGo()
	s := c.Await("web", "production CONVERGED v1")
	require.Equal(t, 2, len(c.applies()), "the one ran beside the other")
	require.Contains(t, journal(s), "apply of v1 was begun 2 times: a worker that ran it was lost, stopped, or cut off from the server")
	require.Contains(t, cli(c.World, "logs", c.App+"/web", "--store", c.Store), " apply v1 (begun 2 times: a worker was lost, stopped, or cut off): exit 0 after")
}

// Nor does it on a worker that stands still for a minute, which then goes on.
func TestCommandOfFrozenWorkerEndsBeforeAnotherBegins_F2(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	c := newCommanded(t)
	worker := c.startProcess()
	c.Publish()
	c.Release("web", "v1")
	c.awaitApplies(1)
	c.StartWorker()
	require.NoError(t, worker.Process.Signal(syscall.SIGSTOP))
	frozen := time.Now()
	c.awaitApplies(2)
	t.Logf("taken over after %s", time.Since(frozen))
	<-time.After(time.Minute - time.Since(frozen)) // this is what happens, not a wait for something else
	require.NoError(t, worker.Process.Signal(syscall.SIGCONT))
	c.letGo()
	c.Await("web", "production CONVERGED v1")
	require.Equal(t, 2, len(c.applies()), "the one ran beside the other")
}
