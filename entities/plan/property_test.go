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
		w, began, failed := p.Walker(nil), map[int]bool{}, map[int]bool{}
		var so []plan.Progress
		for {
			step := w.Step(plan.Room{Limit: limit, Commands: -1})
			so = progress(w, p)
			for _, n := range step.Begin {
				require.False(t, began[n], "%s begins twice", p.Nodes[n].String())
				began[n] = true
				for _, m := range p.Nodes[n].Needs {
					require.Equal(t, plan.Done, so[m].State)
				}
				for _, m := range p.Nodes[n].After {
					require.Contains(t, []plan.State{plan.Done, plan.Failed, plan.Blocked}, so[m].State)
				}
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
			became := plan.Done
			if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
				became, failed[n] = plan.Failed, true
			}
			w.Set(n, became)
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

// many are services with twenty aggregators.
func many(count int) (services []plan.Service) {
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

// walked walks a plan to its end, in which one node ends at a time.
func walked(p *plan.Plan, room plan.Room) *plan.Walker {
	w := p.Walker(nil)
	var running []int
	for {
		running = append(running, w.Step(room).Begin...)
		if len(running) == 0 {
			return w
		}
		w.Set(running[0], plan.Done)
		running = running[1:]
	}
}

// Walking a plan looks at each node and edge a few times, however many there are, and however many run at once.
func TestWalkLooksAtWhatChanged_E8(t *testing.T) {
	t.Parallel()
	for _, count := range []int{100, 1000, 4000} {
		p, err := plan.Build(many(count), plan.Scope{All: true})
		require.NoError(t, err)
		size := len(p.Nodes)
		for n := range p.Nodes {
			size += len(p.Nodes[n].Needs) + len(p.Nodes[n].After)
		}
		for _, room := range []plan.Room{{Commands: -1}, {Limit: 20, Commands: -1}} {
			p.Serial = nil
			for _, serial := range []bool{false, true} {
				if serial {
					p.Serial = serialOf(p)
				}
				w := walked(p, room)
				require.Equal(t, len(p.Nodes), w.Count(plan.Done))
				require.Less(t, w.Looked(), 5*size, "%d services, %d nodes and edges", count, size)
			}
		}
	}
}

// serialOf are all targets of a plan.
func serialOf(p *plan.Plan) (targets []string) {
	for n := range p.Nodes {
		targets = append(targets, p.Nodes[n].Target)
	}
	slices.Sort(targets)
	return slices.Compact(targets)[1:] // the first is none
}

// slowly is what a walk says next, found by looking at everything.
func slowly(p *plan.Plan, so []plan.Progress, room plan.Room) (begin []int) {
	failed := map[int]bool{}
	for n := range so {
		failed[n] = so[n].State == plan.Failed
	}
	below := downstream(p, failed)
	ready := func(n int) bool {
		for _, m := range p.Nodes[n].Needs {
			if so[m].State != plan.Done {
				return false
			}
		}
		for _, m := range p.Nodes[n].After {
			over := so[m].State != plan.Waiting && so[m].State != plan.Running && so[m].State != plan.Held
			if below[m] && so[m].State == plan.Waiting {
				over = true // it is blocked in this step
			}
			if !over {
				return false
			}
		}
		return so[n].State == plan.Waiting && !below[n]
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
	turn, running, busy := indexes(p), 0, map[string]bool{}
	slices.SortStableFunc(turn, func(a, b int) int { return rank(b) - rank(a) })
	for n := range so {
		if so[n].State == plan.Running {
			running++
			busy[p.Nodes[n].Target] = slices.Contains(p.Serial, p.Nodes[n].Target)
		}
	}
	for _, n := range turn {
		command := p.Nodes[n].Kind != plan.Deploy
		if room.Limit > 0 && running+room.Taken >= room.Limit {
			break
		}
		if !ready(n) || busy[p.Nodes[n].Target] || command && room.Commands == 0 {
			continue
		}
		if command {
			room.Commands--
		}
		begin = append(begin, n)
		running++
		busy[p.Nodes[n].Target] = slices.Contains(p.Serial, p.Nodes[n].Target)
	}
	return begin
}

// Whatever becomes of nodes, also what is held, put off, or to be done once more: what begins is what looking at everything says.
func TestWalkerBeginsWhatIsReady_E8_E10(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		services := drawn(t)
		services = services[:min(len(services), 12)]
		p, err := plan.Build(services, plan.Scope{All: true, Eager: rapid.Bool().Draw(t, "eager")})
		require.NoError(t, err)
		p.Serial = serial(services, rapid.SliceOf(rapid.SampledFrom([]string{"t", "u", "v"})).Draw(t, "together"))
		w := p.Walker(nil)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			room := plan.Room{
				Limit: rapid.IntRange(0, 4).Draw(t, "limit"), Taken: rapid.IntRange(0, 2).Draw(t, "taken"), Commands: rapid.IntRange(-1, 2).Draw(t, "commands"),
			}
			want := slowly(p, progress(w, p), room)
			require.Equal(t, want, w.Step(room).Begin)
			so := progress(w, p)
			require.Equal(t, plan.Letters(so), w.Letters())
			require.Equal(t, p.Undeployed(so), w.Undeployed())
			if rapid.IntRange(0, 9).Draw(t, "in another run") == 0 {
				w = p.Walker(p.Read(w.Letters()))
			}
			var live []int
			for n := range so {
				again := so[n].State == plan.Done && p.Nodes[n].Collects()
				if so[n].State == plan.Running || so[n].State == plan.Held || again {
					live = append(live, n)
				}
			}
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				if len(live) == 0 {
					break
				}
				n := rapid.SampledFrom(live).Draw(t, "node")
				into := []plan.State{plan.Done, plan.Done, plan.Failed, plan.Held, plan.Running, plan.Waiting}
				if w.So(n).State == plan.Done {
					into = []plan.State{plan.Done, plan.Waiting}
				}
				w.Set(n, rapid.SampledFrom(into).Draw(t, "becomes"))
				live = slices.DeleteFunc(live, func(m int) bool { return m == n })
			}
		}
	})
}

// Where there is no place for a command, the DEPLOY that is parked behind it on a serial target begins all the same.
func TestADeployPassesACommandWithoutAPlace_E8(t *testing.T) {
	t.Parallel()
	p := &plan.Plan{Serial: []string{"t"}, Nodes: []plan.Node{
		{Kind: plan.Deploy, Service: "first", Target: "t"},
		{Kind: plan.Sync, Service: "second", Target: "t"},
		{Kind: plan.Deploy, Service: "third", Target: "t"},
		{Kind: plan.Reconcile, Service: "second", Target: "t", Needs: []int{1}},
	}}
	w := p.Walker([]plan.Progress{{State: plan.Running}})
	require.Empty(t, w.Step(plan.Room{Commands: -1}).Begin, "one at a time")
	w.Set(0, plan.Done)
	require.Equal(t, []int{2}, w.Step(plan.Room{Commands: 0}).Begin)
	w.Set(2, plan.Done)
	require.Equal(t, []int{1}, w.Step(plan.Room{Commands: 1}).Begin)
}

// BenchmarkThousandServices builds a plan of a thousand services with twenty aggregators, and walks it to its end.
func BenchmarkThousandServices(b *testing.B) {
	services := many(1000)
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
			b.ReportMetric(float64(walked(p, plan.Room{Limit: 20, Commands: -1}).Looked()), "looks")
		}
	})
}
