package store

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// No key leads out of the store, however it is written.
func TestKeysOutsideTheDirectoryAreRejected(t *testing.T) {
	parent := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(parent, "secret"), []byte("x"), 0o600))
	d := &directory{filepath.Join(parent, "store")}
	require.NoError(t, os.Mkdir(d.dir, 0o700))
	for _, key := range []string{"../secret", "versions/../../secret", "/etc/passwd", ""} {
		_, err := d.read(t.Context(), key)
		require.ErrorContains(t, err, "no key", key)
		require.ErrorContains(t, d.write(t.Context(), key, nil), "no key", key)
		_, err = d.create(t.Context(), key, nil)
		require.ErrorContains(t, err, "no key", key)
		require.ErrorContains(t, d.remove(t.Context(), key), "no key", key)
		require.ErrorContains(t, d.move(t.Context(), "versions/a", key), "no key", key)
	}
	_, err := d.list(t.Context(), "../")
	require.ErrorContains(t, err, "no key")
}

// A list has what begins with its prefix, also where that ends within a name, in the order of the keys; a directory is no blob.
func TestDirectoryLists(t *testing.T) {
	d := &directory{t.TempDir()}
	for _, key := range []string{"a/b/c", "a/b-1", "a/bc/d/e", "a/c", "ab"} {
		created, err := d.create(t.Context(), key, []byte(key))
		require.NoError(t, err)
		require.True(t, created)
		created, err = d.create(t.Context(), key, nil)
		require.NoError(t, err)
		require.False(t, created, "it exists")
	}
	for prefix, want := range map[string][]string{
		"":       {"a/b-1", "a/b/c", "a/bc/d/e", "a/c", "ab"},
		"a/":     {"a/b-1", "a/b/c", "a/bc/d/e", "a/c"},
		"a/b":    {"a/b-1", "a/b/c", "a/bc/d/e"},
		"a/b/":   {"a/b/c"},
		"a/bc/d": {"a/bc/d/e"},
		"x/y":    nil,
	} {
		keys, err := d.list(t.Context(), prefix)
		require.NoError(t, err)
		require.ElementsMatch(t, want, keys, prefix)
		require.IsIncreasing(t, append([]string{""}, keys...), prefix)
	}
	there, err := d.exists(t.Context(), "a/b")
	require.NoError(t, err)
	require.False(t, there)
	_, err = d.read(t.Context(), "a/b")
	require.True(t, IsNotFound(err), err)
	require.Error(t, d.write(t.Context(), "a/b", nil), "a directory exists")
	data, err := d.read(t.Context(), "a/bc/d/e")
	require.NoError(t, err)
	require.Equal(t, "a/bc/d/e", string(data))
}

// A store may be behind a link.
func TestDirectoryBehindALink(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	d := &directory{link}
	require.NoError(t, d.write(t.Context(), "logs/a", nil))
	for _, prefix := range []string{"", "logs/"} {
		keys, err := d.list(t.Context(), prefix)
		require.NoError(t, err)
		require.Equal(t, []string{"logs/a"}, keys, prefix)
	}
}
