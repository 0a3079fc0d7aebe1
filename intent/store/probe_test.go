package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A probe leaves nothing behind, and names what cannot be written.
func TestProbe_F10(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Probe(t.Context()))
	left, err := s.blobs.list(t.Context(), probes)
	require.NoError(t, err)
	require.Empty(t, left)

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "probes")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "probes"), nil, 0o600)) // where the folder would be
	require.ErrorContains(t, s.Probe(t.Context()), "probes")
}
