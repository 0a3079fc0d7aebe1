package entities

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An apply that cannot begin is no failure of the release: neither attempts nor the deadline count,
// and it is tried again for as long as it takes.
func TestApplyUnready(t *testing.T) {
	now := time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	s := NewState("shop", "web")
	s.TakeSpec(&Spec{
		Application: "shop", Service: "web", Incarnation: 1,
		Channels: []ChannelSpec{{Name: "staging", Runtime: "rt", ProgressDeadline: time.Minute}},
		Runtimes: map[string]RuntimeSpec{"rt": {Kind: RuntimeCustom, Timing: RuntimeTiming{MaxAttempts: 2, RetryBackoff: time.Second, ApplyTimeout: time.Minute}}},
	}, "d", now)
	s.OpenRelease(NewRelease{Version: "v1", FullVersion: "v1", By: "alice", Payloads: map[string]string{"staging": "p"}}, now)
	for range 10 {
		d := s.Settle(now, Mode{})
		require.Len(t, d.Applies, 1)
		s.ApplyUnready("staging", d.Applies[0].Target, "the store is away", now)
		d = s.Settle(now, Mode{})
		require.Empty(t, d.Applies)
		require.Equal(t, []string{"the apply cannot begin: the store is away"}, d.Channels[0].Reasons)
		require.Equal(t, StatusConverging, d.Channels[0].Status)
		require.Equal(t, now.Add(unreadyPause), d.Wake)
		now = now.Add(5 * time.Minute)
	}
}
