package entities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Restarts count together while each is within an hour of the one before, and are repeated for an hour after the last one.
func TestRestartsCountTogetherWithinAnHour(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var r Restarts
	require.False(t, r.Repeated(at))
	r = r.Add("terminated", at)
	require.False(t, r.Repeated(at), "one is not repeated")
	r = r.Add("deleted", at.Add(time.Hour))
	require.Equal(t, Restarts{Count: 2, First: at, Last: at.Add(time.Hour), Why: "deleted"}, r)
	require.True(t, r.Repeated(at.Add(2*time.Hour)))
	require.True(t, r.Repeated(time.Time{}))
	require.False(t, r.Repeated(at.Add(2*time.Hour+time.Second)))
	later := at.Add(3 * time.Hour)
	require.Equal(t, Restarts{Count: 1, First: later, Last: later, Why: "failed"}, r.Add("failed", later))
	var none *Restarts
	require.False(t, none.Repeated(at))
}
