package store

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/bundle"
)

// A bundle is read from the store once, and then known. What is there under its digest that is something else is damaged, and
// what no content is called is not asked for.
func TestBundleIsReadOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		b := bundle.New([][]byte{[]byte(`{"kind":"ConfigMap"}`)})
		require.NoError(t, s.PutBundle(t.Context(), b))
		s.cache = newCache()
		reads := &counting{blobs: s.blobs}
		s.blobs = reads
		for range 2 {
			found, err := s.Bundle(t.Context(), b.Digest())
			require.NoError(t, err)
			require.Equal(t, b.Bytes(), found.Bytes())
		}
		require.Equal(t, 1, reads.count)

		s.cache = newCache()
		require.NoError(t, s.blobs.write(t.Context(), "bundles/"+b.Digest(), []byte("{}")))
		_, err := s.Bundle(t.Context(), b.Digest())
		require.True(t, IsDamaged(err), err)
		for _, name := range []string{"", "ab", "../../states", b.Digest() + "00"} {
			_, err = s.Bundle(t.Context(), name)
			require.True(t, IsNotFound(err), name)
		}
		require.Equal(t, 2, reads.count)
	})
}

// counting counts what is read.
type counting struct {
	blobs
	count int
}

func (c *counting) read(ctx context.Context, key string) ([]byte, error) {
	c.count++
	return c.blobs.read(ctx, key)
}

// Whether a service was ever released is found out by one version of it, however many there are.
func TestOtherVersionReadsOne(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		other, err := s.OtherVersion(t.Context(), "shop", "web", "v1")
		require.NoError(t, err)
		require.Empty(t, other)
		for _, v := range []string{"v1", "v2", "v3"} {
			_, _, err := s.CreateVersion(t.Context(), "shop", "web", VersionRecord{Version: v, FullVersion: v, Hash: "hash"})
			require.NoError(t, err)
			if v == "v1" {
				other, err = s.OtherVersion(t.Context(), "shop", "web", "v1")
				require.NoError(t, err)
				require.Empty(t, other)
			}
		}
		s.cache = newCache()
		reads := &counting{blobs: s.blobs}
		s.blobs = reads
		other, err = s.OtherVersion(t.Context(), "shop", "web", "v1")
		require.NoError(t, err)
		require.Contains(t, []string{"v2", "v3"}, other)
		require.Equal(t, 1, reads.count)
	})
}
