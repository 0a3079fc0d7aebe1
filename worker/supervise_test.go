package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A workflow is restarted at once, then after a minute, and so on up to an hour; the third time within an hour it is held.
func TestRestartsBackOff(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(minutes ...int) (out []time.Time) {
		for _, m := range minutes {
			out = append(out, now.Add(-time.Duration(m)*time.Minute))
		}
		return out
	}
	for _, tt := range []struct {
		name   string
		before []time.Time
		wait   time.Duration
		hold   bool
	}{
		{"never", nil, 0, false},
		{"long ago", ago(600, 61), 0, false},
		{"just now", ago(0), time.Minute, false},
		{"half an hour ago", ago(30), -29 * time.Minute, false},
		{"twice", ago(10, 0), 2 * time.Minute, true},
		{"seven times", ago(50, 40, 30, 20, 10, 5, 0), time.Hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next, hold := restartAt(tt.before, now)
			require.Equal(t, now.Add(tt.wait), next)
			require.Equal(t, tt.hold, hold)
		})
	}
}
