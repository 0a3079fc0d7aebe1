package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// The rules of the highest number hold. Once they are removed those before do, and what is set then is read, also by a worker
// that has read the number before (F4).
func TestHighestNumberedRulesApply_F4(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	open := func() *Store {
		s, err := Open(ctx, dir)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
	worker, other := open(), open()
	by := func(s *Store) string {
		r, err := s.Rules(ctx)
		require.NoError(t, err)
		return r.By.Name
	}
	set := func(s *Store, n int64, author string) string {
		stored, err := s.CreateRules(ctx, protocol.Rules{Number: n, By: entities.Who{Name: author}})
		require.NoError(t, err)
		return stored.By.Name
	}
	require.Empty(t, by(worker))
	require.Equal(t, "ann", set(worker, 1, "ann"))
	require.Equal(t, "bob", set(worker, 2, "bob"))
	require.Equal(t, "bob", by(other))
	require.Equal(t, "bob", set(other, 2, "eve"), "each number is written once")

	require.NoError(t, os.Remove(filepath.Join(dir, "rules", "000000000002")))
	require.Equal(t, "ann", by(worker))
	require.Equal(t, "ann", by(other))
	require.Equal(t, "carol", set(other, 2, "carol"))
	require.Equal(t, "carol", by(worker))
	require.Equal(t, "carol", set(worker, 2, "bob"))
}
