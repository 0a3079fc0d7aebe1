package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// What a token served is known until a day after it expired, and not for ever.
func TestUseToken(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		use := func(token, id string, at time.Time) string {
			stands, err := s.UseToken(t.Context(), []byte(token), at.Add(time.Hour), protocol.TokenUse{RequestID: id, At: at})
			require.NoError(t, err)
			return stands.RequestID
		}
		require.Equal(t, "r1", use("alice", "r1", noon))
		require.Equal(t, "r1", use("alice", "r2", noon))
		s.cache = newCache()
		require.Equal(t, "r1", use("alice", "r2", noon), "another worker")
		use("bob", "r3", noon.AddDate(0, 0, 1))
		require.Len(t, keysUnder(t, s, tokens), 2)
		use("carol", "r4", noon.AddDate(0, 0, 2))
		require.Len(t, keysUnder(t, s, tokens), 2)
	})
}

func keysUnder(t *testing.T, s *Store, prefix string) []string {
	t.Helper()
	keys, err := s.blobs.list(t.Context(), prefix)
	require.NoError(t, err)
	return keys
}
