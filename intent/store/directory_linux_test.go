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

// A directory is the store of one user: another one is refused before anything is written. The directory itself may be of another user, as
// the mount of a volume is.
func TestDirectoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chown(dir, 65534, -1))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "lost+found"), 0o700))
	require.NoError(t, os.Chown(filepath.Join(dir, "lost+found"), 65534, -1))
	s, err := Open(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, s.blobs.write(t.Context(), "logs/a", nil))
	require.NoError(t, os.Chown(filepath.Join(dir, "logs"), 65534, -1))
	_, err = Open(t.Context(), dir)
	require.ErrorContains(t, err, "it belongs to the user nobody (65534), and this is root (0); expected the same user, or a store that both reach, such as s3://bucket [store-owner]")
}
