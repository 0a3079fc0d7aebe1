package store

import (
	"context"
	"fmt"
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
			stored, err := s.UseToken(t.Context(), []byte(token), at.Add(time.Hour), protocol.TokenUse{RequestID: id, At: at})
			require.NoError(t, err)
			return stored.RequestID
		}
		require.Equal(t, "r1", use("alice", "r1", noon))
		require.Equal(t, "r1", use("alice", "r2", noon))
		s.cache = newCache()
		require.Equal(t, "r1", use("alice", "r2", noon), "another worker")
		use("bob", "r3", noon.AddDate(0, 0, 1))
		require.Len(t, keysUnder(t, s, tokens), 2)
		use("carol", "r4", noon.AddDate(0, 0, 2))
		require.Eventually(t, func() bool { return len(keysUnder(t, s, tokens)) == 2 }, time.Minute, time.Millisecond)
	})
}

// Whoever comes first in a day does not wait until the records of days before are removed, and however little time they have,
// all of them are.
func TestTokenRemovalDoesNotDelayRequests(t *testing.T) {
	s, err := Open(t.Context(), memoryURL)
	require.NoError(t, err)
	held := &blockingRemoval{blobs: s.blobs, until: make(chan struct{})}
	s.blobs = held // before anybody looks: something is removed beside each first request of a day
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	use := func(ctx context.Context, token string, at time.Time) {
		_, err := s.UseToken(ctx, []byte(token), at, protocol.TokenUse{RequestID: "r", At: at})
		require.NoError(t, err)
	}
	for n := range 50 {
		use(t.Context(), fmt.Sprint("old ", n), noon)
	}
	canceled, cancel := context.WithCancel(t.Context())
	use(canceled, "new", noon.AddDate(0, 0, 3))
	cancel()
	close(held.until)
	require.Eventually(t, func() bool { return len(keysUnder(t, s, tokens)) == 1 }, time.Minute, time.Millisecond)
}

// blockingRemoval are blobs of which none is removed before a time.
type blockingRemoval struct {
	blobs
	until chan struct{}
}

func (h *blockingRemoval) remove(ctx context.Context, key string) error {
	select {
	case <-h.until:
		return h.blobs.remove(ctx, key)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func keysUnder(t *testing.T, s *Store, prefix string) []string {
	t.Helper()
	keys, err := s.blobs.list(t.Context(), prefix)
	require.NoError(t, err)
	return keys
}
