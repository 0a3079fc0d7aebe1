package plan

import (
	"cmp"
	"slices"
)

// Build builds the plan. The error is an *UnknownError, an *AggregatorError or a *CycleError, for any scope.
func Build(services []Service, scope Scope) (*Plan, error) {
	b := builder{scope: scope, services: map[string]*Service{}}
	for n := range services {
		b.names = append(b.names, services[n].Name)
		b.services[services[n].Name] = &services[n]
	}
	slices.Sort(b.names)
	if err := b.check(); err != nil {
		return nil, err
	}
	b.addNodes()
	b.addEdges()
	if path := b.cycle(); path != nil {
		return nil, &CycleError{Path: path}
	}
	return b.pruned(), nil
}

// builder builds the whole plan and then prunes it, so that it finds errors in unchanged parts too.
type builder struct {
	scope    Scope
	services map[string]*Service
	names    []string // sorted
	nodes    []Node
	at       map[Kind]map[string][]int // nodes by kind and service
}

// check finds unknown names.
func (b *builder) check() error {
	for _, name := range b.names {
		s := b.services[name]
		for _, f := range []struct {
			field string
			names []string
		}{{"requires", s.Requires}, {"reconcilers", s.ReconcilesAfter}, {"integrations", s.Integrations}, {"feeds", s.Feeds}} {
			for _, other := range f.names {
				if b.services[other] == nil {
					return &UnknownError{Service: name, Field: f.field, Name: other}
				}
			}
		}
		for _, other := range s.Feeds {
			if b.services[other].Aggregator == "" {
				return &AggregatorError{Service: name, Name: other}
			}
		}
	}
	for _, name := range b.scope.Changed {
		if b.services[name] == nil {
			return &UnknownError{Name: name}
		}
	}
	return nil
}

// addNodes adds the nodes (E1–E5).
func (b *builder) addNodes() {
	b.at = map[Kind]map[string][]int{}
	for _, k := range kinds {
		b.at[k] = map[string][]int{}
		for _, name := range b.names {
			s := b.services[name]
			switch {
			case k == Callback && s.SetupCallback || k == DNS && s.DNS:
				if len(b.at[k]) == 0 {
					b.add(Node{Kind: k})
				}
			case k == Deploy, k == s.Aggregator, k == Reconcile && s.Reconciles:
				for _, target := range slices.Compact(slices.Sorted(slices.Values(s.Targets))) {
					b.add(Node{Kind: k, Service: name, Target: target})
				}
			}
		}
	}
}

func (b *builder) add(n Node) {
	b.at[n.Kind][n.Service] = append(b.at[n.Kind][n.Service], len(b.nodes))
	b.nodes = append(b.nodes, n)
}

// addEdges adds the edges. A node waits for its own service on its own target, and for other services on all targets.
func (b *builder) addEdges() {
	callback := b.at[Callback][""]
	var collected []int
	if !b.scope.Eager {
		for _, name := range b.names {
			collected = append(append(collected, b.at[Sync][name]...), b.at[Redeploy][name]...)
		}
	}
	for i := range b.nodes {
		n := &b.nodes[i]
		s := b.services[n.Service]
		switch n.Kind {
		case Deploy:
			n.Needs = b.everywhere(Deploy, s.Requires)
			if s.Captured {
				n.Needs = append(n.Needs, callback...)
			}
		case Callback:
			for _, name := range b.names {
				if b.services[name].SetupCallback {
					n.After = append(n.After, b.at[Deploy][name]...)
				}
			}
		case Sync, Redeploy:
			n.Needs = append(b.own(n), callback...)
		case Reconcile:
			n.Needs = slices.Concat(b.own(n), collected, b.everywhere(Reconcile, s.ReconcilesAfter))
			if s.ReconcilesCaptured {
				n.Needs = append(n.Needs, callback...)
			}
		}
		n.Needs = slices.Compact(slices.Sorted(slices.Values(n.Needs)))
	}
}

// own returns the DEPLOY of a node's service on its target.
func (b *builder) own(n *Node) []int {
	for _, i := range b.at[Deploy][n.Service] {
		if b.nodes[i].Target == n.Target {
			return []int{i}
		}
	}
	return nil
}

func (b *builder) everywhere(kind Kind, services []string) (all []int) {
	for _, name := range services {
		all = append(all, b.at[kind][name]...)
	}
	return all
}

