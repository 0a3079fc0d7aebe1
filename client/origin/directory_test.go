package origin

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Directories that appear and disappear during the walk (a build, a checkout) are no error. A missing root directory is one.
func TestSnapshotSurvivesVanishingDirectories(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "converge.yaml"), []byte("a"), 0o600))
	want, err := snapshot(dir)
	require.NoError(t, err)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			_ = os.MkdirAll(filepath.Join(dir, "build", "out"), 0o755)
			_ = os.RemoveAll(filepath.Join(dir, "build"))
		}
	}()
	for range 2000 {
		got, err := snapshot(dir)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	stop.Store(true)
	<-done
	require.NoError(t, os.RemoveAll(dir))
	_, err = snapshot(dir)
	require.Error(t, err)
}
