package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities/plan"
)

// drawn is an application in which services require only those before them, in an order that is then lost.
func drawn(t *rapid.T) []plan.Service {
	all := make([]plan.Service, rapid.IntRange(1, 12).Draw(t, "services"))
	name := func(n int) string { return fmt.Sprintf("s%02d", n) }
	some := func(of int, what string) (names []string) {
		for n := range of {
			if rapid.IntRange(0, 3).Draw(t, what) == 0 {
				names = append(names, name(n))
			}
		}
		return names
	}
	var aggregators []string
	for n := range all {
		s := &all[n]
		s.Name = name(n)
		for _, target := range []string{"t", "u", "v"} {
			if rapid.IntRange(0, 2).Draw(t, "target") == 0 {
				s.Targets = append(s.Targets, target)
			}
		}
		if len(s.Targets) == 0 {
			s.Targets = []string{"w"}
		}
		s.Requires, s.ReconcilesAfter, s.Integrations = some(n, "requires"), some(n, "reconciles after"), some(len(all), "integrations")
		s.SetupCallback, s.Reconciles, s.DNS = rapid.Bool().Draw(t, "callback"), rapid.Bool().Draw(t, "reconciles"), rapid.Bool().Draw(t, "dns")
		if s.Aggregator = rapid.SampledFrom([]plan.Kind{"", "", plan.Sync, plan.Redeploy}).Draw(t, "aggregator"); s.Aggregator != "" {
			aggregators = append(aggregators, s.Name)
		}
	}
	for n := range all {
		for _, a := range aggregators {
			if rapid.Bool().Draw(t, "feeds") {
				all[n].Feeds = append(all[n].Feeds, a)
			}
		}
	}
	return rapid.Permutation(all).Draw(t, "order")
}

func scoped(t *rapid.T, services []plan.Service) plan.Scope {
	scope := plan.Scope{All: rapid.Bool().Draw(t, "all"), Eager: rapid.Bool().Draw(t, "eager")}
	for _, s := range services {
		if !scope.All && rapid.IntRange(0, 2).Draw(t, "changed") == 0 {
			scope.Changed = append(scope.Changed, s.Name)
		}
	}
	return scope
}

// downstream are the nodes that need one of these, directly or not: found the slow way.
func downstream(p *plan.Plan, failed map[int]bool) map[int]bool {
	below := map[int]bool{}
	for before := -1; before != len(below); {
		before = len(below)
		for n := range p.Nodes {
			if !failed[n] && slices.ContainsFunc(p.Nodes[n].Needs, func(m int) bool { return failed[m] || below[m] }) {
				below[n] = true
			}
		}
	}
	return below
}

// However a plan goes: no node begins before what it needs succeeded and what it comes after ended; a serial target has one at a time, and
// there are never more than may be; what never begins is what is behind a failure; and it ends.
func TestWalk_E8_E9_E10(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		services := drawn(t)
		p, err := plan.Build(services, scoped(t, services))
		require.NoError(t, err)
		p.Serial = serial(services, rapid.SliceOf(rapid.SampledFrom([]string{"t", "u", "v"})).Draw(t, "together"))
		limit := rapid.IntRange(0, 3).Draw(t, "limit")
		so, began, failed := make([]plan.Progress, len(p.Nodes)), map[int]bool{}, map[int]bool{}
		for {
			step := p.Walk(so, limit)
			for _, n := range step.Begin {
				require.False(t, began[n], "%s begins twice", p.Nodes[n].String())
				began[n] = true
				for _, m := range p.Nodes[n].Needs {
					require.Equal(t, plan.Done, so[m].State)
				}
				for _, m := range p.Nodes[n].After {
					require.Contains(t, []plan.State{plan.Done, plan.Failed, plan.Blocked}, so[m].State)
				}
				so[n].State = plan.Running
			}
			var running []int
			busy := map[string]bool{}
			for n := range so {
				if so[n].State == plan.Running {
					running = append(running, n)
					target := p.Nodes[n].Target
					require.False(t, busy[target], "two on %s", target)
					busy[target] = slices.Contains(p.Serial, target)
				}
			}
			require.Equal(t, len(running) == 0, step.Over)
			if step.Over {
				break
			}
			require.True(t, limit == 0 || len(running) <= limit)
			n := rapid.SampledFrom(running).Draw(t, "ends")
			if so[n].State = plan.Done; rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
				so[n].State, failed[n] = plan.Failed, true
			}
		}
		below := downstream(p, failed)
		for n := range so {
			require.Equal(t, !below[n], began[n], p.Nodes[n].String())
			if below[n] {
				require.Equal(t, plan.Blocked, so[n].State)
				require.True(t, failed[so[n].Cause])
				require.Contains(t, p.Downstream(so[n].Cause), n)
			}
		}
	})
}

