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

// randomServices is an application in which services require only those before them, in an order that is not kept.
func randomServices(t *rapid.T) []plan.Service {
	all := make([]plan.Service, rapid.IntRange(1, 12).Draw(t, "services"))
	name := func(n int) string { return fmt.Sprintf("s%02d", n) }
	subset := func(n int, label string) (names []string) {
		for n := range n {
			if rapid.IntRange(0, 3).Draw(t, label) == 0 {
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
		s.Requires, s.ReconcilesAfter, s.Integrations = subset(n, "requires"), subset(n, "reconciles after"), subset(len(all), "integrations")
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

func randomScope(t *rapid.T, services []plan.Service) plan.Scope {
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
	blocked := map[int]bool{}
	for size := -1; size != len(blocked); {
		size = len(blocked)
		for n := range p.Nodes {
			if !failed[n] && slices.ContainsFunc(p.Nodes[n].Needs, func(m int) bool { return failed[m] || blocked[m] }) {
				blocked[n] = true
			}
		}
	}
	return blocked
}

// For any run of a plan: no node begins before the nodes that it needs succeeded and those that it comes after ended; a serial target runs
// one node at a time, and no more run than the limit; only nodes behind a failure never begin; and the run ends.
func TestWalk_E8_E9_E10(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		services := randomServices(t)
		p, err := plan.Build(services, randomScope(t, services))
		require.NoError(t, err)
		p.Serial = serial(services, rapid.SliceOf(rapid.SampledFrom([]string{"t", "u", "v"})).Draw(t, "together"))
		limit := rapid.IntRange(0, 3).Draw(t, "limit")
		w, began, failed := p.Walker(nil), map[int]bool{}, map[int]bool{}
		var states []plan.Progress
		for {
			step := w.Step(plan.Capacity{Limit: limit, Commands: -1})
			states = progressOf(w, p)
			for _, n := range step.Begin {
				require.False(t, began[n], "%s begins twice", p.Nodes[n].String())
				began[n] = true
				for _, m := range p.Nodes[n].Needs {
					require.Equal(t, plan.Done, states[m].State)
				}
				for _, m := range p.Nodes[n].After {
					require.Contains(t, []plan.State{plan.Done, plan.Failed, plan.Blocked}, states[m].State)
				}
			}
			var running []int
			busy := map[string]bool{}
			for n := range states {
				if states[n].State == plan.Running {
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
			outcome := plan.Done
			if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
				outcome, failed[n] = plan.Failed, true
			}
			w.Set(n, outcome)
		}
		blocked := downstream(p, failed)
		for n := range states {
			require.Equal(t, !blocked[n], began[n], p.Nodes[n].String())
			if blocked[n] {
				require.Equal(t, plan.Blocked, states[n].State)
				require.True(t, failed[states[n].Cause])
				require.Contains(t, p.Downstream(states[n].Cause), n)
			}
		}
	})
}

// A plan does not depend on the order of the services. A pruned plan has nodes of the whole plan, and its edges if both ends remain. No
// changed service is missing.
func TestBuild_E7_E13(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		services := randomServices(t)
		scope := randomScope(t, services)
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
		kept := names(p, indexRange(p))
		for n := range p.Nodes {
			want, known := edges[p.Nodes[n].String()]
			require.True(t, known)
			want = slices.DeleteFunc(want, func(name string) bool { return !slices.Contains(kept, name) })
			require.Equal(t, want, names(p, slices.Concat(p.Nodes[n].Needs, p.Nodes[n].After)))
		}
		for _, s := range services {
			for _, target := range s.Targets {
				deploy := "DEPLOY " + s.Name + "@" + target
				affected := scope.All || slices.Contains(scope.Changed, s.Name) ||
					slices.ContainsFunc(s.Integrations, func(o string) bool { return slices.Contains(scope.Changed, o) })
				require.Equal(t, affected, slices.Contains(kept, deploy), deploy)
			}
		}
	})
}

func indexRange(p *plan.Plan) (all []int) {
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

// A cycle is found if an application has one, and only then.
func TestCycle_E6(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		services := randomServices(t)
		from := rapid.IntRange(0, len(services)-1).Draw(t, "from")
		length := rapid.IntRange(1, len(services)).Draw(t, "length")
		for n := range length { // a cycle through some of them
			s := &services[(from+n)%len(services)]
			s.Requires = append(s.Requires, services[(from+(n+1)%length)%len(services)].Name)
		}
		_, err := plan.Build(services, randomScope(t, services))
		var cycle *plan.CycleError
		require.ErrorAs(t, err, &cycle)
		require.Equal(t, cycle.Path[0], cycle.Path[len(cycle.Path)-1])
	})
}

