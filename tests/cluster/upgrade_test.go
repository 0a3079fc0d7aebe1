package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
)

// released is converge from the archive of a release, whose directory a variable names.
func released(t *testing.T, variable string) string {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" {
		t.Skip("it needs the artefacts of two commits: make upgrade-test")
	}
	archives, err := filepath.Glob(filepath.Join(dir, "converge_*_linux_"+runtime.GOARCH+".tar.gz"))
	require.NoError(t, err)
	require.Len(t, archives, 1, dir)
	into := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "tar", "-xzf", archives[0], "-C", into).CombinedOutput()
	require.NoError(t, err, "%s", out)
	found, err := filepath.Glob(filepath.Join(into, "*", "converge"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

// The workers of an earlier build are replaced by those of this one, with a release in flight: its apply is under way, and its approval was
// given. One of the earlier workers is killed, the other one stops as asked. The release arrives, no apply is lost, and the next one goes
// its way with the new programs alone.
func TestUpgradeFromTheArtefactsOfAnEarlierCommit_F3(t *testing.T) {
	t.Parallel()
	earlier, later := released(t, "CONVERGE_EARLIER_RELEASE"), released(t, "CONVERGE_RELEASE")
	w, _, _, _ := newWorld(t)
	w.App, w.Dir = "shop", t.TempDir()
	writeGated(t, w.Dir)
	first, second := startWorkerOf(w, earlier), startWorkerOf(w, earlier)
	programOf(t, w, earlier, "config", "publish", w.Dir)
	programOf(t, w, earlier, "release", "shop/web", "v1")
	staging := filepath.Join(w.Dir, "staging.log")
	awaitLog(t, staging, "v1\n")
	programOf(t, w, earlier, "approve", "shop/web", "v1", "production")

	startWorkerOf(w, later)
	startWorkerOf(w, later)
	require.NoError(t, first.Process.Kill())
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.NoError(t, os.WriteFile(filepath.Join(w.Dir, "go"), nil, 0o600))
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.Contains(t, []string{"v1\n", "v1\nv1\n"}, read(t, staging), "begun again if the killed worker ran it")
	require.Equal(t, "v1\n", read(t, filepath.Join(w.Dir, "production.log")))
	_ = second.Wait() // its exit code is that of its applies

	programOf(t, w, later, "release", "shop/web", "v2")
	programOf(t, w, later, "approve", "shop/web", "v2", "production", "--comment", "the next one")
	programOf(t, w, later, "wait", "shop/web")
	require.Equal(t, "v1\nv2\n", read(t, filepath.Join(w.Dir, "production.log")))
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) { // until the server no longer lists the workers that are gone
		cmd := exec.CommandContext(t.Context(), later, "admin", "doctor", "--exit-code", "--address", w.Address)
		cmd.Dir, cmd.Env = w.Dir, append(os.Environ(), "CONVERGE_STORE="+w.Store)
		out, err := cmd.CombinedOutput()
		return err == nil, string(out)
	})
}
