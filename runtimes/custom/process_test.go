//go:build unix

package custom

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// waitEnded waits until every process that held the pipe open for writing has ended.
func waitEnded(t *testing.T, f *os.File) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, f)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a process still runs")
	}
}

// stubborn starts a child that ignores SIGTERM and holds stdout, then waits for it, ignoring
// SIGTERM as well.
const stubborn = `trap '' TERM; (exec 3>alive; exec tail -f /dev/null) & wait; wait; exec tail -f /dev/null`

// The promise of Apply: a timeout leaves no processes, not even those that ignore signals.
func TestTimeoutEndsTheGroup_C6(t *testing.T) {
	for _, fetch := range []bool{false, true} {
		dir := t.TempDir()
		alive := pipe(t, filepath.Join(dir, "alive"))
		c := applying(stubborn)
		if fetch {
			c = fetching(entities.FetchStructured, stubborn)
			c.Fetch.Timeout = 300 * time.Millisecond
		}
		c.Apply.Timeout = 300 * time.Millisecond
		rt := newRuntime(t, dir, c)
		rt.runner.(*localRunner).grace = 50 * time.Millisecond
		var err error
		if fetch {
			_, err = rt.Observe(t.Context(), web("v1"))
			require.Equal(t, runtimes.CodeTimeout, code(t, err))
			require.EqualError(t, err, "sh did not finish within 300ms and was ended")
		} else {
			_, err = rt.Apply(t.Context(), web("v1"))
			require.EqualError(t, err, "sh did not finish within 300ms and was ended")
			require.False(t, runtimes.IsPermanent(err))
		}
		waitEnded(t, <-alive)
	}
}

// SIGTERM comes first: a command can clean up, and what its child does counts into the grace even when the command itself is gone and
// no process holds a pipe.
func TestTerminatedCommandsMayCleanUp(t *testing.T) {
	dir := t.TempDir()
	alive := pipe(t, filepath.Join(dir, "alive"))
	script := `(trap 'echo cleaned >log; exit' TERM; exec 3>alive >/dev/null 2>&1; while :; do read -r _ <hold; done) & wait`
	require.NoError(t, exec.Command("mkfifo", filepath.Join(dir, "hold")).Run())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rt := newRuntime(t, dir, applying(script))
	ended := make(chan error, 1)
	go func() { _, err := rt.Apply(ctx, web("v1")); ended <- err }()
	holder := <-alive
	cancel()
	err := <-ended
	require.EqualError(t, err, "sh interrupted: context canceled")
	require.ErrorIs(t, err, context.Canceled)
	waitEnded(t, holder)
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	require.NoError(t, err)
	require.Equal(t, "cleaned\n", string(log))
}

// The caller's own deadline is a timeout too; its cancellation says nothing about the runtime.
func TestCallersContext(t *testing.T) {
	rt := newRuntime(t, t.TempDir(), fetching(entities.FetchStructured, "exec tail -f /dev/null"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // the deadline is what is tested
	defer cancel()
	_, err := rt.Observe(ctx, web("v1"))
	require.EqualError(t, err, "sh did not finish in time and was ended")
	require.Equal(t, runtimes.CodeTimeout, code(t, err))

	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = rt.Observe(ctx, web("v1"))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorAs(t, err, new(*entities.ReadingError))
}

// A daemon that an apply starts may keep its output open: the apply still ends, well, and the daemon
// lives. A fetch leaves nothing behind.
func TestPipesHeldByAnotherProcess(t *testing.T) {
	const daemon = `(exec 3>alive; exec tail -f /dev/null) & echo $! >pid; read -r _ <ready; echo '{"objects": []}'`
	for _, fetch := range []bool{false, true} {
		dir := t.TempDir()
		require.NoError(t, exec.Command("mkfifo", filepath.Join(dir, "ready")).Run())
		opened := pipe(t, filepath.Join(dir, "alive"))
		alive := make(chan *os.File, 1)
		go func() {
			alive <- <-opened
			_ = os.WriteFile(filepath.Join(dir, "ready"), []byte("\n"), 0)
		}()
		if fetch {
			rt := newRuntime(t, dir, fetching(entities.FetchStructured, daemon))
			rt.runner.(*localRunner).drain = 50 * time.Millisecond
			objects, err := rt.Observe(t.Context(), web("v1"))
			require.NoError(t, err)
			require.Empty(t, objects)
			waitEnded(t, <-alive)
			continue
		}
		rt := newRuntime(t, dir, applying(daemon))
		rt.runner.(*localRunner).drain = 50 * time.Millisecond
		out, err := rt.Apply(t.Context(), web("v1"))
		require.NoError(t, err)
		require.Equal(t, "{\"objects\": []}\n", out.Stdout)
		require.NoError(t, exec.Command("sh", "-c", `kill "$(cat "$0")"`, filepath.Join(dir, "pid")).Run(), "the daemon was ended with the apply")
		waitEnded(t, <-alive)
	}
}

// On Linux a worker that is killed takes its running command with it, so that the apply that the
// next worker starts is the only one.
func TestWorkersDeathEndsItsCommand(t *testing.T) {
	const inWorker = "CONVERGE_TEST_WORKER_DIR"
	const script = "exec 3>alive; exec tail -f /dev/null"
	if dir := os.Getenv(inWorker); dir != "" {
		_, _ = newRuntime(t, dir, applying(script)).Apply(context.Background(), web("v1"))
		return
	}
	if goruntime.GOOS != "linux" {
		t.Skip("only the Linux kernel does this")
	}
	dir := t.TempDir()
	opened := pipe(t, filepath.Join(dir, "alive"))
	worker := exec.Command(os.Args[0], "-test.run=^TestWorkersDeathEndsItsCommand$")
	worker.Env = append(os.Environ(), inWorker+"="+dir)
	require.NoError(t, worker.Start())
	alive := <-opened
	require.NoError(t, worker.Process.Kill())
	_ = worker.Wait()
	waitEnded(t, alive)
}

// What is kept for people is bounded, at the end that says why.
func TestOutputIsBounded_C6(t *testing.T) {
	out, err := newRuntime(t, t.TempDir(), applying(`yes out | head -n 100000; yes err | head -n 100000 >&2; echo last >&2`)).Apply(t.Context(), web("v1"))
	require.NoError(t, err)
	for stream, end := range map[string]string{out.Stdout: "out\n", out.Stderr: "err\nlast\n"} {
		require.LessOrEqual(t, len(stream), MaxTail)
		require.Greater(t, len(stream), MaxTail-100)
		require.Regexp(t, `^\(the first \d+ bytes are left out\)\n`, stream)
		require.Equal(t, end, stream[len(stream)-len(end):])
	}
}

// A query may run every second for days: processes that it leaves would fill the machine.
func TestQueriesLeaveNoProcesses_A20(t *testing.T) {
	t.Parallel()
	o := standalone("sh", "-c", `(exec 3>alive; echo >ready; exec tail -f /dev/null) >/dev/null 2>&1 & read -r _ <ready; exit 2`)
	o.Dir, o.Query = t.TempDir(), true
	alive := pipe(t, filepath.Join(o.Dir, "alive"))
	require.NoError(t, exec.Command("mkfifo", filepath.Join(o.Dir, "ready")).Run())
	out, _, err := RunStandalone(t.Context(), testWorker, o)
	require.NoError(t, err)
	require.Equal(t, 2, out.ExitCode)
	waitEnded(t, <-alive)
}
