package selection

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func number(n int) entities.RolloutStep {
	return entities.RolloutStep{Instances: &entities.Amount{Number: n}}
}

func percent(n int) entities.RolloutStep {
	return entities.RolloutStep{Instances: &entities.Amount{Percent: n}}
}

func pause(d time.Duration) entities.RolloutStep { return entities.RolloutStep{Pause: d} }

func policyOf(s ...entities.RolloutStep) *entities.Rollout { return &entities.Rollout{Steps: s} }

// fleet has one updated instance for each given time, stable since then; zero: not stable.
func fleet(n int, updated ...time.Time) []InstanceState {
	all := make([]InstanceState, n)
	for i := range all {
		all[i] = InstanceState{Stable: true}
		if i < len(updated) {
			all[i] = InstanceState{Updated: true, Stable: !updated[i].IsZero(), Since: updated[i]}
		}
	}
	return all
}

// The declared policies, each at the points of a decision (D24).
func TestPolicies_D24(t *testing.T) {
	canary := policyOf(number(1), pause(10*time.Minute), percent(25), pause(time.Hour), percent(100))
	rolling := &entities.Rollout{MaxUnavailable: &entities.Amount{Number: 1}}
	for name, c := range map[string]struct {
		all    []InstanceState
		policy *entities.Rollout
		now    time.Time
		next   []int
		wait   WaitReason
		at     time.Time
	}{
		"all":                             {fleet(3), nil, noon, []int{0, 1, 2}, None, time.Time{}},
		"one by one: the first":           {fleet(3), rolling, noon, []int{0}, None, time.Time{}},
		"one by one: it is in progress":   {fleet(3, time.Time{}), rolling, noon, nil, LimitReached, time.Time{}},
		"one by one: the second":          {fleet(3, noon), rolling, noon, []int{1}, None, time.Time{}},
		"one, then the rest: the first":   {fleet(3), policyOf(number(1)), noon, []int{0}, None, time.Time{}},
		"one, then the rest: in progress": {fleet(3, time.Time{}), policyOf(number(1)), noon, nil, Stable, time.Time{}},
		"one, then the rest: the rest":    {fleet(3, noon), policyOf(number(1)), noon, []int{1, 2}, None, time.Time{}},
		"a canary":                        {fleet(12), canary, noon, []int{0}, None, time.Time{}},
		"a moment before the pause ends":  {fleet(12, noon), canary, noon.Add(10*time.Minute - 1), nil, Pause, noon.Add(10 * time.Minute)},
		"at its end":                      {fleet(12, noon), canary, noon.Add(10 * time.Minute), []int{1, 2}, None, time.Time{}},
		"the second pause":                {fleet(12, noon, noon, noon.Add(time.Minute)), canary, noon.Add(time.Hour), nil, Pause, noon.Add(61 * time.Minute)},
		"the last step":                   {fleet(4, noon), canary, noon.Add(70 * time.Minute), []int{1, 2, 3}, None, time.Time{}},
		"steps of the same size follow":   {fleet(4, noon), canary, noon.Add(11 * time.Minute), nil, Pause, noon.Add(70 * time.Minute)},
		"all updated":                     {fleet(2, noon, noon), canary, noon, nil, None, time.Time{}},
		"none at all":                     {nil, canary, noon, nil, None, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Select(c.all, c.policy, c.now)
			require.Equal(t, c.next, s.Next)
			require.Equal(t, c.wait, s.Wait)
			require.Equal(t, c.at, s.At)
		})
	}
}

// An unavailable instance does not block its fix, and takes the room of others.
func TestUnavailable_D24(t *testing.T) {
	policy := &entities.Rollout{MaxUnavailable: &entities.Amount{Number: 2}}
	all := fleet(6)
	all[4].Stable = false
	require.Equal(t, []int{0, 4}, Select(all, policy, noon).Next)
	all[5] = InstanceState{Unaffected: true}
	require.Equal(t, []int{4}, Select(all, policy, noon).Next, "one that the release does not touch is unavailable")
	all[0], all[4] = InstanceState{Held: true, Stable: true}, InstanceState{Held: true}
	require.Equal(t, LimitReached, Select(all, policy, noon).Wait)
}

// The percentage of updated instances is rounded up, that of unavailable ones down, and neither is ever zero.
func TestPercentages_D24(t *testing.T) {
	for _, c := range []struct{ percent, n, up, down int }{{25, 12, 3, 3}, {25, 10, 3, 2}, {1, 10, 1, 1}, {100, 7, 7, 7}, {50, 1, 1, 1}, {30, 0, 0, 0}} {
		a := entities.Amount{Percent: c.percent}
		require.Equal(t, []int{c.up, c.down}, []int{a.Of(c.n, true), a.Of(c.n, false)}, c)
	}
	require.Equal(t, 3, entities.Amount{Number: 5}.Of(3, true))
}

