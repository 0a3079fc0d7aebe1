package drain_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/drain"
	"github.com/converge-engine/converge/entities/protocol"
)

// one is a service with an instance on each of two runtimes, of which eu is the one that is drained.
func one(name string, needs ...string) protocol.Placed {
	for n := range needs {
		needs[n] = "service/" + needs[n]
	}
	return protocol.Placed{Service: "service/" + name, Instances: []protocol.PlacedInstance{
		{Name: "prod/eu", Channel: "prod", Runtime: "eu", There: true, Stable: true, Needs: needs},
		{Name: "prod/us", Channel: "prod", Runtime: "us", There: true, Stable: true, Needs: needs},
	}}
}

func turns(d entities.Drain) map[string]string {
	out := map[string]string{}
	for _, t := range d.Turns {
		out[protocol.ShortID(t.Service)] = t.Waits
	}
	return out
}

// Who depends on others leaves first, and comes back last; what each waits for is said. A turn that was given is not taken back.
func TestOrderOfADrain_A16(t *testing.T) {
	db, api, web := one("shop/db"), one("shop/api", "shop/db"), one("shop/web", "shop/api", "other/elsewhere")
	all := []protocol.Placed{web, db, api}
	d := drain.Next("eu", entities.Drain{}, all)
	require.Equal(t, map[string]string{
		"shop/web": "", "shop/api": "once shop/web has left eu", "shop/db": "once shop/api has left eu",
	}, turns(d))
	require.False(t, d.Done)

	all[0].Instances[0].There = false
	d = drain.Next("eu", d, all)
	require.Equal(t, map[string]string{"shop/web": "", "shop/api": "", "shop/db": "once shop/api has left eu"}, turns(d))
	all[2].Instances[0].There = false
	all[1].Instances[0].Stays = "its channel is report-only"
	d = drain.Next("eu", d, all)
	require.True(t, d.Done, "no instance remains that can be removed")

	for n := range all {
		all[n].Instances[0].Stable = false
		all[n].Drains = []entities.Pause{{Scope: "runtime/eu", Drain: &entities.Drain{}}}
	}
	up := drain.Next("eu", entities.Drain{Up: true}, all)
	require.Equal(t, map[string]string{"shop/db": "", "shop/api": "once shop/db is stable on eu", "shop/web": "once shop/api is stable on eu"}, turns(up))
	all[1].Drains = nil
	require.Equal(t, turns(up), turns(drain.Next("eu", up, all)), "it was notified, but is not stable yet")
	all[1].Instances[0].Stable = true
	up = drain.Next("eu", up, all)
	require.Equal(t, map[string]string{"shop/db": "", "shop/api": "", "shop/web": "once shop/api is stable on eu"}, turns(up))
	all[1].Instances[0].Stable = false
	up = drain.Next("eu", up, all)
	require.Equal(t, "", turns(up)["shop/api"], "a permit is not revoked")
	require.False(t, up.Done)
	require.True(t, drain.Next("eu", entities.Drain{Up: true, Force: true}, all).Done, "with force all return at once")
}

// Services that wait for each other go together, and hold nobody up for ever.
func TestDrainOfACircle_A16(t *testing.T) {
	all := []protocol.Placed{one("shop/a", "shop/b"), one("shop/b", "shop/c"), one("shop/c", "shop/a"), one("shop/db"), one("shop/d", "shop/a")}
	require.Equal(t, [][]string{
		{"service/shop/d", "service/shop/db"},
		{"service/shop/a", "service/shop/b", "service/shop/c"},
	}, drain.Order("eu", all))
}

// What could not be asked may depend on anything: all wait for it, but by force.
func TestDrainWithAServiceThatDoesNotAnswer_A16(t *testing.T) {
	all := []protocol.Placed{one("shop/a"), {Service: "service/shop/b", Err: "no worker"}}
	d := drain.Next("eu", entities.Drain{}, all)
	require.Equal(t, "once shop/b can be reached", turns(d)["shop/a"])
	require.Equal(t, "", turns(drain.Next("eu", entities.Drain{Force: true}, all))["shop/a"])
}

// The only instance of a channel is named, and so is one whose others are on runtimes that are drained too.
func TestAloneOnARuntime_A16(t *testing.T) {
	a, b, c := one("shop/a"), one("shop/b"), one("shop/c")
	require.Equal(t, "", drain.Alone("eu", []protocol.Placed{a, b, c}))
	a.Instances = a.Instances[:1]
	b.Instances[1].There = false
	c.Drains = []entities.Pause{{Scope: "runtime/us", Drain: &entities.Drain{}}}
	require.Equal(t, "shop/a prod, shop/b prod, shop/c prod", drain.Alone("eu", []protocol.Placed{c, b, a}))
}