// manyServices are services with twenty aggregators.
func manyServices(count int) (services []plan.Service) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range count {
		s := plan.Service{Name: fmt.Sprintf("s%04d", n), Targets: []string{fmt.Sprintf("t%02d", r.IntN(50))}, Reconciles: n%2 == 0, SetupCallback: n%10 == 0, DNS: true}
		for range min(n, r.IntN(4)) {
			s.Requires = append(s.Requires, fmt.Sprintf("s%04d", r.IntN(n)))
		}
		if n%(count/20) == 0 {
			s.Aggregator = plan.Sync
		}
		services = append(services, s)
	}
	return services
}

// walkToEnd walks a plan to its end, in which one node ends at a time.
func walkToEnd(p *plan.Plan, capacity plan.Capacity) *plan.Walker {
	w := p.Walker(nil)
	var running []int
	for {
		running = append(running, w.Step(capacity).Begin...)
		if len(running) == 0 {
			return w
		}
		w.Set(running[0], plan.Done)
		running = running[1:]
	}
}

// A walk visits each node and edge a few times, for any number of nodes and any limit.
func TestWalkVisitsEachNodeAFewTimes_E8(t *testing.T) {
	t.Parallel()
	for _, count := range []int{100, 1000, 4000} {
		p, err := plan.Build(manyServices(count), plan.Scope{All: true})
		require.NoError(t, err)
		size := len(p.Nodes)
		for n := range p.Nodes {
			size += len(p.Nodes[n].Needs) + len(p.Nodes[n].After)
		}
		for _, capacity := range []plan.Capacity{{Commands: -1}, {Limit: 20, Commands: -1}} {
			p.Serial = nil
			for _, serial := range []bool{false, true} {
				if serial {
					p.Serial = allTargets(p)
				}
				w := walkToEnd(p, capacity)
				require.Equal(t, len(p.Nodes), w.Count(plan.Done))
				require.Less(t, w.Visits(), 5*size, "%d services, %d nodes and edges", count, size)
			}
		}
	}
}

// allTargets are all targets of a plan.
func allTargets(p *plan.Plan) (targets []string) {
	for n := range p.Nodes {
		targets = append(targets, p.Nodes[n].Target)
	}
	slices.Sort(targets)
	return slices.Compact(targets)[1:] // the first is none
}

// expectedBegin returns the next nodes of a walk, computed from all nodes.
func expectedBegin(p *plan.Plan, states []plan.Progress, capacity plan.Capacity) (begin []int) {
	failed := map[int]bool{}
	for n := range states {
		failed[n] = states[n].State == plan.Failed
	}
	blocked := downstream(p, failed)
	ready := func(n int) bool {
		for _, m := range p.Nodes[n].Needs {
			if states[m].State != plan.Done {
				return false
			}
		}
		for _, m := range p.Nodes[n].After {
			over := states[m].State != plan.Waiting && states[m].State != plan.Running && states[m].State != plan.Held
			if blocked[m] && states[m].State == plan.Waiting {
				over = true // it is blocked in this step
			}
			if !over {
				return false
			}
		}
		return states[n].State == plan.Waiting && !blocked[n]
	}
	var rank func(n int) int
	ranks := map[int]int{}
	rank = func(n int) int {
		if ranks[n] > 0 {
			return ranks[n]
		}
		ranks[n] = 1
		for m := range p.Nodes {
			if slices.Contains(p.Nodes[m].Needs, n) || slices.Contains(p.Nodes[m].After, n) {
				ranks[n] = max(ranks[n], 1+rank(m))
			}
		}
		return ranks[n]
	}
	order, running, busy := indexRange(p), 0, map[string]bool{}
	slices.SortStableFunc(order, func(a, b int) int { return rank(b) - rank(a) })
	for n := range states {
		if states[n].State == plan.Running {
			running++
			busy[p.Nodes[n].Target] = slices.Contains(p.Serial, p.Nodes[n].Target)
		}
	}
	for _, n := range order {
		command := p.Nodes[n].Kind != plan.Deploy
		if capacity.Limit > 0 && running+capacity.Used >= capacity.Limit {
			break
		}
		if !ready(n) || busy[p.Nodes[n].Target] || command && capacity.Commands == 0 {
			continue
		}
		if command {
			capacity.Commands--
		}
		begin = append(begin, n)
		running++
		busy[p.Nodes[n].Target] = slices.Contains(p.Serial, p.Nodes[n].Target)
	}
	return begin
}