// cycle returns a cycle of nodes, or nil.
func (b *builder) cycle() []Node {
	const (
		open = 1 + iota // on the current path
		free            // no cycle leads through it
	)
	marks, path := make([]int, len(b.nodes)), []int{}
	var visit func(i int) []Node
	visit = func(i int) []Node {
		if marks[i] == open {
			ring := []Node{}
			for _, j := range path[slices.Index(path, i):] {
				ring = append(ring, b.nodes[j])
			}
			return append(ring, b.nodes[i])
		}
		if marks[i] == free {
			return nil
		}
		marks[i], path = open, append(path, i)
		for _, j := range slices.Concat(b.nodes[i].Needs, b.nodes[i].After) {
			if found := visit(j); found != nil {
				return found
			}
		}
		marks[i], path = free, path[:len(path)-1]
		return nil
	}
	for i := range b.nodes {
		if found := visit(i); found != nil {
			return found
		}
	}
	return nil
}

// pruned omits the nodes that the changes do not reach, and their edges (E7).
func (b *builder) pruned() *Plan {
	if b.scope.All {
		return &Plan{Nodes: b.nodes}
	}
	near := b.neighbourhood()
	p := &Plan{Nodes: []Node{}}
	now := make([]int, len(b.nodes)) // the new index of a node, counted from 1
	for i, n := range b.nodes {
		if b.stays(&n, near) {
			p.Nodes = append(p.Nodes, n)
			now[i] = len(p.Nodes)
		}
	}
	for i := range p.Nodes {
		for _, edges := range []*[]int{&p.Nodes[i].Needs, &p.Nodes[i].After} {
			var kept []int
			for _, j := range *edges {
				if now[j] > 0 {
					kept = append(kept, now[j]-1)
				}
			}
			*edges = kept
		}
	}
	return p
}

// neighbourhood returns the changed services and their integrations: one hop.
func (b *builder) neighbourhood() map[string]bool {
	near := map[string]bool{}
	for _, name := range b.names {
		near[name] = slices.Contains(b.scope.Changed, name) ||
			slices.ContainsFunc(b.services[name].Integrations, func(other string) bool { return slices.Contains(b.scope.Changed, other) })
	}
	return near
}

func (b *builder) stays(n *Node, near map[string]bool) bool {
	input := func(is func(s *Service) bool) bool {
		return slices.ContainsFunc(b.names, func(name string) bool { return near[name] && is(b.services[name]) })
	}
	switch n.Kind {
	case Callback:
		return input(func(s *Service) bool { return s.SetupCallback })
	case DNS:
		return input(func(s *Service) bool { return s.DNS })
	case Sync, Redeploy:
		return near[n.Service] || input(func(s *Service) bool { return slices.Contains(s.Feeds, n.Service) })
	default:
		return near[n.Service]
	}
}

// behind lists for each node the nodes that wait for it.
func (p *Plan) behind() [][]int {
	behind := make([][]int, len(p.Nodes))
	for n := range p.Nodes {
		for _, m := range slices.Concat(p.Nodes[n].Needs, p.Nodes[n].After) {
			behind[m] = append(behind[m], n)
		}
	}
	return behind
}

// ranks returns for each node the length of the longest chain of nodes that wait for it. The node with the longest chain goes first.
func (p *Plan) ranks() []int {
	behind := p.behind()
	ranks := make([]int, len(p.Nodes))
	var rank func(n int) int
	rank = func(n int) int {
		if ranks[n] == 0 {
			ranks[n] = 1
			for _, m := range behind[n] {
				ranks[n] = max(ranks[n], 1+rank(m))
			}
		}
		return ranks[n]
	}
	for n := range p.Nodes {
		rank(n)
	}
	return ranks
}

// Longest lists the nodes of the longest path through the plan, in order. Of several it takes the one whose nodes are listed first.
func (p *Plan) Longest() (way []int) {
	ranks, behind := p.ranks(), p.behind()
	for next := indexes(len(p.Nodes)); len(next) > 0; next = behind[way[len(way)-1]] {
		way = append(way, slices.MaxFunc(next, func(a, b int) int { return cmp.Or(cmp.Compare(ranks[a], ranks[b]), b-a) }))
	}
	return way
}

// inTurn lists all nodes, those with the longest chain behind them first. The order does not change during a walk.
func (p *Plan) inTurn() []int {
	if p.turn == nil {
		ranks := p.ranks()
		p.turn = indexes(len(p.Nodes))
		slices.SortStableFunc(p.turn, func(a, b int) int { return cmp.Compare(ranks[b], ranks[a]) })
	}
	return p.turn
}

// indexes returns 0 to n-1.
func indexes(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
