package operators

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ended waits for a process, and says how long that took.
func ended(t *testing.T, process *exec.Cmd) time.Duration {
	t.Helper()
	began := time.Now()
	_ = process.Wait() // how it ended is in its state
	require.NotNil(t, process.ProcessState)
	return time.Since(began)
}

// A worker that is stopped lets an apply end, for longer than the heartbeat timeout, and its heartbeats go on: nobody takes
// it over. Meanwhile it takes on nothing new. It stops when the apply has ended.
func TestStoppingWorkerLetsApplyEnd_F7(t *testing.T) {
	t.Parallel()
	c := newCommanded(t)
	worker := c.startProcess()
	c.Publish()
	c.Release("web", "v1")
	c.awaitApplies(1)
	require.NoError(t, worker.Process.Signal(syscall.SIGTERM))
	c.StartWorker()
	<-time.After(15 * time.Second) // this is what happens, not a wait for something else
	require.Len(t, c.applies(), 1, "it was taken over")
	c.letGo()
	t.Logf("stopped %s after the apply", ended(t, worker))
	c.Await("web", "production CONVERGED v1")
	require.Len(t, c.applies(), 1, "it was applied again")

	require.NoError(t, os.Remove(c.Dir+"/go"))
	idle := c.startProcess()
	c.Release("web", "v2") // either may have it
	c.awaitApplies(2)
	c.letGo()
	c.Await("web", "production CONVERGED v2")
	require.NoError(t, idle.Process.Signal(syscall.SIGTERM))
	took := ended(t, idle)
	t.Logf("an idle one stopped after %s", took)
	require.Less(t, took, 30*time.Second, "nothing held it up")
}

// A second signal ends it at once, its commands included.
func TestSecondSignalEndsWorkerAtOnce(t *testing.T) {
	t.Parallel()
	c := newCommanded(t)
	worker := c.startProcess()
	c.Publish()
	c.Release("web", "v1")
	c.awaitApplies(1)
	require.NoError(t, worker.Process.Signal(syscall.SIGTERM))
	<-time.After(time.Second) // signals of one kind that come at once are one
	require.NoError(t, worker.Process.Signal(syscall.SIGTERM))
	require.Less(t, ended(t, worker), 10*time.Second)
	c.StartWorker()
	c.awaitApplies(2)
	c.letGo()
	c.Await("web", "production CONVERGED v1")
	require.Equal(t, 2, len(c.applies()), "the one ran beside the other")
}
