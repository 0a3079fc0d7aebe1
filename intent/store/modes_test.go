//go:build unix

package store_test

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/store"
)

// What a store keeps is nobody else's to read, whatever the umask.
func TestStoreFilesAreOwnerOnly_G5(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0)) // of the whole process: nothing runs beside this test
	dir := filepath.Join(t.TempDir(), "store")
	s, err := store.Open(t.Context(), dir)
	require.NoError(t, err)
	defer s.Close()
	_, err = s.PutSpec(t.Context(), entities.Spec{Application: "shop"})
	require.NoError(t, err)
	_, _, err = s.CreateVersion(t.Context(), "shop", "web", store.VersionRecord{Version: "v1", FullVersion: "v1"})
	require.NoError(t, err)
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		if d.IsDir() {
			require.Equal(t, fs.FileMode(0o700), info.Mode().Perm(), path)
			return nil
		}
		files++
		require.Equal(t, fs.FileMode(0o600), info.Mode().Perm(), path)
		return nil
	}))
	require.Equal(t, 2, files)
}
