package drain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/drain"
	"github.com/converge-engine/converge/entities/protocol"
)

// serviceOnBoth is a service with an instance on each of two runtimes, of which eu is the one that is drained.
func serviceOnBoth(name string, needs ...string) protocol.Placement {
	for n := range needs {
		needs[n] = "service/" + needs[n]
	}
	return protocol.Placement{Service: "service/" + name, Instances: []protocol.InstancePlacement{
		{Name: "prod/eu", Channel: "prod", Runtime: "eu", Running: true, Stable: true, RequiredServices: needs},
		{Name: "prod/us", Channel: "prod", Runtime: "us", Running: true, Stable: true, RequiredServices: needs},
	}}
}

func waits(d entities.Drain) map[string]string {
	out := map[string]string{}
	for _, t := range d.Permits {
		out[protocol.ShortID(t.Service)] = t.WaitsFor
	}
	return out
}

// Dependents leave first and return last, and the reason of each wait is given. A granted permit is not revoked.
func TestOrderOfADrain_A16(t *testing.T) {
	db, api, web := serviceOnBoth("shop/db"), serviceOnBoth("shop/api", "shop/db"), serviceOnBoth("shop/web", "shop/api", "other/elsewhere")
	all := []protocol.Placement{web, db, api}
	d := drain.Next("eu", entities.Drain{}, all)
	require.Equal(t, map[string]string{
		"shop/web": "", "shop/api": "once shop/web has left eu", "shop/db": "once shop/api has left eu",
	}, waits(d))
	require.False(t, d.Done)

	all[0].Instances[0].Running = false
	d = drain.Next("eu", d, all)
	require.Equal(t, map[string]string{"shop/web": "", "shop/api": "", "shop/db": "once shop/api has left eu"}, waits(d))
	all[2].Instances[0].Running = false
	all[1].Instances[0].KeepReason = "its channel is report-only"
	d = drain.Next("eu", d, all)
	require.True(t, d.Done, "no instance remains that can be removed")

	for n := range all {
		all[n].Instances[0].Stable = false
		all[n].Drains = []entities.Pause{{Scope: "runtime/eu", Drain: &entities.Drain{}}}
	}
	restore := drain.Next("eu", entities.Drain{Restoring: true}, all)
	require.Equal(t, map[string]string{"shop/db": "", "shop/api": "once shop/db is stable on eu", "shop/web": "once shop/api is stable on eu"}, waits(restore))
	all[1].Drains = nil
	require.Equal(t, waits(restore), waits(drain.Next("eu", restore, all)), "it was notified, but is not stable yet")
	all[1].Instances[0].Stable = true
	restore = drain.Next("eu", restore, all)
	require.Equal(t, map[string]string{"shop/db": "", "shop/api": "", "shop/web": "once shop/api is stable on eu"}, waits(restore))
	all[1].Instances[0].Stable = false
	restore = drain.Next("eu", restore, all)
	require.Equal(t, "", waits(restore)["shop/api"], "a permit is not revoked")
	require.False(t, restore.Done)
	require.True(t, drain.Next("eu", entities.Drain{Restoring: true, Force: true}, all).Done, "with force all return at once")
}

// Services that depend on each other move together, and never block the others.
func TestDrainOfADependencyCycle_A16(t *testing.T) {
	all := []protocol.Placement{serviceOnBoth("shop/a", "shop/b"), serviceOnBoth("shop/b", "shop/c"), serviceOnBoth("shop/c", "shop/a"), serviceOnBoth("shop/db"), serviceOnBoth("shop/d", "shop/a")}
	require.Equal(t, [][]string{
		{"service/shop/d", "service/shop/db"},
		{"service/shop/a", "service/shop/b", "service/shop/c"},
	}, drain.Order("eu", all))
}

// A service that does not answer may depend on any other: all wait for it, except with force.
func TestDrainWithAServiceThatDoesNotAnswer_A16(t *testing.T) {
	all := []protocol.Placement{serviceOnBoth("shop/a"), {Service: "service/shop/b", Err: "no worker"}}
	d := drain.Next("eu", entities.Drain{}, all)
	require.Equal(t, "once shop/b can be reached", waits(d)["shop/a"])
	require.Equal(t, "", waits(drain.Next("eu", entities.Drain{Force: true}, all))["shop/a"])
}

// A channel is named if its only instance is on the runtime, or if its other instances are on drained runtimes.
func TestOnlyOnARuntime_A16(t *testing.T) {
	a, b, c := serviceOnBoth("shop/a"), serviceOnBoth("shop/b"), serviceOnBoth("shop/c")
	require.Equal(t, "", drain.OnlyOn("eu", []protocol.Placement{a, b, c}))
	a.Instances = a.Instances[:1]
	b.Instances[1].Running = false
	c.Drains = []entities.Pause{{Scope: "runtime/us", Drain: &entities.Drain{}}}
	require.Equal(t, "shop/a prod, shop/b prod, shop/c prod", drain.OnlyOn("eu", []protocol.Placement{c, b, a}))
}
