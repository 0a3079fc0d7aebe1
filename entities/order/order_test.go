package order_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities/order"
)

// A job and a load balancer list each other: the job grows first, the balancer shrinks first.
func TestJobAndBalancer_D20_D21(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		job, balancer               order.Change
		jobDelayed, balancerDelayed bool
	}{
		{order.Change{Before: 2, After: 4}, order.Change{Before: 20, After: 40}, false, true},
		{order.Change{Before: 4, After: 2}, order.Change{Before: 40, After: 20}, true, false},
		{order.Change{Before: 4, After: 4}, order.Change{Before: 40, After: 20}, false, false}, // D20 a
		{order.Change{Before: 4, After: 2}, order.Change{Before: 20, After: 20}, false, false}, // the difference is gone
		{order.Change{Before: 2, After: 4}, order.Change{Before: 40, After: 20}, false, false}, // neither helps the other
		{order.Change{Before: 4, After: 2}, order.Change{Before: 20, After: 40}, false, false},
		{order.Change{Before: 0, After: 2}, order.Change{Before: 0, After: 20}, false, true}, // both are new
	} {
		t.Run(fmt.Sprint(row.job, " ", row.balancer), func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.jobDelayed, order.Delays(row.job, order.Growing, row.balancer), "job")
			require.Equal(t, row.balancerDelayed, order.Delays(row.balancer, order.Shrinking, row.job), "balancer")
		})
	}
}

// For any two changes and any declarations, both wait only if both are declared to go first in the same direction and
// both change in the other direction.
func TestNeverBothDelayed_D21(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.OneOf(rapid.Float64Range(0, 4), rapid.Map(rapid.IntRange(0, 3), func(n int) float64 { return float64(n) }))
		direction := rapid.SampledFrom([]order.Direction{order.Growing, order.Shrinking})
		a := order.Change{Before: capacity.Draw(t, "a before"), After: capacity.Draw(t, "a after")}
		b := order.Change{Before: capacity.Draw(t, "b before"), After: capacity.Draw(t, "b after")}
		first, others := direction.Draw(t, "a first"), direction.Draw(t, "b first")
		both := order.Delays(a, first, b) && order.Delays(b, others, a)
		together := a.Direction() == b.Direction() && a.Direction() != order.Same
		require.Equal(t, first == others && together && a.Direction() != first, both)
		if a.Direction() == order.Same { // D20 a
			require.False(t, order.Delays(a, first, b))
		}
		done := order.Change{Before: b.After, After: b.After}
		require.False(t, order.Delays(a, first, done), "the other is done but still blocks")
	})
}

func TestFirstWhen(t *testing.T) {
	t.Parallel()
	for declared, want := range map[string]order.Direction{"": order.Shrinking, "growing": order.Growing, "shrinking": order.Shrinking} {
		got, err := order.FirstWhen(declared)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := order.FirstWhen("Growing")
	require.EqualError(t, err, `first is "Growing"; expected growing or shrinking`)
}

func TestAhead_D22(t *testing.T) {
	t.Parallel()
	open := []order.OpenRelease{{Version: "v9", Incarnation: 9}, {Version: "v7", Incarnation: 7}}
	_, ahead := order.Ahead(6, open)
	require.False(t, ahead)
	o, ahead := order.Ahead(7, open)
	require.True(t, ahead, "of the same incarnation")
	require.Equal(t, "v7", o.Version)
	o, ahead = order.Ahead(9, open)
	require.True(t, ahead)
	require.Equal(t, "v9", o.Version)
}

// Each list is ordered from old to new, in the named way.
func TestCompareVersions_D22(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		how  order.How
		list []string
	}{
		{order.ByNumber, []string{"v1", "v2", "v9", "v10", "V11"}},
		{order.ByNumber, []string{"7", "41", "1764000000"}},
		{order.ByNumber, []string{"build-9", "build-10"}},
		{order.ByNumber, []string{"release-2.3", "release-2.11", "release-10.0"}},
		{order.BySemantic, []string{"1.2.3-alpha", "1.2.3-alpha.1", "1.2.3-beta.2", "1.2.3-beta.11", "1.2.3-rc9", "1.2.3-rc10", "1.2.3", "1.2.4", "1.10.0", "v2"}},
		{order.BySemantic, []string{"1.0.0-1", "1.0.0-x", "1.0.0"}},                          // a number is older than a word
		{order.BySemantic, []string{"1.0.18446744073709551616", "1.0.18446744073709551617"}}, // larger than a uint64
		{order.BySemantic, []string{"2026.9.1", "2026.11.0", "2026.11.2"}},
		{order.ByTime, []string{"2026-9-30", "2026-11-2", "2026-11-21"}},
		{order.ByTime, []string{"20261121", "2026-11-21T10:30:00+02:00", "2026-11-21T09:00:00Z", "20261121-093000", "20261122T000000Z"}},
	} {
		for i, a := range row.list {
			for j, b := range row.list {
				want, by := 0, row.how
				switch {
				case i < j:
					want = -1
				case i > j:
					want = 1
				default:
					by = order.BySame
				}
				c, how, ok := order.CompareVersions(a, b)
				require.True(t, ok, "%s against %s", a, b)
				require.Equal(t, want, c, "%s against %s", a, b)
				require.Equal(t, by, how, "%s against %s", a, b)
			}
		}
	}
	for _, pair := range [][2]string{
		{"nightly-7", "v1"}, {"a1b2c3d", "b1b2c3d"}, {"ab12345", "ab99999"}, {"release", "release-2"}, {"build-11a", "build-11b"}, {"2026-11-21", "v8"}, {"blue", "green"},
	} {
		for _, p := range [][2]string{pair, {pair[1], pair[0]}} {
			_, _, ok := order.CompareVersions(p[0], p[1])
			require.False(t, ok, "%s against %s", p[0], p[1])
		}
	}
	c, how, ok := order.CompareVersions("v1.2", "1.2.0+build.7")
	require.True(t, ok)
	require.Zero(t, c)
	require.Equal(t, order.BySemantic, how)
	require.Equal(t, "v7", order.BaseVersion("v7-i42"))
	require.Equal(t, "v7-i42x", order.BaseVersion("v7-i42x"))
}

// For any versions the order is antisymmetric, and transitive among those that are ordered in the same way.
func TestOrderable_D22(t *testing.T) {
	for v, want := range map[string]bool{"v8": true, "build-10": true, "1.2.0-rc.1": true, "release-2.11": true, "2026-11-21": true, "nightly": false, "4f2a91c": false} {
		require.Equal(t, want, order.Orderable(v), v)
	}
}

func TestCompareVersionsIsAnOrder_D22(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.OneOf(rapid.StringMatching(`v?[0-2]{1,2}(\.[0-2]){0,2}(-[ab0-2]{1,2}(\.[a0-2]){0,2})?`), rapid.StringMatching(`[a-b0-2.-]{1,5}`), rapid.StringMatching(`2026-[12]-1[0-2]`))
		a, b, c := version.Draw(t, "a"), version.Draw(t, "b"), version.Draw(t, "c")
		ab, how, ok := order.CompareVersions(a, b)
		ba, back, too := order.CompareVersions(b, a)
		require.Equal(t, ok, too)
		require.Equal(t, how, back)
		require.Equal(t, ab, -ba)
		bc, next, _ := order.CompareVersions(b, c)
		ac, last, _ := order.CompareVersions(a, c)
		if ok && how == next && how == last && ab <= 0 && bc <= 0 {
			require.LessOrEqual(t, ac, 0)
		}
	})
}
