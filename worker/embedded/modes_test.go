package embedded

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only the owner can read the database and the files that SQLite creates next to it, regardless of the umask.
func TestDatabaseIsForItsOwnerOnly_G5(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0)) // of the whole process: no other test runs in parallel
	dir := filepath.Join(t.TempDir(), "home")
	server, err := Start(t.Context(), Options{DBFile: filepath.Join(dir, "temporal.db")})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(entries), 4, "the database, its log, its shared memory and its lock")
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), e.Name())
	}
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
}
