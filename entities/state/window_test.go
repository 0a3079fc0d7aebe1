package state

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
)

// A comparison covers one period: a pause moves the windows after a deployment, and must not make a second comparison of it.
func TestPauseMovesWindowsAndNoComparison_A16_D26(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	s := &State{Spec: &entities.Spec{Channels: []entities.ChannelSpec{{Name: "prod"}}}}
	s.startWindow(Change{Kind: ChangeStable, Channel: "prod", Target: &entities.Target{FullVersion: "v1"}}, at)
	s.setWindowClock(Change{Kind: ChangeStopClock, Channel: "prod", Window: true}, at.Add(time.Hour))
	s.setWindowClock(Change{Kind: ChangeStartClock, Channel: "prod", Window: true}, at.Add(3*time.Hour))
	c := s.Channel("prod")
	require.Equal(t, at.Add(2*time.Hour), c.StableSince)
	require.Equal(t, at, c.StableFrom)
	c.endWindow()
	require.Zero(t, c.StableFrom)
}