// A plan is the same whatever the order in which services are named; a pruned one has the whole one's nodes, and its edges where both
// ends are left; and of what changed nothing is missing.
func TestBuild_E7_E13(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		services := drawn(t)
		scope := scoped(t, services)
		p, err := plan.Build(services, scope)
		require.NoError(t, err)
		other, err := plan.Build(rapid.Permutation(services).Draw(t, "another order"), scope)
		require.NoError(t, err)
		one, err := p.Bytes()
		require.NoError(t, err)
		two, err := other.Bytes()
		require.NoError(t, err)
		require.Equal(t, string(one), string(two))

		whole, err := plan.Build(services, plan.Scope{All: true, Eager: scope.Eager})
		require.NoError(t, err)
		edges := map[string][]string{}
		for n := range whole.Nodes {
			edges[whole.Nodes[n].String()] = names(whole, slices.Concat(whole.Nodes[n].Needs, whole.Nodes[n].After))
		}
		left := names(p, indexes(p))
		for n := range p.Nodes {
			want, known := edges[p.Nodes[n].String()]
			require.True(t, known)
			want = slices.DeleteFunc(want, func(name string) bool { return !slices.Contains(left, name) })
			require.Equal(t, want, names(p, slices.Concat(p.Nodes[n].Needs, p.Nodes[n].After)))
		}
		for _, s := range services {
			for _, target := range s.Targets {
				deploy := "DEPLOY " + s.Name + "@" + target
				near := scope.All || slices.Contains(scope.Changed, s.Name) ||
					slices.ContainsFunc(s.Integrations, func(o string) bool { return slices.Contains(scope.Changed, o) })
				require.Equal(t, near, slices.Contains(left, deploy), deploy)
			}
		}
	})
}

func indexes(p *plan.Plan) (all []int) {
	for n := range p.Nodes {
		all = append(all, n)
	}
	return all
}

func names(p *plan.Plan, nodes []int) []string {
	all := []string{}
	for _, n := range nodes {
		all = append(all, p.Nodes[n].String())
	}
	return all
}

// A cycle that is put into an application is found, and only then one.
func TestCycle_E6(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		services := drawn(t)
		from := rapid.IntRange(0, len(services)-1).Draw(t, "from")
		length := rapid.IntRange(1, len(services)).Draw(t, "length")
		for n := range length { // a ring through some of them
			s := &services[(from+n)%len(services)]
			s.Requires = append(s.Requires, services[(from+(n+1)%length)%len(services)].Name)
		}
		_, err := plan.Build(services, scoped(t, services))
		var cycle *plan.CycleError
		require.ErrorAs(t, err, &cycle)
		require.Equal(t, cycle.Path[0], cycle.Path[len(cycle.Path)-1])
	})
}

// BenchmarkThousandServices builds a plan of a thousand services with twenty aggregators, and walks it to its end.
func BenchmarkThousandServices(b *testing.B) {
	var services []plan.Service
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 1000 {
		s := plan.Service{Name: fmt.Sprintf("s%04d", n), Targets: []string{fmt.Sprintf("t%02d", r.IntN(50))}, Reconciles: n%2 == 0, SetupCallback: n%10 == 0, DNS: true}
		for range min(n, r.IntN(4)) {
			s.Requires = append(s.Requires, fmt.Sprintf("s%04d", r.IntN(n)))
		}
		if n%50 == 0 {
			s.Aggregator = plan.Sync
		}
		services = append(services, s)
	}
	b.Run("build", func(b *testing.B) {
		for b.Loop() {
			p, err := plan.Build(services, plan.Scope{All: true})
			require.NoError(b, err)
			data, err := p.Bytes()
			require.NoError(b, err)
			b.ReportMetric(float64(len(data)), "bytes")
			b.ReportMetric(float64(len(p.Nodes)), "nodes")
		}
	})
	b.Run("walk", func(b *testing.B) {
		p, err := plan.Build(services, plan.Scope{All: true})
		require.NoError(b, err)
		for b.Loop() {
			so := make([]plan.Progress, len(p.Nodes))
			steps := 0
			for {
				step := p.Walk(so, 20)
				if steps++; step.Over && len(step.Begin) == 0 {
					break
				}
				for _, n := range step.Begin {
					so[n].State = plan.Done
				}
			}
			b.ReportMetric(float64(steps), "steps")
		}
	})
}
