package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A workflow that an operator ended is restarted at once, however often. One that failed stays down for two checks, and a
// supervisor that has not met it for a check begins again.
func TestOnlyFailuresWait(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	byHand, failed := end{why: "its workflow was terminated"}, end{why: "its workflow ended: failed", ownRun: "run-1"}
	var f failures
	for check := range 3 {
		f.beginCheck()
		require.False(t, f.mustWait(byHand, now))
		require.Equal(t, check < 2, f.mustWait(failed, now), "check %d", check)
		require.True(t, f.mustWait(end{ownRun: "run-of-check-" + string(rune('a'+check))}, now), "another run")
		now = now.Add(checkInterval)
	}
	f.beginCheck()
	f.beginCheck()
	require.True(t, f.mustWait(failed, now))
	require.Len(t, f.known, 1, "runs that are no longer missing are forgotten")
	require.LessOrEqual(t, failureDelay+2*checkInterval, time.Minute, "until it is noticed and restarted")
}