// For any states of nodes, also held, delayed or repeated ones, the walker begins the same nodes as a search of all nodes.
func TestWalkerBeginsReadyNodes_E8_E10(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		services := randomServices(t)
		services = services[:min(len(services), 12)]
		p, err := plan.Build(services, plan.Scope{All: true, Eager: rapid.Bool().Draw(t, "eager")})
		require.NoError(t, err)
		p.Serial = serial(services, rapid.SliceOf(rapid.SampledFrom([]string{"t", "u", "v"})).Draw(t, "together"))
		w := p.Walker(nil)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			capacity := plan.Capacity{
				Limit: rapid.IntRange(0, 4).Draw(t, "limit"), Used: rapid.IntRange(0, 2).Draw(t, "taken"), Commands: rapid.IntRange(-1, 2).Draw(t, "commands"),
			}
			want := expectedBegin(p, progressOf(w, p), capacity)
			require.Equal(t, want, w.Step(capacity).Begin)
			states := progressOf(w, p)
			require.Equal(t, plan.Letters(states), w.Letters())
			require.Equal(t, p.Undeployed(states), w.Undeployed())
			if rapid.IntRange(0, 9).Draw(t, "in another run") == 0 {
				w = p.Walker(p.ReadLetters(w.Letters()))
			}
			var changeable []int
			for n := range states {
				collected := states[n].State == plan.Done && p.Nodes[n].Collects()
				if states[n].State == plan.Running || states[n].State == plan.Held || collected {
					changeable = append(changeable, n)
				}
			}
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				if len(changeable) == 0 {
					break
				}
				n := rapid.SampledFrom(changeable).Draw(t, "node")
				targets := []plan.State{plan.Done, plan.Done, plan.Failed, plan.Held, plan.Running, plan.Waiting}
				if w.Progress(n).State == plan.Done {
					targets = []plan.State{plan.Done, plan.Waiting}
				}
				w.Set(n, rapid.SampledFrom(targets).Draw(t, "becomes"))
				changeable = slices.DeleteFunc(changeable, func(m int) bool { return m == n })
			}
		}
	})
}

// If there is no capacity for a command, the DEPLOY that is parked behind it on a serial target still begins.
func TestADeployBeginsBeforeACommandWithoutCapacity_E8(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Serial: []string{"t"}, Nodes: []plan.Node{
		{Kind: plan.Deploy, Service: "first", Target: "t"},
		{Kind: plan.Sync, Service: "second", Target: "t"},
		{Kind: plan.Deploy, Service: "third", Target: "t"},
		{Kind: plan.Reconcile, Service: "second", Target: "t", Needs: []int{1}},
	}}
	w := p.Walker([]plan.Progress{{State: plan.Running}})
	require.Empty(t, w.Step(plan.Capacity{Commands: -1}).Begin, "one at a time")
	w.Set(0, plan.Done)
	require.Equal(t, []int{2}, w.Step(plan.Capacity{Commands: 0}).Begin)
	w.Set(2, plan.Done)
	require.Equal(t, []int{1}, w.Step(plan.Capacity{Commands: 1}).Begin)
}

// BenchmarkThousandServices builds a plan of a thousand services with twenty aggregators, and walks it to its end.
func BenchmarkThousandServices(b *testing.B) {
	services := manyServices(1000)
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
			b.ReportMetric(float64(walkToEnd(p, plan.Capacity{Limit: 20, Commands: -1}).Visits()), "looks")
		}
	})
}
