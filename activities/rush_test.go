package activities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What came within half a minute counts, and only where it is much.
func TestRush(t *testing.T) {
	var l rush
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	for n := range rushed {
		require.Zero(t, l.another(now.Add(time.Duration(n)*time.Second/4)))
	}
	require.Equal(t, rushed, l.another(now.Add(10*time.Second)))
	require.Equal(t, rushed+1, l.another(now.Add(29*time.Second)))
	require.Zero(t, l.another(now.Add(35*time.Second)), "most entries have expired")
	require.Zero(t, l.another(now.Add(time.Hour)))
	for range rushed {
		l.another(now.Add(time.Hour))
	}
	require.Equal(t, rushed+1, l.another(now.Add(time.Hour-time.Minute)), "a clock that is set back loses no entries")
}
