package simulate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/selection"
	"github.com/converge-engine/converge/entities/state"
)

// wideFleet is a channel of n instances, through which releases go by a policy.
func wideFleet(n int, policy entities.Rollout) *state.State {
	s := shop()
	s.Spec.Channels = s.Spec.Channels[:1]
	c := &s.Spec.Channels[0]
	c.Instances = nil
	for i := range n {
		c.Instances = append(c.Instances, entities.InstanceSpec{Name: fmt.Sprintf("i%d", i), Runtime: "local", Template: "t"})
	}
	c.SetRollout(policy)
	return s
}

func number(n int) *entities.Amount { return &entities.Amount{Number: n} }

// A release through 500 instances takes no longer than the policy requires. Each instance takes a minute, so the minimum is the pauses
// plus one minute for each instance that must wait for another (D24).
func TestMakespan_D24(t *testing.T) {
	pause := func(d time.Duration) entities.RolloutStep { return entities.RolloutStep{Pause: d} }
	for name, c := range map[string]struct {
		policy entities.Rollout
		least  time.Duration
	}{
		"one, then the rest": {entities.Rollout{Steps: []entities.RolloutStep{{Instances: number(1)}}}, 2 * time.Minute},
		"a canary, increments": {
			entities.Rollout{Steps: []entities.RolloutStep{
				{Instances: number(1)}, pause(10 * time.Minute), {Instances: &entities.Amount{Percent: 10}}, pause(time.Hour), {Instances: &entities.Amount{Percent: 50}},
			}},
			4*time.Minute + 70*time.Minute,
		},
		"fifty at a time": {entities.Rollout{MaxUnavailable: number(50)}, 10 * time.Minute},
		"one by one":      {entities.Rollout{MaxUnavailable: number(1)}, 500 * time.Minute},
		"both": {
			entities.Rollout{Steps: []entities.RolloutStep{{Instances: number(1)}, pause(10 * time.Minute)}, MaxUnavailable: &entities.Amount{Percent: 5}},
			time.Minute + 10*time.Minute + 20*time.Minute, // 499 in twenty times 25
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Run(Input{State: wideFleet(500, c.policy), Version: "v1", At: friday, Judge: judge})
			require.NoError(t, err)
			ch := got.Channels[0]
			require.Equal(t, c.least, ch.Succeeded.Sub(ch.Entered))
		})
	}
}

// The timeline contains the steps.
func TestTimelineShowsRolloutSteps_D24(t *testing.T) {
	policy := entities.Rollout{Steps: []entities.RolloutStep{{Instances: number(1)}, {Pause: time.Hour}}}
	got, err := Run(Input{State: wideFleet(4, policy), Version: "v1", At: friday, Judge: judge})
	require.NoError(t, err)
	require.Contains(t, strings.Join(got.Table(time.UTC), "\n"), "step 2 of 2: 1 of 4 at v1; next 3 at 18:31 UTC (until Fri 20 Nov 18:31 UTC)")
}

// A command is assumed to select all free instances: only its bound is simulated (D24).
func TestCommandIsAssumedToSelectAll_D24(t *testing.T) {
	s := wideFleet(500, entities.Rollout{Command: []string{"./select.sh"}, MaxUnavailable: number(50)})
	c := &s.Spec.Channels[0]
	c.Checks = append(c.Checks, entities.Check{ID: entities.SelectionID, Kind: entities.CheckSelection, Definition: "select", Interval: time.Minute})
	got, err := Run(Input{State: s, Version: "v1", At: friday, Judge: selection.SelectAll})
	require.NoError(t, err)
	require.Equal(t, 10*time.Minute, got.Channels[0].Succeeded.Sub(got.Channels[0].Entered))
}
