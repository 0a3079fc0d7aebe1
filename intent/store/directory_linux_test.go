package store

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a file system has at its root for itself is no part of a store there, and not to be read; what is, and cannot be read, is an error.
func TestDirectoryIgnoresForeignFolders(t *testing.T) {
	dir := t.TempDir()
	d := &directory{dir}
	require.NoError(t, d.write(t.Context(), "logs/a", nil))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o000))
	if os.Geteuid() == 0 { // who may read everything is nobody for a while
		for _, path := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "logs")} {
			require.NoError(t, os.Chmod(path, 0o755)) //nolint:gosec // for a test
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, syscall.Setfsuid(65534))
		defer func() { require.NoError(t, syscall.Setfsuid(0)) }()
	}
	keys, err := d.list(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, []string{"logs/a"}, keys)

	require.NoError(t, syscall.Setfsuid(os.Geteuid()))
	require.NoError(t, os.Chmod(filepath.Join(dir, "logs"), 0o000))
	if os.Geteuid() == 0 {
		require.NoError(t, syscall.Setfsuid(65534))
	}
	_, err = d.list(t.Context(), "")
	require.ErrorContains(t, err, "permission denied")
}
