package entities

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Gate is a kind of entity that nothing else here has heard of: a feature flag that follows the
// version (A6).
type gate struct{ flag string }

func (g gate) Name() string       { return "Gate/checkout" }
func (g gate) Children() []Entity { return nil }
func (g gate) Fetch(target *Target) Current {
	return Current{Known: true, Active: []string{g.flag}, Stable: target != nil && g.flag == target.FullVersion}
}

func (g gate) HasWork(target *Target, current Current) (bool, string) {
	return target != nil && !current.Stable, "flag is at " + ShownVersions(current.Active)
}

func (g gate) Apply(target *Target, cause string) *Operation {
	return &Operation{Kind: "flip", Target: *target, Cause: cause}
}

func TestANewKindOfEntityWorksA6(t *testing.T) {
	v2 := &Target{FullVersion: "v2"}
	_, op := Work(gate{"v1"}, v2)
	require.Equal(t, &Operation{Kind: "flip", Target: *v2, Cause: "flag is at v1"}, op)
	_, op = Work(gate{"v2"}, v2)
	require.Nil(t, op)
	_, op = Work(gate{"v1"}, nil)
	require.Nil(t, op)
}

// A2–A4: objects are only read, an instance is applied, a service rolls up.
func TestEntities(t *testing.T) {
	w := newWorld()
	w.channel("staging", func(*ChannelSpec) {})
	w.channel("production", func(c *ChannelSpec) { c.Conditions = []Condition{stableAfter("staging")} })
	w.publish()
	_, err := w.release("v1", "")
	require.NoError(t, err)
	w.obey()
	service := ServiceEntity{w.s}
	require.Equal(t, Current{Known: true, Stable: true, Active: []string{"v1"}}, service.Fetch(nil))

	w.look("production", running("v0", ObjectPending), true)
	require.Equal(t, Current{Known: true, Active: []string{"v0", "v1"}, Reason: "production: web at another version"}, service.Fetch(nil))
	var names []string
	var visit func(e Entity)
	visit = func(e Entity) {
		names = append(names, e.Name())
		for _, child := range e.Children() {
			visit(child)
		}
	}
	visit(service)
	require.Equal(t, "Service/web ServiceInstance/staging RuntimeObject/fake/web ServiceInstance/production RuntimeObject/fake/web", strings.Join(names, " "))

	target := w.s.Instances["production"].Target
	_, op := Work(service, target)
	require.Nil(t, op, "A4")
	production := service.Children()[1]
	_, op = Work(production.Children()[0], target)
	require.Nil(t, op, "A2")
	_, op = Work(production, target)
	require.Equal(t, &Operation{Kind: "apply", Target: *target, Cause: "web at another version"}, op, "A3")
}

// C5, by table: what an object says, and whether that is stable at v2.
func TestObjectIsStableC5(t *testing.T) {
	version := func(v string, active, drifted bool) ObjectVersion {
		return ObjectVersion{Version: v, Active: active, Drifted: drifted}
	}
	for _, row := range []struct {
		name   string
		object Object
		want   Current
	}{
		{
			"stable",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("v2", true, false)}},
			Current{Active: []string{"v2"}, Stable: true},
		},
		{
			"an old version that is not active does not count",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("v1", false, true), version("v2", true, false)}},
			Current{Active: []string{"v2"}, Stable: true},
		},
		{
			"two active versions",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("v1", true, false), version("v2", true, false)}},
			Current{Active: []string{"v1", "v2"}, Reason: "web 2 active versions"},
		},
		{
			"drifted",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("v2", true, true)}},
			Current{Active: []string{"v2"}, Drifted: true, Reason: "web drifted"},
		},
		{
			"still pending, with replicas",
			Object{Status: ObjectPending, Versions: []ObjectVersion{{Version: "v2", Active: true, AvailableReplicas: 1, TargetReplicas: 3}}},
			Current{Active: []string{"v2"}, Reason: "web 1 of 3 replicas"},
		},
		{
			"target replicas are information only",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{{Version: "v2", Active: true, AvailableReplicas: 1, TargetReplicas: 3}}},
			Current{Active: []string{"v2"}, Stable: true},
		},
		{
			"an unknown version",
			Object{Status: ObjectSucceeded, Versions: []ObjectVersion{version("", true, false)}},
			Current{Active: []string{"?"}, Reason: "web at another version"},
		},
		{"absent", Object{Status: ObjectSucceeded}, Current{Reason: "web not running"}},
		{
			"failed at the target",
			Object{Status: ObjectFailed, Message: "OOM", Versions: []ObjectVersion{version("v2", false, false)}},
			Current{Failed: "web FAILED: OOM", Reason: "web FAILED: OOM"},
		},
		{
			"failed at what was there before",
			Object{Status: ObjectFailed, Message: "OOM", Versions: []ObjectVersion{version("v1", true, false)}},
			Current{Active: []string{"v1"}, Reason: "web FAILED: OOM"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.object.Name = "web"
			row.want.Known = true
			require.Equal(t, row.want, RuntimeObject{row.object}.Fetch(&Target{FullVersion: "v2"}))
		})
	}
}

func TestOrderA1(t *testing.T) {
	needs := map[string][]string{"web": {"routes", "db"}, "routes": {"db"}, "db": nil, "jobs": nil}
	order, cycle := Order([]string{"jobs", "web", "routes", "db"}, func(n string) []string { return needs[n] })
	require.Nil(t, cycle)
	require.Equal(t, []string{"jobs", "db", "routes", "web"}, order)

	needs["db"] = []string{"web"}
	order, cycle = Order([]string{"jobs", "web", "routes", "db"}, func(n string) []string { return needs[n] })
	require.Nil(t, order)
	require.Equal(t, []string{"web", "routes", "db", "web"}, cycle)

	_, cycle = Order([]string{"a"}, func(string) []string { return []string{"a"} })
	require.Equal(t, []string{"a", "a"}, cycle, "a self-requirement")
}

// A1: an order respects every need, or there is a cycle and it is one.
func TestOrderRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"a", "b", "c", "d", "e", "f"}
		needs := map[string][]string{}
		for _, n := range nodes {
			needs[n] = rapid.SliceOfNDistinct(rapid.SampledFrom(nodes), 0, 2, rapid.ID).Draw(t, n)
		}
		order, cycle := Order(nodes, func(n string) []string { return needs[n] })
		if cycle != nil {
			require.Equal(t, cycle[0], cycle[len(cycle)-1])
			for i := range cycle[1:] {
				require.Contains(t, needs[cycle[i]], cycle[i+1])
			}
			return
		}
		require.ElementsMatch(t, nodes, order)
		done := map[string]bool{}
		for _, n := range order {
			for _, m := range needs[n] {
				require.True(t, done[m], "%s before %s", n, m)
			}
			done[n] = true
		}
	})
}
