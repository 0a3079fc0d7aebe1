package read

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A server keeps a store open, with what it has read; a command opens its own. A canceled request does not close what others use.
func TestStoresAreKept(t *testing.T) {
	dir := t.TempDir()
	own := Store{Configured: dir}
	first, err := own.Open(t.Context(), "")
	require.NoError(t, err)
	second, err := own.Open(t.Context(), "")
	require.NoError(t, err)
	require.NotSame(t, first, second)

	kept := own.Keep()
	canceled, cancel := context.WithCancel(t.Context())
	first, err = kept.Open(canceled, "")
	require.NoError(t, err)
	cancel()
	require.NoError(t, first.Close())
	second, err = kept.Open(t.Context(), "file:///elsewhere")
	require.NoError(t, err)
	require.Same(t, first, second, "the configured one")
	_, err = second.Audit(t.Context(), "shop", "web")
	require.NoError(t, err, "it is open")

	reported := Store{}.Keep()
	for range 2 * maxKept {
		at, err := reported.Open(t.Context(), t.TempDir())
		require.NoError(t, err)
		require.NoError(t, at.Close())
	}
	require.Len(t, reported.kept.open, maxKept)
	var refused *StoreError
	_, err = reported.Open(t.Context(), "s3://elsewhere")
	require.ErrorAs(t, err, &refused)
}

// After a while a store is opened again, so that another key, or a store that was restored at its place, is seen without a restart.
func TestKeptStoresAreOpenedAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		kept := Store{Configured: dir}.Keep()
		first, err := kept.Open(t.Context(), "")
		require.NoError(t, err)
		time.Sleep(keptFor - time.Second)
		second, err := kept.Open(t.Context(), "")
		require.NoError(t, err)
		require.Same(t, first, second)
		time.Sleep(time.Second)
		second, err = kept.Open(t.Context(), "")
		require.NoError(t, err)
		require.NotSame(t, first, second)
		_, err = first.Audit(t.Context(), "shop", "web")
		require.NoError(t, err, "others may still read it")
	})
}
