package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The versions of the last half minute are counted, and reported only if there are many.
func TestRecentRate(t *testing.T) {
	var l recentRate
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for n := range minReportedRate {
		require.Zero(t, l.add(now.Add(time.Duration(n)*time.Second/4)))
	}
	require.Equal(t, minReportedRate, l.add(now.Add(10*time.Second)))
	require.Equal(t, minReportedRate+1, l.add(now.Add(29*time.Second)))
	require.Zero(t, l.add(now.Add(35*time.Second)), "most entries have expired")
	require.Zero(t, l.add(now.Add(time.Hour)))
	for range minReportedRate {
		l.add(now.Add(time.Hour))
	}
	require.Equal(t, minReportedRate+1, l.add(now.Add(time.Hour-time.Minute)), "a clock that is set back loses no entries")
}
