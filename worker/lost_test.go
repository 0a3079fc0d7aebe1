package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/store"
)

// A worker counts as lost once it has written no new presence for the duration of a lease, by the clock of the supervisor, and not if the
// supervisor itself could not read the store.
func TestSilentWorkers(t *testing.T) {
	kept, err := store.Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kept.Close()) })
	s := &supervisor{store: kept, holder: "me", storedUpTo: func(now time.Time) time.Time { return now }, reportStore: func(error) {}}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	says := func(worker string) {
		require.NoError(t, kept.PutPresence(t.Context(), worker, store.Presence{At: now.Add(time.Hour), Kept: now})) // another clock
	}
	silent := func(after time.Duration) (names []string) {
		now = now.Add(after)
		require.NoError(t, s.writePresence(t.Context(), now))
		lost, err := s.silentWorkers(t.Context(), now)
		require.NoError(t, err)
		for name := range lost {
			names = append(names, name)
		}
		return names
	}
	says("other")
	says("lost")
	require.Empty(t, silent(0))
	for range 2 {
		says("other")
		require.Empty(t, silent(checkInterval))
	}
	require.Equal(t, []string{"lost"}, silent(checkInterval))
	says("other")
	require.Empty(t, silent(time.Hour), "the store was unavailable")
	for range 2 {
		says("other")
		require.Empty(t, silent(checkInterval))
	}
	says("other")
	require.Equal(t, []string{"lost"}, silent(checkInterval))
	require.NoError(t, kept.RemovePresence(t.Context(), "lost"))
	require.Empty(t, silent(checkInterval))
}