func drawPolicy(t *rapid.T) *entities.Rollout {
	amount := rapid.Custom(func(t *rapid.T) *entities.Amount {
		if rapid.Bool().Draw(t, "percentage") {
			return &entities.Amount{Percent: rapid.IntRange(1, 100).Draw(t, "percent")}
		}
		return &entities.Amount{Number: rapid.IntRange(1, 9).Draw(t, "number")}
	})
	p := &entities.Rollout{}
	for range rapid.IntRange(0, 4).Draw(t, "steps") {
		p.Steps = append(p.Steps, entities.RolloutStep{Instances: amount.Draw(t, "instances")}, pause(time.Duration(rapid.IntRange(0, 30).Draw(t, "minutes"))*time.Minute))
	}
	if rapid.Bool().Draw(t, "bounded") {
		p.MaxUnavailable = amount.Draw(t, "maxUnavailable")
	}
	return p
}

// For any policy, and any change of it and of the instances: a selected instance was not updated and is not held; no more become
// unavailable than allowed; nothing happens before a pause ends, and something does at its end; and once nothing changes any more, all
// instances that are not held are updated in the end.
func TestSelectionProperty_D23_D24(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy, now := drawPolicy(t), noon
		all := make([]InstanceState, rapid.IntRange(0, 12).Draw(t, "instances"))
		for n := range all {
			all[n].Stable = rapid.IntRange(0, 5).Draw(t, "stable") > 0
		}
		unavailable := func() (n int) {
			for _, i := range all {
				if !i.Stable {
					n++
				}
			}
			return n
		}
		step := func(t *rapid.T) Selection {
			before := unavailable()
			s := Select(all, policy, now)
			require.True(t, len(s.Next) == 0 || s.Wait == None)
			require.True(t, slices.IsSorted(s.Next))
			for _, n := range s.Next {
				require.False(t, all[n].Updated || all[n].Held || all[n].Unaffected)
				all[n].Updated, all[n].Stable = true, false
			}
			if policy.MaxUnavailable != nil && len(all) > 0 {
				require.LessOrEqual(t, unavailable(), max(before, policy.MaxUnavailable.Of(len(all), false)))
			}
			if !s.At.IsZero() {
				require.True(t, now.Before(s.At))
				require.Empty(t, Select(all, policy, s.At.Add(-1)).Next)
				require.NotEqual(t, Pause, Select(all, policy, s.At).Wait)
			}
			return s
		}
		arrive := func() {
			for n := range all {
				if all[n].Updated && !all[n].Stable {
					all[n].Stable, all[n].Since = true, now
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"step":   func(t *rapid.T) { step(t) },
			"arrive": func(*rapid.T) { arrive() },
			"later":  func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(t, "minutes")) * time.Minute) },
			"policy": func(t *rapid.T) { policy = drawPolicy(t) },
			"add":    func(t *rapid.T) { all = append(all, InstanceState{Stable: rapid.Bool().Draw(t, "there")}) },
			"remove": func(t *rapid.T) {
				if len(all) > 0 {
					n := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					all = slices.Delete(all, n, n+1)
				}
			},
			"hold": func(t *rapid.T) {
				if len(all) > 0 {
					n := rapid.IntRange(0, len(all)-1).Draw(t, "which")
					all[n].Held = !all[n].Held
				}
			},
		})
		for n := range all {
			all[n].Held = false
		}
		for range 3*len(all) + 3 {
			arrive()
			if s := step(t); !s.At.IsZero() {
				now = s.At
			}
		}
		arrive()
		// Unavailable instances that were not held were updated too: none is left.
		require.False(t, slices.ContainsFunc(all, func(i InstanceState) bool { return !i.Updated }), "%+v", all)
	})
}

// A longer time or more stable instances never lead to fewer updated ones: no selection takes anything back.
func TestSelectionIsMonotonic_D23(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := drawPolicy(t)
		all := fleet(rapid.IntRange(1, 12).Draw(t, "instances"))
		updated := rapid.IntRange(0, len(all)).Draw(t, "updated")
		for n := range updated {
			all[n] = InstanceState{Updated: true, Stable: true, Since: noon.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "since")) * time.Minute)}
		}
		now := noon.Add(9 * time.Minute)
		earlier := Select(all, policy, now)
		later := Select(all, policy, now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes"))*time.Minute))
		require.Subset(t, later.Next, earlier.Next)
	})
}
