package explain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/protocol"
)

// A repair that is due is news; a look that is due at a channel which only a person can move is none.
func TestWaitsForTellsOnlyWhatMovesIt(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for status, want := range map[string]string{
		"DEGRADED": "why (in 10s)", "CONVERGING": "why (in 10s)", "PAUSED": "why", "FAILED": "why", "BLOCKED": "why", "CONVERGED": "",
	} {
		c := protocol.ChannelStatus{Status: status, NextChange: now.Add(10 * time.Second), Reasons: []protocol.Reason{{Text: "why"}}}
		require.Equal(t, want, waitsFor(c, now), status)
	}
}

func TestWithoutPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"v2 failed: apply shop/web to prod: exit status 1": "v2 failed: exit status 1",
		"apply shop/web to prod: exit status 1":            "exit status 1",
		"apply failed once: apply shop/web to prod: no":    "apply failed once: no",
		"apply shop/web to staging: exit status 1":         "apply shop/web to staging: exit status 1",
		"applying v2": "applying v2",
		"":            "",
	} {
		require.Equal(t, want, withoutPlace(text, "prod"), text)
	}
}
